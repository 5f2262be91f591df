"""The space of all texts, and how Gymnasium's vector environments batch texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector.utils import create_empty_array

MAX_TEXT_LENGTH = 1 << 20
"""Characters a turn or an observation may have: a bound for the spaces, not for the model."""


class TextSpace(gymnasium.Space[str]):
    """All Unicode strings of at most `max_length` characters.

    Gymnasium's own `Text` draws random letters, which are never a turn of a protocol. Here
    `sample()` draws one of the example texts `turns`. Equality compares `max_length` only.
    `AsyncVectorEnv` takes it with `shared_memory=False`.
    """

    def __init__(
        self,
        max_length: int = MAX_TEXT_LENGTH,
        *,
        turns: Sequence[str] = ("",),
        seed: int | np.random.Generator | None = None,
    ) -> None:
        super().__init__(shape=None, dtype=None, seed=seed)
        self.max_length = max_length
        self.turns = tuple(turns)

    @property
    def is_np_flattenable(self) -> bool:
        """Text has no fixed-size array form."""
        return False

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> str:
        """Draw one example text; `mask` and `probability` have no meaning here."""
        return self.turns[int(self.np_random.integers(len(self.turns)))][: self.max_length]

    def contains(self, x: Any) -> bool:
        """Whether `x` is a string that is short enough."""
        return isinstance(x, str) and len(x) <= self.max_length

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TextSpace) and other.max_length == self.max_length

    def __hash__(self) -> int:
        return hash(("TextSpace", self.max_length))

    def __repr__(self) -> str:
        return f"TextSpace(max_length={self.max_length})"


@create_empty_array.register(TextSpace)
def _empty_texts(
    space: TextSpace, n: int = 1, fn: Callable[..., Any] = np.zeros
) -> tuple[str, ...]:
    """An empty batch that the batched space contains, as Gymnasium's fallback is not."""
    return ("",) * n
