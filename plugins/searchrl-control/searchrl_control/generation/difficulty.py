"""How hard a question is: what the single pass finds of it among the first ten.

Owns the three levels and their bounds. A question with one relevant passage is easy or hard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from searchrl_control.environment.measures import recall


class Difficulty(StrEnum):
    """A level."""

    EASY = "easy"
    """The single pass finds at least two thirds of the relevant passages."""
    MEDIUM = "medium"
    """It finds some."""
    HARD = "hard"
    """It finds less than a third."""


_EASY, _HARD = 2 / 3, 1 / 3


def difficulty_of(ranking: Sequence[str], qrels: Mapping[str, int]) -> Difficulty:
    """The level of a question by its single pass: ids, best first."""
    found = recall(ranking, qrels)
    if found >= _EASY:
        return Difficulty.EASY
    return Difficulty.HARD if found < _HARD else Difficulty.MEDIUM
