"""Exa's search interface on the wire: passages from answers.

Source: the API reference of Exa (exa.ai/docs/reference/search, `POST /search`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from searchrl import RetrieverFailure, show_value
from searchrl.contracts import Passage, make_encodable

MAX_RESULTS = 100
"""The most results of one search that the interface takes."""

_DAY = re.compile(r"\d{4}-\d\d-\d\d")

Content = Literal["highlights", "text"]
"""The text of a passage: the excerpts of the page closest to the query, or its beginning."""


def read_passages(answer: Any, k: int, max_chars: int) -> list[Passage]:
    """The passages of a decoded answer, at most `k`, no page twice.

    A passage is named by the address of its page. Exa gives no scores that fall with the rank, so
    the score is 1 / rank.
    """
    results = answer.get("results") if isinstance(answer, Mapping) else None
    if not isinstance(results, list):
        raise RetrieverFailure(f'Exa sent no {{"results": […]}}: {show_value(answer)}')
    passages = [_read_passage(result, max_chars) for result in results]
    # A page that could not be read has nothing to show.
    shown = {p.id: p for p in reversed(passages) if p.text or p.title}
    once = [shown.pop(p.id) for p in passages if p.id in shown][: max(k, 0)]
    return [Passage(one.id, one.text, one.title, 1.0 / rank) for rank, one in enumerate(once, 1)]


def _read_passage(result: Any, max_chars: int) -> Passage:
    """A result as a passage; its text begins with the day on which the page was published."""
    if not isinstance(result, Mapping):
        raise RetrieverFailure(f"Exa sent no result: {show_value(result)}")
    name = _read_text(result, "url") or _read_text(result, "id")
    if not name:
        raise RetrieverFailure(f"Exa sent a result without an address: {show_value(result)}")
    text = " … ".join(_read_highlights(result)) or _read_text(result, "text")
    text = text[:max_chars].strip()
    day = _DAY.match(_read_text(result, "publishedDate"))
    return Passage(
        name, f"[{day[0]}] {text}" if day and text else text, _read_text(result, "title")
    )


def _read_highlights(result: Mapping[str, Any]) -> Iterator[str]:
    highlights = result.get("highlights") or []
    if not isinstance(highlights, list) or not all(isinstance(one, str) for one in highlights):
        raise RetrieverFailure(f"Exa sent highlights that are no texts: {show_value(result)}")
    return filter(None, (make_encodable(one).strip() for one in highlights))


def _read_text(result: Mapping[str, Any], key: str) -> str:
    """A text of a result, without white space around it; "" for none, which is null in JSON."""
    value = result.get(key)
    if value is not None and not isinstance(value, str):
        raise RetrieverFailure(f"Exa sent a {key} that is no text: {show_value(result)}")
    return make_encodable(value or "").strip()
