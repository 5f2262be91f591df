"""The table: nDCG@k, steps, shares of actions, and easy, medium and hard questions with counts.

Owns its columns, in words and as JSON.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from searchrl import estimate
from searchrl_control.comparison.playing import Played
from searchrl_control.generation.difficulty import Difficulty

_HEADS = ("policy", "nDCG@10", "95 %", "steps", *(str(level) for level in Difficulty), "actions")


def worth_of(played: Iterable[Played]) -> dict[tuple[str, str], float]:
    """nDCG@k by collection and question; the mean of those that were played several times."""
    found: dict[tuple[str, str], list[float]] = {}
    for one in played:
        found.setdefault((one.collection, one.question), []).append(one.ndcg)
    return {key: fmean(values) for key, values in found.items()}


def row_of(played: Sequence[Played]) -> dict[str, Any]:
    """What the table says of one policy; `levels` have a mean and a count each.

    If a question was played several times (by several runs), the mean of them counts, once.
    """
    values = worth_of(played)
    level_of = {(one.collection, one.question): one.level for one in played}
    done = Counter(action for one in played for action in one.actions)
    levels = {}
    for level in Difficulty:
        if of_level := [value for key, value in values.items() if level_of[key] == level]:
            levels[str(level)] = {"ndcg": fmean(of_level), "n": len(of_level)}
    named = {"/".join(key): value for key, value in values.items()}
    return {
        "ndcg": estimate({"ndcg": named})["ndcg"],
        "steps": done.total() / len(played),
        "actions": {name: count / done.total() for name, count in done.most_common()},
        "illegal": sum(one.num_illegal for one in played),
        "levels": levels,
    }


def render(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """The table in Markdown, a line for each policy."""
    lines: list[Sequence[str]] = [_HEADS, ["---"] * len(_HEADS)]
    for name, row in rows.items():
        ndcg, levels = row["ndcg"], row["levels"]
        of_levels = [
            f"{levels[level]['ndcg']:.4f} ({levels[level]['n']})" if level in levels else ""
            for level in map(str, Difficulty)
        ]
        actions = ", ".join(f"{action} {share:.0%}" for action, share in row["actions"].items())
        interval = f"{ndcg['low']:.4f} to {ndcg['high']:.4f}" if "low" in ndcg else ""
        lines.append(
            (name, f"{ndcg['value']:.4f}", interval, f"{row['steps']:.2f}", *of_levels, actions)
        )
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
