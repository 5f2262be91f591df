"""Embeddings of a collection: frozen, computed once, kept on disk.

Owns the file of vectors, whose name is made of the model's files and of all texts. The encoders are
those of searchrl-retrieval; nothing is downloaded. `N` passages, `D` dimensions. The embeddings are
no weights: no optimiser ever sees them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from searchrl_retrieval.dense.encoders import Encoder, as_text
from searchrl_retrieval.dense.kinds import Dense, Static

from searchrl.contracts import Passage
from searchrl_control.searchers.ranking import Scores

Vectors = NDArray[np.float32]

KINDS = {"static": Static, "dense": Dense}
"""A table of vectors (quick), or a sentence-transformers model."""

_BATCH = 512


class NamedEncoder(NamedTuple):
    """An encoder, and the text that two equal ones share."""

    encoder: Encoder
    fingerprint: str


def load_encoder(kind: str = "static", model: str | None = None) -> NamedEncoder:
    """Load an encoder of this machine.

    Raises:
        ConfigError: there is no such model here.
    """
    made = KINDS[kind](model=model) if model else KINDS[kind]()
    built_with = {name: said for name, said in made.built_with.items() if name != "model"}
    return NamedEncoder(made.load_encoder(), repr(built_with))


class VectorIndex:
    """The vectors of a collection."""

    def __init__(
        self, passages: Sequence[Passage], named: NamedEncoder, folder: Path | None = None
    ) -> None:
        self.encoder = named.encoder
        self.dim = named.encoder.dim
        digest = hashlib.sha256(named.fingerprint.encode())
        for passage in passages:
            text = as_text(passage).encode()
            digest.update(b"%d:" % len(text) + text)
        path = folder / f"vectors-{digest.hexdigest()[:32]}.npy" if folder else None
        self.vectors_ND = self._load(passages, path)

    def embed(self, text: str) -> Vectors:
        """The vector [D] of a query."""
        return np.asarray(self.encoder.encode_queries([text])[0], dtype=np.float32)

    def score(self, vector_D: Vectors) -> Scores:
        """The similarity [N] of every passage with a query's vector."""
        return np.asarray(self.vectors_ND @ vector_D, dtype=np.float32)

    def _load(self, passages: Sequence[Passage], path: Path | None) -> Vectors:
        vectors = np.zeros((len(passages), self.dim), dtype=np.float32)
        try:
            if path is not None:
                kept: Vectors = np.load(path, allow_pickle=False)
                if kept.shape == vectors.shape:
                    return kept
        except (ValueError, OSError, EOFError):
            pass  # not there, or damaged: computed and kept
        for start in range(0, len(passages), _BATCH):
            batch = passages[start : start + _BATCH]
            vectors[start : start + len(batch)] = self.encoder.encode_passages(batch)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Another process may do the same: whoever is last puts the same file there.
            half = path.with_name(f"{path.stem}.{os.getpid()}.half.npy")
            np.save(half, vectors)
            half.replace(path)
        return vectors
