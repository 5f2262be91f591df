"""The contract of an encoder, and texts as encoders see them; no text can make one fail.

The encoders are `static` and `sentences`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from searchrl.contracts import Passage

Vectors = NDArray[np.float32]


class Encoder(Protocol):
    """Makes vectors whose inner product says how near two texts are.

    `B` texts give a float32 array [B, `dim`]. A row of zeros is a text in which there is nothing.
    Safe to use from several threads.
    """

    dim: int

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        """Vectors [B, dim] of queries."""

    def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
        """Vectors [B, dim] of passages: title and text."""


def as_text(passage: Passage) -> str:
    """A passage as one text: its title, if it has one, and its text."""
    return as_plain(f"{passage.title} {passage.text}" if passage.title else passage.text)


def as_plain(text: str) -> str:
    """The text without halves of surrogate pairs, which tokenizers refuse."""
    return text.encode("utf-8", "replace").decode("utf-8")


def normalise(vectors: Vectors) -> Vectors:
    """Vectors [B, D] of length 1, in place; rows of zeros stay."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors /= np.where(lengths > 0, lengths, 1)
    return vectors
