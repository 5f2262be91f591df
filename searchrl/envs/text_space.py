"""The space of all texts, and how Gymnasium's vector environments carry texts.

Owns `TextSpace`, its batches, and the memory that `AsyncVectorEnv` shares with its workers.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from ctypes import c_uint8
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector.utils import (
    batch_differing_spaces,
    create_empty_array,
    create_shared_memory,
    read_from_shared_memory,
    write_to_shared_memory,
)

MAX_TEXT_LENGTH = 1 << 20
"""Characters a turn or an observation may have: a bound for the spaces, not for the model."""


class TextSpace(gymnasium.Space[str]):
    """All Unicode strings of at most `max_length` characters.

    Gymnasium's own `Text` draws random letters, which are never a turn of a protocol. Here
    `sample()` draws one of the example texts `turns`. Equality compares `max_length` only.
    """

    def __init__(
        self,
        max_length: int = MAX_TEXT_LENGTH,
        *,
        turns: Sequence[str] = ("",),
        seed: int | np.random.Generator | None = None,
    ) -> None:
        if max_length < 0:
            raise ValueError(f"max_length must not be negative, got {max_length}")
        if not turns:
            raise ValueError("turns must hold at least one example text, got none")
        super().__init__(shape=None, dtype=None, seed=seed)
        self.max_length = max_length
        self.turns = tuple(turns)

    @property
    def is_np_flattenable(self) -> bool:
        """Text has no fixed-size array form."""
        return False

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> str:
        """Draw one example text; `mask` and `probability` have no meaning here."""
        if mask is not None or probability is not None:
            raise ValueError("TextSpace.sample takes no mask and no probability")
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


# Gymnasium's fallback for custom spaces batches texts as a tuple of strings. It lacks an empty
# batch that the batched space contains, what is known of spaces that differ, and shared memory.
@create_empty_array.register(TextSpace)
def _empty_texts(
    space: TextSpace, n: int = 1, fn: Callable[..., Any] = np.zeros
) -> tuple[str, ...]:
    return ("",) * n


@batch_differing_spaces.register(TextSpace)
def _batch_differing_texts(  # type: ignore[misc]  # registered by the type of the elements
    spaces: Sequence[TextSpace],
) -> gymnasium.Space[Any]:
    return gymnasium.spaces.Tuple(tuple(spaces))


@is_space_dtype_shape_equiv.register(TextSpace)
def _are_alike(one: TextSpace, other: gymnasium.Space[Any]) -> bool:
    return one == other


_HEAD = 8
"""Bytes that say how many bytes of UTF-8 follow."""


def _size(space: TextSpace) -> int:
    return _HEAD + 4 * space.max_length


class _SharedTexts(Sequence[str]):
    """The texts that lie in shared memory now; a copy is a tuple of them, as of this moment.

    Gymnasium reads the memory once, and expects to see later texts in what it got.
    """

    def __init__(self, rows: np.ndarray[Any, Any]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self)[index]
        row = self._rows[index]
        count = int.from_bytes(row[:_HEAD].tobytes(), "little")
        return row[_HEAD : _HEAD + count].tobytes().decode("utf-8", "surrogatepass")

    def __deepcopy__(self, memo: Any) -> tuple[str, ...]:
        return tuple(self)


def _rows(space: TextSpace, memory: Any) -> np.ndarray[Any, Any]:
    return np.frombuffer(memory.get_obj(), dtype=np.uint8).reshape(-1, _size(space))


@create_shared_memory.register(TextSpace)
def _share_texts(space: TextSpace, n: int = 1, ctx: Any = multiprocessing) -> Any:
    return ctx.Array(c_uint8, n * _size(space))


@read_from_shared_memory.register(TextSpace)
def _read_texts(space: TextSpace, shared_memory: Any, n: int = 1) -> Any:
    return _SharedTexts(_rows(space, shared_memory))


@write_to_shared_memory.register(TextSpace)
def _write_text(space: TextSpace, index: int, value: Any, shared_memory: Any) -> None:
    data = str(value).encode("utf-8", "surrogatepass")
    row = _rows(space, shared_memory)[index]
    row[: _HEAD + len(data)] = np.frombuffer(len(data).to_bytes(_HEAD, "little") + data, np.uint8)
