"""The retriever `hybrid`: a ranking by vectors and a ranking by words, fused.

Owns the default weight, the depth to which the two are read, and which retrievers they are. The
arithmetic is in `fusion`. Called by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from searchrl import ConfigError, RetrieverFailure
from searchrl.contracts import Passage, Retriever, RetrieverFactory, StoredRetriever
from searchrl_retrieval.bm25s.kind import make_bm25s
from searchrl_retrieval.dense.kinds import make_static
from searchrl_retrieval.fusion import FUSIONS, fuse

VECTOR_WEIGHT = 0.15
"""The share of the vectors: the same for every collection, chosen on training questions of three by
`benchmarks/bench_hybrid.py`, which prints what it gives on other questions."""

AtLeastZero = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class HybridRetriever:
    """Two retrievers over the same passages, asked for `depth` passages each, and fused.

    Args:
        vector, bm25: the two retrievers.
        vector_weight, bm25_weight: what each counts; only their ratio matters. 0 leaves one out.
        fusion: `min_max` adds scores that are moved to 0 to 1, `rrf` adds 1 / (60 + rank).
        depth: passages that are read of each. More are read only where more are asked for.
    """

    def __init__(
        self,
        vector: Retriever,
        bm25: Retriever,
        *,
        vector_weight: float,
        bm25_weight: float,
        fusion: Literal["min_max", "rrf"],
        depth: int,
    ) -> None:
        self.parts = {"vector": vector, "bm25": bm25}
        self.weights = (vector_weight, bm25_weight)
        self.points = FUSIONS[fusion]
        self.depth = depth

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return at most `k` passages per query, best first, with scores from 0 to 1."""
        if k <= 0:
            return [[] for _ in queries]
        rankings = [self._ask(name, list(queries), max(k, self.depth)) for name in self.parts]
        return [fuse(both, self.weights, self.points)[:k] for both in zip(*rankings, strict=True)]

    def _ask(self, name: str, queries: list[str], depth: int) -> list[list[Passage]]:
        weight = dict(zip(self.parts, self.weights, strict=True))[name]
        if not weight:
            return [[] for _ in queries]
        found = self.parts[name].search(queries, depth)
        if len(found) != len(queries):
            raise RetrieverFailure(
                f"retriever hybrid: its part {name} gave {len(found)} results for {len(queries)} "
                "queries"
            )
        return found


class StoredHybridRetriever(HybridRetriever):
    """One whose parts have passages of their own, which can be asked for by id."""

    def stored(self, ids: Sequence[str]) -> Sequence[Passage | None] | None:
        """The passages of these ids; None for each that the indexes lack."""
        part = self.parts["bm25"]
        return part.stored(ids) if isinstance(part, StoredRetriever) else None


def make_hybrid(
    passages: Sequence[Passage],
    *,
    vector: RetrieverFactory | None = None,
    bm25: RetrieverFactory | None = None,
    vector_weight: AtLeastZero = VECTOR_WEIGHT,
    bm25_weight: AtLeastZero = 1 - VECTOR_WEIGHT,
    fusion: Literal["min_max", "rrf"] = "min_max",
    depth: Annotated[int, Field(ge=1)] = 100,
) -> Retriever:
    """The retriever `hybrid`; without `vector` and `bm25` it is made of `static` and `bm25s`.

    Raises:
        ConfigError: nothing counts, or a part cannot be made.
    """
    if not vector_weight + bm25_weight:
        raise ConfigError("retriever hybrid: vector_weight and bm25_weight are 0; raise one")
    parts = (vector or make_static)(passages), (bm25 or make_bm25s)(passages)
    is_stored = all(isinstance(part, StoredRetriever) for part in parts)
    kind = StoredHybridRetriever if is_stored else HybridRetriever
    return kind(
        *parts, vector_weight=vector_weight, bm25_weight=bm25_weight, fusion=fusion, depth=depth
    )
