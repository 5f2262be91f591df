"""The retriever `hybrid`: a ranking by vectors and a ranking by words, fused by `fusion`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from searchrl import RetrieverFailure
from searchrl.contracts import Passage, Retriever, RetrieverFactory, StoredRetriever
from searchrl_retrieval.bm25s.kind import make_bm25s
from searchrl_retrieval.dense.kinds import AtLeastOne, make_static
from searchrl_retrieval.fusion import fuse

VECTOR_WEIGHT = 0.15
"""The share of the vectors: the same for every collection, chosen on training questions of three by
`benchmarks/bench_hybrid.py`, which prints what it gives on other questions."""

DEEPER = 3
"""Passages that are read of each part for one that is asked for. In a list as long as what is read,
the last places go to passages that the better part does not know, and recall is lost."""

Share = Annotated[float, Field(ge=0, le=1)]


class HybridRetriever:
    """Two retrievers over the same passages, asked for `depth` passages each, and fused.

    `vector_weight` is the share of the first; 0 and 1 leave one out. More than `depth` passages are
    read only if that is less than `DEEPER` times those asked for. It is a `StoredRetriever` if both
    are.
    """

    def __init__(
        self, vector: Retriever, bm25: Retriever, vector_weight: float, depth: int
    ) -> None:
        self.vector, self.bm25 = vector, bm25
        self.vector_weight, self.depth = vector_weight, depth
        if isinstance(vector, StoredRetriever) and isinstance(bm25, StoredRetriever):
            self.stored = bm25.stored

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return at most `k` passages per query, best first, with scores from 0 to 1."""
        if k <= 0:
            return [[] for _ in queries]
        weights = (self.vector_weight, 1 - self.vector_weight)
        deep = max(DEEPER * k, self.depth)
        rankings = [
            ask("hybrid", part, queries, deep) if weight else [[]] * len(queries)
            for part, weight in zip((self.vector, self.bm25), weights, strict=True)
        ]
        return [fuse(both, weights)[:k] for both in zip(*rankings, strict=True)]


def make_hybrid(
    passages: Sequence[Passage],
    *,
    vector: RetrieverFactory | None = None,
    bm25: RetrieverFactory | None = None,
    vector_weight: Share = VECTOR_WEIGHT,
    depth: AtLeastOne = 100,
) -> Retriever:
    """The retriever `hybrid`; without `vector` and `bm25` it is made of `static` and `bm25s`."""
    parts = (vector or make_static)(passages), (bm25 or make_bm25s)(passages)
    return HybridRetriever(*parts, vector_weight, depth)


def ask(
    name: str, retriever: Retriever, queries: Sequence[str], k: int
) -> Sequence[Sequence[Passage]]:
    """The results of a part of the retriever `name`: one per query, or `RetrieverFailure`."""
    results = retriever.search(list(queries), k)
    if len(results) != len(queries):
        raise RetrieverFailure(
            f"retriever {name}: {type(retriever).__name__} gave {len(results)} results for "
            f"{len(queries)} queries"
        )
    return results
