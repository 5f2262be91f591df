"""What a model said, read as a verdict or as scores.

Owns the check of replies: whatever is not what was asked for is `Unreadable`, never a guess. Some
servers do not know schemas, so JSON may stand in a fence or after some words.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from searchrl import show_value
from searchrl.contracts import Verdict
from searchrl_judge.prompts import TOP, WORDS, name_answers

_MAX_REASON = 300


class Unreadable(ValueError):
    """A reply that is not what was asked for; the text quotes it."""


def read_verdict(text: str, thresholds: Sequence[float] = ()) -> Verdict:
    """The verdict in a reply: a word or, with thresholds, a number and what they make of it."""
    found = _read_object(text)
    if thresholds:
        number = found.get("score")
        if not _is_within(number, 1):
            raise Unreadable(f"its score is no number from 0 to 1: {show_value(text)}")
        score = sum(number >= one for one in thresholds) / len(thresholds)
        return Verdict(score, _reason(found), number)
    said = found.get("verdict")
    value = WORDS.get(said.strip().lower()) if isinstance(said, str) else None
    if value is None:
        raise Unreadable(f"its verdict is none of {', '.join(WORDS)}: {show_value(text)}")
    return Verdict(value, _reason(found))


def read_scores(text: str, count: int) -> list[Verdict]:
    """The scores of `count` answers, from 0 to 1, in their order."""
    found = _read_object(text)
    listed = found.get("scores")
    scores: dict[str, float] = {}
    for one in listed if isinstance(listed, list) else ():
        name, score = map(one.get, ("id", "score")) if isinstance(one, Mapping) else (None, None)
        if not isinstance(name, str) or name in scores or not _is_within(score, TOP):
            raise Unreadable(f"it has the score {one!r}, or has it twice: {show_value(text)}")
        scores[name] = score / TOP
    names = name_answers(count)
    if sorted(scores) != names:
        raise Unreadable(
            f"it has scores for {sorted(scores)}, and not for {names}: {show_value(text)}"
        )
    return [Verdict(scores[name], _reason(found)) for name in names]


def _is_within(value: object, top: float) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= top


def _read_object(text: str) -> Mapping[str, Any]:
    """The last JSON object in a text: a model may quote an answer before it decides."""
    decoder = json.JSONDecoder()
    found: Mapping[str, Any] | None = None
    at = text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            found = value
        at = text.find("{", end)
    if found is None:
        raise Unreadable(f"it holds no JSON object: {show_value(text)}")
    return found


def _reason(found: Mapping[str, Any]) -> str:
    said = found.get("reason")
    return said[:_MAX_REASON] if isinstance(said, str) else ""
