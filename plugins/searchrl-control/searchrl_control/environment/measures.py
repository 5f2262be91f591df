"""The worth of a list, and levels of difficulty.

nDCG@10 and recall@10 are as ir-measures has them (Järvelin and Kekäläinen 2002, with the grade
itself as the gain):

    DCG@k  = sum over ranks r = 1 … k of grade(r) / log2(r + 1)
    nDCG@k = DCG@k / DCG@k of the best list

The best list is made of *all* relevant passages that were judged, in the corpus or not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from random import Random

from searchrl import ConfigError

CUTOFF = 10


def ndcg(ranking: Sequence[str], qrels: Mapping[str, int]) -> float:
    """nDCG@10 of a list of ids, best first; 0 without a relevant passage.

    >>> round(ndcg(["a", "b", "c"], {"a": 1, "c": 1, "missing": 1}), 4)
    0.7039
    """
    gained = _dcg([max(qrels.get(name, 0), 0) for name in ranking[:CUTOFF]])
    best = _dcg(sorted((grade for grade in qrels.values() if grade > 0), reverse=True)[:CUTOFF])
    return gained / best if best > 0 else 0.0


def _dcg(grades: Sequence[int]) -> float:
    return math.fsum(grade / math.log2(place + 2) for place, grade in enumerate(grades))


def recall(ranking: Sequence[str], qrels: Mapping[str, int]) -> float:
    """The share of all relevant passages that are among the first ten; 0 without any."""
    relevant = {name for name, grade in qrels.items() if grade > 0}
    return len(relevant.intersection(ranking[:CUTOFF])) / len(relevant) if relevant else 0.0


class Difficulty(StrEnum):
    """A level."""

    EASY = "easy"
    """The single pass finds at least two thirds of the relevant passages."""
    MEDIUM = "medium"
    """It finds some."""
    HARD = "hard"
    """It finds less than a third."""


ANY, MOSTLY_HARD = "any", "mostly_hard"
"""Values of `difficulty` besides the levels."""

HARD_SHARE = 0.7


def difficulty_of(ranking: Sequence[str], qrels: Mapping[str, int]) -> Difficulty:
    """The level of a question by its single pass: ids, best first."""
    share = recall(ranking, qrels)
    if share >= 2 / 3:
        return Difficulty.EASY
    return Difficulty.HARD if share < 1 / 3 else Difficulty.MEDIUM


def order_by(level: str, levels: Sequence[Difficulty], key: str) -> list[int]:
    """The questions that a level has, as the numbers of tasks: task i is question `order[i]`.

    `mostly_hard` has as many tasks as there are questions, about .7 of them hard ones; which, the
    number of the task and `key` decide. Where no question is hard, the hardest there are stand in
    for them: a run over several collections must not end because the single pass is good on one.
    """
    hardest = next((one for one in (Difficulty.HARD, Difficulty.MEDIUM) if one in levels), None)
    wanted = (hardest or Difficulty.EASY) if level == MOSTLY_HARD else Difficulty(level)
    of_level = [number for number, one in enumerate(levels) if one is wanted]
    if not of_level:
        raise ConfigError(
            f"env.difficulty: no question of this collection is {wanted}; use any, or another"
        )
    if level != MOSTLY_HARD:
        return of_level
    order = []
    for task in range(len(levels)):
        rng = Random(f"{key}/{task}")
        order.append(rng.choice(of_level) if rng.random() < HARD_SHARE else task)
    return order
