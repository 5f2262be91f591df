"""How hard a question is, and which questions a level has: a curriculum changes it at a step.

Owns the levels and their bounds. How hard a question is, the single pass says: what it finds of it
among the first ten. A question with one relevant passage is easy or hard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from random import Random

from searchrl import ConfigError
from searchrl_control.environment.measures import recall


class Difficulty(StrEnum):
    """A level."""

    EASY = "easy"
    """The single pass finds at least two thirds of the relevant passages."""
    MEDIUM = "medium"
    """It finds some."""
    HARD = "hard"
    """It finds less than a third."""


ANY, MOSTLY_HARD = "any", "mostly_hard"
"""What `difficulty` can be set to besides a level."""

HARD_SHARE = 0.7


def difficulty_of(ranking: Sequence[str], qrels: Mapping[str, int]) -> Difficulty:
    """The level of a question by its single pass: ids, best first."""
    found = recall(ranking, qrels)
    if found >= 2 / 3:
        return Difficulty.EASY
    return Difficulty.HARD if found < 1 / 3 else Difficulty.MEDIUM


def order_by(level: str, levels: Sequence[Difficulty], key: str) -> list[int]:
    """The questions that a level has, as the numbers of tasks: task i is question `order[i]`.

    `mostly_hard` has as many tasks as there are questions, about .7 of them hard ones; which, the
    number of the task and `key` decide. Where no question is hard, the hardest there are stand in
    for them: a run over several collections must not end because the single pass is good on one.

    Args:
        level: not `any`.
        levels: of all questions.
        key: of the draw.

    Raises:
        ConfigError: no question is of this level.
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
