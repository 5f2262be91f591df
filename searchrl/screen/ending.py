"""The end of a run in one sentence: what it reached, and what the agent does now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from searchrl.contracts import Metric
from searchrl.rewards.expression import HEADLINES

_NAMES = {"em": "exact match", "env": "the game's own reward"}
_EVERY = 0.995
"""Share of the episodes from which on it is said to be every one."""


def describe_result(
    before: Mapping[str, Metric], after: Mapping[str, Metric], headline: str = "em"
) -> str:
    """One sentence, such as `exact match 1 % → 96 %; it now searches in every episode`.

    `before` is empty for a cold start, which is measured afterwards only. "" if nothing was.
    `headline` is what the run is judged by, if that was measured.
    """
    key = next((key for key in (headline, *HEADLINES) if key in after), None)
    if key is None:
        return ""

    def say(metric: Metric) -> str:
        return _percent(metric["value"]) if key == "em" else f"{metric['value']:.2f}"

    now, was = say(after[key]), say(before[key]) if key in before else None
    change = f"{was} → {now}"
    if was is None:
        change = f"{now} on held-out tasks"
    elif was == now:
        change = f"{now}, as before"
    elif not _is_apart(before[key], after[key]):
        change += ", which may be chance (the 95 % intervals overlap)"
    return "; ".join(filter(None, [f"{_NAMES.get(key, key)} {change}", _habit(before, after)]))


def list_alarms(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows of alarms.jsonl in a line: `2 sounded: mismatch (since step 4), truncation (…)`."""
    if not rows:
        return ""
    named = ", ".join(f"{row['alarm']} (since step {row['since']})" for row in rows)
    return f"{len(rows)} sounded: {named}; see alarms.jsonl"


def _habit(before: Mapping[str, Metric], after: Mapping[str, Metric]) -> str:
    if "searched" not in after:
        return ""
    share, was = after["searched"]["value"], before.get("searched")
    is_new = was is not None and _is_apart(was, after["searched"])
    now = " now" if is_new else ""
    if share >= _EVERY:
        return f"it{now} searches in every episode"
    if share <= 1 - _EVERY:
        return f"it{' no longer searches' if is_new else ' never searches'}"
    earlier = f" ({_percent(was['value'])} before)" if is_new and was is not None else ""
    return f"it{now} searches in {_percent(share)} of the episodes{earlier}"


def _is_apart(one: Metric, other: Metric) -> bool:
    """True if two values differ by more than chance: their 95 % intervals do not overlap."""
    ends = [(m.get("low", m["value"]), m.get("high", m["value"])) for m in (one, other)]
    (low, high), (other_low, other_high) = ends
    return high < other_low or other_high < low


def _percent(share: float) -> str:
    """`96 %`; with a digit more where that would read as none or all."""
    is_close = 0 < share < 0.01 or 0.99 < share < 1
    return f"{100 * share:.{int(is_close)}f} %"
