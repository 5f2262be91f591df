"""The retriever `rerank`: the first passages of any retriever, ordered by a cross-encoder.

The model comes from a folder of this machine; torch and sentence-transformers are imported when it
is loaded.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from searchrl import ConfigError, RetrieverFailure
from searchrl.contracts import Passage, Retriever, RetrieverFactory, StoredRetriever
from searchrl_retrieval.bm25s.kind import make_bm25s
from searchrl_retrieval.dense.encoders import as_plain, as_text
from searchrl_retrieval.dense.kinds import AtLeastOne
from searchrl_retrieval.dense.models import find_model, load_model
from searchrl_retrieval.extras import need
from searchrl_retrieval.hybrid import ask

_LOCK = threading.Lock()
"""Held while a model computes: its tokenizer is not made for several threads."""


class RerankRetriever:
    """The first passages of another retriever, `factor` times as many as wanted, in a new order.

    A query is scored by itself, so that it finds the same alone and in a batch. Equal scores keep
    the order of the first retriever. It is a `StoredRetriever` if that is one.
    """

    def __init__(self, retriever: Retriever, model: Any, factor: int, batch_size: int) -> None:
        self.retriever, self.factor = retriever, factor
        self._model, self._batch_size = model, batch_size
        if isinstance(retriever, StoredRetriever):
            self.stored = retriever.stored

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return at most `k` passages per query, best first, with the scores of the model."""
        if k <= 0:
            return [[] for _ in queries]
        results = ask("rerank", self.retriever, queries, k * self.factor)
        return [self._order(*one)[:k] for one in zip(queries, results, strict=True)]

    def _order(self, query: str, passages: Sequence[Passage]) -> list[Passage]:
        if not passages:
            return []
        pairs = [(as_plain(query), as_text(passage)) for passage in passages]
        with _LOCK:
            raw = self._model.predict(pairs, batch_size=self._batch_size, show_progress_bar=False)
        scores = [float(score) for score in raw.tolist()]
        if not all(map(math.isfinite, scores)):
            raise RetrieverFailure("retriever rerank: the model gives scores that are no numbers")
        scored = [replace(p, score=s) for p, s in zip(passages, scores, strict=True)]
        return sorted(scored, key=lambda passage: -passage.score)


def make_rerank(
    passages: Sequence[Passage],
    *,
    model: str = "",
    retriever: RetrieverFactory | None = None,
    factor: AtLeastOne = 3,
    device: str | None = None,
    batch_size: AtLeastOne = 32,
) -> Retriever:
    """The retriever `rerank` over passages; without `retriever` it orders what `bm25s` finds.

    Args:
        passages: the corpus.
        model: a folder with a cross-encoder that gives one score, as sentence-transformers saves
            it, or an installed package that holds one. There is no default: none comes in a
            package of the public index.
        retriever: what is asked first.
        factor: how many times as many passages it is asked for.
        device: where the model runs, such as `cuda:1`; None: a GPU if there is one.
        batch_size: pairs per forward pass.
    """
    if not model:
        raise ConfigError(
            "retriever rerank needs a cross-encoder: set retriever.model to a folder that holds "
            "one, such as a copy of cross-encoder/ms-marco-MiniLM-L6-v2 (`hf download "
            "cross-encoder/ms-marco-MiniLM-L6-v2 --local-dir ms-marco` where there is a network)."
        )
    need("retriever rerank", "dense", "sentence_transformers")
    loaded = _load(find_model("rerank", model, ("config.json",), ""), device)
    return RerankRetriever((retriever or make_bm25s)(passages), loaded, factor, batch_size)


@functools.lru_cache(maxsize=2)
def _load(folder: Path, device: str | None) -> Any:
    """A cross-encoder, loaded once per process."""
    model = load_model("rerank", "CrossEncoder", folder, device)
    if (labels := int(model.num_labels)) != 1:
        raise ConfigError(
            f"retriever rerank: the model in '{folder}' gives {labels} scores for a pair; expected "
            "one, how well query and passage fit."
        )
    return model
