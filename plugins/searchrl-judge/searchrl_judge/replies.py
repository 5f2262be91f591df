"""Replies of a judge's model, read as a verdict or as scores.

Owns the check of replies: one of another form is `Unreadable`, never a guess. A
reply is one JSON object with the keys of its schema, each once, and nothing else; it may stand in a
fence and behind a thought (`<think>`). An object in prose may be a quotation of an answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeGuard

from searchrl import show_value
from searchrl.contracts import Verdict
from searchrl_judge.prompts import TOP, WORDS, name_answers

_MAX_REASON = 300


class Unreadable(ValueError):
    """A reply that is not what was asked for; the text quotes it."""


def read_verdict(
    text: str, thresholds: Sequence[float] = (), answers: Sequence[str] = ()
) -> Verdict:
    """The verdict that a reply is: a word or, with thresholds, a number and what they make of it.

    `answers` are those that were judged: an object which stands in one is no verdict.
    """
    found = _read_object(text, "score" if thresholds else "verdict", answers)
    if thresholds:
        number = found["score"]
        if not _is_within(number, 1):
            raise Unreadable(f"its score is no number from 0 to 1: {show_value(text)}")
        score = sum(number >= one for one in thresholds) / len(thresholds)
        return Verdict(score, found["reason"][:_MAX_REASON], number)
    said = found["verdict"]
    value = WORDS.get(said.strip().lower()) if isinstance(said, str) else None
    if value is None:
        raise Unreadable(f"its verdict is none of {', '.join(WORDS)}: {show_value(text)}")
    return Verdict(value, found["reason"][:_MAX_REASON])


def read_scores(text: str, count: int, answers: Sequence[str] = ()) -> list[Verdict]:
    """The scores of `count` answers, from 0 to 1, in their order; `answers` as for a verdict."""
    found = _read_object(text, "scores", answers)
    listed = found["scores"]
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
    return [Verdict(scores[name], found["reason"][:_MAX_REASON]) for name in names]


def _is_within(value: object, top: float) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= top


def _read_object(text: str, form: str, answers: Sequence[str]) -> dict[str, Any]:
    """The object that a reply is: `reason` and one more key."""
    written = re.sub(r"\A\s*<think>.*?</think>", "", text, flags=re.DOTALL).strip()
    fenced = re.fullmatch(r"```\w*(.*)```", written, re.DOTALL)
    value: Any = None
    with suppress(ValueError, RecursionError):
        value = json.loads(fenced[1] if fenced else written, object_pairs_hook=_make_object)
    has_keys = isinstance(value, dict) and value.keys() == {"reason", form}
    if not has_keys or not isinstance(value["reason"], str):
        raise Unreadable(
            f"expected one JSON object with the keys reason and {form} and no text around it, not "
            f"{show_value(text)}"
        )
    if any(value == one for answer in answers for one in _find_objects(answer)):
        raise Unreadable(f"it repeats an object that an answer holds: {show_value(text)}")
    return dict(value)


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object with each key once: an answer that was quoted as it is may end a text early."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("it has a key twice")
    return dict(pairs)


def _find_objects(text: str) -> Iterator[Any]:
    for brace in re.finditer("{", text):
        with suppress(ValueError, RecursionError):
            yield json.JSONDecoder().raw_decode(text, brace.start())[0]
