"""A column: the numbers of one rollout, and what each of them is per.

Owns the type that says it, so that nothing is guessed from lengths: a rollout may have as many
turns as tokens. Algorithms return columns, the packer spreads them over tokens. Standard library
only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate, pairwise


class Per(StrEnum):
    """Unit of the numbers of a column."""

    ROLLOUT = "rollout"
    TURN = "turn"
    """Turns in the order of the policy's requests."""
    TOKEN = "token"
    """Tokens that the model wrote, turn after turn."""


@dataclass(frozen=True, slots=True)
class Column:
    """Numbers of one rollout: one for all of it, one per turn, or one per token it wrote.

    `per` may be given as text. Raises ValueError for another unit.
    """

    values: Sequence[float]
    per: Per | str = Per.TURN

    def __post_init__(self) -> None:
        object.__setattr__(self, "per", Per(self.per))

    def expected(self, sizes: Sequence[int]) -> int:
        """Return how many numbers a rollout needs whose turns have `sizes` tokens."""
        return {Per.ROLLOUT: 1, Per.TURN: len(sizes), Per.TOKEN: sum(sizes)}[Per(self.per)]

    def over(self, sizes: Sequence[int]) -> list[tuple[float, ...]]:
        """Return, for each turn, one number per token; turns have `sizes` tokens.

        >>> Column([0.5, 2.0], "turn").over([1, 2])
        [(0.5,), (2.0, 2.0)]
        """
        values = tuple(self.values)
        match self.per:
            case Per.ROLLOUT:
                return [values * size for size in sizes]
            case Per.TURN:
                return [(one,) * size for one, size in zip(values, sizes, strict=True)]
        ends = accumulate(sizes, initial=0)
        return [values[start:stop] for start, stop in pairwise(ends)]
