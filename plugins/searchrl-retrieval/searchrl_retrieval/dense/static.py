"""Vectors from a table: the mean of one vector per token. No network is run, and no torch.

The files are those of a static-embedding model: `tokenizer.json` and a matrix in
`model.safetensors`, as Model2Vec and sentence-transformers write them, or those inside the package
wordllama. That package itself is not imported: it changes the logging of the whole program, and
looks for its tokenizer in a folder that its wheel does not have, so it would download.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from searchrl import ConfigError
from searchrl.contracts import Passage
from searchrl_retrieval.dense.encoders import Vectors, as_plain, as_text, normalise

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MARKS = ("model.safetensors", "weights/*.safetensors")
"""Files by which a static model is known: its own folder, or the package wordllama."""

_WORDS = ("tokenizer.json", "tokenizers/*.json")
"""The file of the tokenizer, in the same two."""

_MATRICES = ("embedding.weight", "embeddings")
"""The name of the matrix in the files of sentence-transformers and wordllama, and of Model2Vec."""

_BATCH = 256
"""Texts that are held as tokens at once."""


class StaticEncoder:
    """The mean of the token vectors, of length 1.

    `matrix` [V, D] has one per token; `tokenizer` must neither pad nor cut.
    """

    def __init__(self, matrix: Vectors, tokenizer: Tokenizer) -> None:
        self.matrix_VD, self.tokenizer = matrix, tokenizer
        self.dim = int(matrix.shape[1])

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        """See `Encoder`."""
        return self._encode([as_plain(query) for query in queries])

    def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
        """See `Encoder`."""
        return self._encode([as_text(passage) for passage in passages])

    def _encode(self, texts: Sequence[str]) -> Vectors:
        means = np.zeros((len(texts), self.dim), dtype=np.float32)
        for start in range(0, len(texts), _BATCH):
            batch = list(texts[start : start + _BATCH])
            encoded = self.tokenizer.encode_batch_fast(batch, add_special_tokens=False)
            for row, one in enumerate(encoded, start):
                if ids := one.ids:
                    # One text at a time, so that a text has the same vector in every batch.
                    means[row] = self.matrix_VD[ids].mean(axis=0, dtype=np.float32)
        return normalise(means)


@functools.lru_cache(maxsize=2)
def load_static_encoder(folder: Path) -> StaticEncoder:
    """Load the static model of a folder once per process; `ConfigError` for any other folder."""
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    weights = next(path for mark in MARKS for path in folder.glob(mark))
    try:
        words = next((p for mark in _WORDS for p in folder.glob(mark)), folder / _WORDS[0])
        tokenizer = Tokenizer.from_str(words.read_text("utf-8"))
        tensors: dict[str, Any] = load_file(weights)
        matrix = next((tensors[name] for name in _MATRICES if name in tensors), None)
        if matrix is None or matrix.ndim != 2 or len(tensors) > 1:
            shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
            raise ValueError(f"it holds {shapes}; expected one matrix {' or '.join(_MATRICES)}")
        if (largest := max(tokenizer.get_vocab().values())) >= len(matrix):
            raise ValueError(f"it has {len(matrix)} rows, and the tokenizer has the id {largest}")
    except Exception as error:  # safetensors and tokenizers raise errors of their own
        raise ConfigError(
            f"retriever static: '{weights}' is no static-embedding model: {error}. Copy the whole "
            "folder of the model there"
        ) from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return StaticEncoder(matrix.astype("float32"), tokenizer)
