"""Answers of Exa, for a server on this machine.

`recorded/exa_answers.json` holds whole answers, written after the examples of Exa's reference.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fixtures.openai_server import Fault

from searchrl.contracts import Retriever

RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parent / "recorded" / "exa_answers.json").read_text("utf-8")
)
KEY = "7c0ffee0-feed-4bad-beef-0123456789ab"


def sent(body: Any, status: int = 200) -> Fault:
    """The answer of a server: a text as it is, everything else as JSON."""
    return Fault(status, body if isinstance(body, str) else json.dumps(body))


def failing(status: int) -> Fault:
    """The answer of Exa where it does not search."""
    return sent(RECORDED["errors"][str(status)], status)


def recorded(body: dict[str, Any]) -> Fault:
    """The recorded answer of the category that is asked for."""
    return sent(RECORDED[body.get("category", "nothing")])


def searching(retriever: Retriever) -> Callable[[dict[str, Any]], Fault]:
    """Answers with what a retriever finds, in Exa's form."""

    def answer(body: dict[str, Any]) -> Fault:
        (found,) = retriever.search([body["query"]], body["numResults"])
        results = [
            {"id": one.id, "url": one.id, "title": one.title, "highlights": [one.text]}
            for one in found
        ]
        return sent({"requestId": "r", "results": results, "costDollars": {"total": 0.005}})

    return answer
