"""The outcome of a rollout in a few words, by rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from searchrl.core.episode import ANSWER, INVALID, SEARCH

_JUDGES = ("em", "cover_em", "f1", "fuzzy", "env")
"""Scores that say whether an answer is right, the first that was recorded first."""

_ENDS = {
    "turn_limit": "no answer: turns used up",
    "turn_tokens": "no answer: a turn was cut",
    "total_tokens": "no answer: tokens used up",
    "eos": "no answer: message ended",
}


def find_pattern(row: Mapping[str, Any]) -> str:
    """`1 search, all gold shown, right`: searches, evidence and end of a rollout."""
    if row["failure"]:
        return f"failed: {row['failure']['kind']}"
    parts = [_describe_actions(row)]
    gold = count_gold(row)
    if gold is not None and count_searches(row):
        shown, total = gold
        parts.append(f"{'all' if shown == total else 'some' if shown else 'no'} gold shown")
    parts.append(_describe_end(row))
    return ", ".join(parts)


def count_gold(row: Mapping[str, Any]) -> tuple[int, int] | None:
    """The number of gold passages shown, and of all; None where none are known."""
    gold = set(row["task"]["gold_ids"])
    if not gold:
        return None
    return len(gold & {name for turn in row["turns"] for name in turn["passages"]}), len(gold)


def count_searches(row: Mapping[str, Any]) -> int:
    """Turns that searched."""
    return sum(turn["action"] == SEARCH for turn in row["turns"])


def _describe_actions(row: Mapping[str, Any]) -> str:
    searches = count_searches(row)
    others = {turn["action"] for turn in row["turns"]} - {SEARCH, ANSWER, INVALID}
    if not searches:
        return f"actions: {', '.join(sorted(others))}" if others else "no search"
    return "1 search" if searches == 1 else f"{searches} searches"


def _describe_end(row: Mapping[str, Any]) -> str:
    if row["unscored"]:
        return "not scored"
    if row["stop_reason"] in _ENDS:
        return _ENDS[row["stop_reason"]]
    judge = next((name for name in _JUDGES if name in row["scores"]), None)
    if judge is None:
        return "ended"
    value = row["scores"][judge]
    return "right" if value >= 1 else "partly right" if value > 0 else "wrong"
