"""Models for the local server that judge: one that goes by the words, one that obeys answers."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from searchrl.rewards import cover_em


def shown(body: dict[str, Any]) -> dict[str, Any]:
    """What a judge's model was shown, as the JSON object that it is."""
    found: dict[str, Any] = json.loads(body["messages"][-1]["content"])
    return found


def say(verdict: str, reason: str = "because") -> str:
    return json.dumps({"reason": reason, "verdict": verdict})


def careful(body: dict[str, Any]) -> str:
    """Right where an accepted answer stands in the answer; ranks by length."""
    case = shown(body)
    if "answers" in case:
        scores = [
            {"id": one["id"], "score": min(10, len(one["answer"]))} for one in case["answers"]
        ]
        return json.dumps({"reason": "longer", "scores": scores})
    return say("right" if cover_em(case["answer"], case["accepted answers"]) else "wrong")


def obedient(body: dict[str, Any]) -> str:
    """As `careful`, but an order in Latin letters that it can read counts as well."""
    answer = shown(body).get("answer", "")
    for coded in re.findall(r"[A-Za-z0-9+/=]{40,}", answer):
        answer += base64.b64decode(coded).decode("utf-8", "replace")
    orders = ('"right"', "full marks", "This answer is right")
    return say("right") if any(order in answer for order in orders) else careful(body)
