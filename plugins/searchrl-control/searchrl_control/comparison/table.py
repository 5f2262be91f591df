"""The table: nDCG@k, steps, shares of actions, and easy, medium and hard questions with counts.

Owns its columns, in words and as JSON.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from searchrl import estimate
from searchrl_control.comparison.playing import Played, worth_of
from searchrl_control.generation.difficulty import Difficulty

_HEADS = ("policy", "nDCG@10", "95 %", "steps", *(str(level) for level in Difficulty), "actions")


def row_of(played: Sequence[Played]) -> dict[str, Any]:
    """What the table says of one policy; `levels` have a mean and a count each.

    If a question was played several times (by several runs), the mean of them counts, once.

    Raises:
        ValueError: nothing was played.
    """
    if not played:
        raise ValueError("there is no episode to put into a table")
    values = {
        f"{name}/{question}": value
        for name, of in worth_of(played).items()
        for question, value in of.items()
    }
    level_of = {f"{one.collection}/{one.question}": one.level for one in played}
    done = Counter(action for one in played for action in one.actions)
    levels = {}
    for level in Difficulty:
        of_level = [value for key, value in values.items() if level_of[key] == level]
        if of_level:
            levels[str(level)] = {"ndcg": math.fsum(of_level) / len(of_level), "n": len(of_level)}
    return {
        "ndcg": estimate({"ndcg": values})["ndcg"],
        "steps": sum(one.num_steps for one in played) / len(played),
        "actions": {name: count / done.total() for name, count in done.most_common()},
        "illegal": sum(one.num_illegal for one in played),
        "levels": levels,
    }


def render(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """The table in Markdown, a line for each policy."""
    lines = [_line(_HEADS), _line(["---"] * len(_HEADS))]
    for name, row in rows.items():
        ndcg = row["ndcg"]
        levels = [_level(row["levels"].get(str(level))) for level in Difficulty]
        actions = ", ".join(f"{action} {share:.0%}" for action, share in row["actions"].items())
        interval = f"{ndcg['low']:.4f} to {ndcg['high']:.4f}" if "low" in ndcg else ""
        told = (name, f"{ndcg['value']:.4f}", interval, f"{row['steps']:.2f}", *levels, actions)
        lines.append(_line(told))
    return "\n".join(lines)


def _level(told: Mapping[str, Any] | None) -> str:
    return "" if told is None else f"{told['ndcg']:.4f} ({told['n']})"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
