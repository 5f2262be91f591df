"""Vectors from a sentence-transformers model, with the prefixes that it was trained with.

torch and sentence-transformers are imported when a model is loaded, from a folder of this machine;
code inside it is not run.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from searchrl.contracts import Passage
from searchrl_retrieval.dense.encoders import Vectors, as_plain, as_text
from searchrl_retrieval.dense.models import load_model
from searchrl_retrieval.dense.prefixes import Prefixes

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

MARKS = ("modules.json", "config.json")
"""Files by which such a model is known; without modules.json its tokens are averaged."""


class SentenceEncoder:
    """A sentence-transformers model; vectors have length 1 unless it was made for inner products.

    `prefixes` stand before queries and passages, `batch_size` are the texts of a forward pass.
    """

    def __init__(self, model: SentenceTransformer, prefixes: Prefixes, batch_size: int) -> None:
        self.model, self.prefixes, self.batch_size = model, prefixes, batch_size
        self.has_lengths = str(model.similarity_fn_name) == "dot"
        self._lock = threading.Lock()
        self.dim = int(self._encode(["size"], "").shape[1])

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        """See `Encoder`."""
        return self._encode([as_plain(query) for query in queries], self.prefixes.query)

    def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
        """See `Encoder`."""
        return self._encode([as_text(passage) for passage in passages], self.prefixes.passage)

    def _encode(self, texts: Sequence[str], prefix: str) -> Vectors:
        with self._lock:  # its tokenizer is not made for several threads
            # A prompt, even "", replaces one that the model would add by itself.
            vectors: Any = self.model.encode(
                list(texts),
                prompt=prefix,
                batch_size=self.batch_size,
                normalize_embeddings=not self.has_lengths,
                convert_to_numpy=True,
                show_progress_bar=False,
            )
        return np.ascontiguousarray(vectors, dtype=np.float32)


@functools.lru_cache(maxsize=2)
def load_sentence_encoder(
    folder: Path, prefixes: Prefixes, device: str | None, batch_size: int
) -> SentenceEncoder:
    """Load a model once per process, for all corpora; raises as `load_model`."""
    model = load_model("dense", "SentenceTransformer", folder, device)
    return SentenceEncoder(model, prefixes, batch_size)
