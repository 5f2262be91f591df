"""The retriever over vectors: `dense` and `static` answer with it, from FAISS or from Chroma.

Owns what a query without words finds (nothing), the order of equal scores (that of the corpus) and
the way from places to passages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from searchrl.contracts import Passage
from searchrl_retrieval.dense.encoders import Encoder, Vectors
from searchrl_retrieval.dense.vectors import FaissVectors, Found
from searchrl_retrieval.index.passages import PassageStore
from searchrl_retrieval.index.places import find_stored

_SPARE = 8
"""Passages that are asked for beyond k, so that equal scores at the end keep their order."""

_DIGITS = 6
"""Of a score. What is beyond differs with the number of queries that are asked together."""


class VectorStore(Protocol):
    """Searches vectors: FAISS or Chroma."""

    def __len__(self) -> int:
        """How many vectors there are."""

    def search(self, queries: Vectors, k: int) -> Found:
        """The best `k` (at least 1) for every row of `queries` [B, D]."""


class VectorRetriever:
    """Passages by the inner product of their vectors with that of the query.

    A search for nothing but white space, or for tokens without a vector, finds nothing.
    Safe to use from several threads.
    """

    def __init__(self, passages: Sequence[Passage], encoder: Encoder, vectors: VectorStore) -> None:
        self.passages = passages
        self.encoder = encoder
        self.vectors = vectors
        self._last: tuple[tuple[str, ...], Vectors] | None = None

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return at most `k` passages per query, best first, equal scores in corpus order."""
        found: list[list[Passage]] = [[] for _ in queries]
        if k <= 0 or not len(self.vectors):
            return found
        rows, asked = self._encode(queries)
        if not asked:
            return found
        results = self.vectors.search(rows, min(k + _SPARE, len(self.vectors)))
        for place, scores, places in zip(asked, *results, strict=True):
            found[place] = self._read(scores, places)[:k]
        return found

    def _encode(self, queries: Sequence[str]) -> tuple[Vectors, list[int]]:
        """Vectors of the queries in which there is something, and which queries these are."""
        asked = [place for place, query in enumerate(queries) if query.strip()]
        texts = tuple(queries[place] for place in asked)
        if not texts:
            return np.zeros((0, self.encoder.dim), np.float32), []
        # An environment asks for the ranks of what it has just searched for.
        last = self._last
        if last is None or last[0] != texts:
            self._last = last = texts, self.encoder.encode_queries(texts)
        rows = last[1]
        filled = np.flatnonzero(rows.any(axis=1))
        return rows[filled], [asked[row] for row in filled.tolist()]

    def _read(self, scores: NDArray[Any], places: NDArray[Any]) -> list[Passage]:
        scores, places = _rounded(scores[places >= 0]), places[places >= 0]
        order = np.lexsort((places, -scores))
        pairs = zip(scores[order].tolist(), places[order].tolist(), strict=True)
        return [replace(self.passages[place], score=score) for score, place in pairs]


class StoredVectorRetriever(VectorRetriever):
    """The same with the passages of an index, which can be asked for by id."""

    passages: PassageStore

    def stored(self, ids: Sequence[str]) -> list[Passage | None]:
        """The passages of these ids; see `places.find_stored`."""
        return find_stored(self.passages, ids)


class FlatVectorRetriever(StoredVectorRetriever):
    """The same where every vector is compared, so that every passage has a rank.

    A graph, compressed vectors and Chroma look at some vectors only, and can tell none.
    """

    vectors: FaissVectors

    def ranks(self, queries: Sequence[str], ids: Sequence[str]) -> list[dict[str, int | None]]:
        """The rank of each of these passages per query, from 1; None if it is not found.

        Costs one pass over all vectors per query, as a search does.
        """
        ranks: list[dict[str, int | None]] = [dict.fromkeys(ids) for _ in queries]
        found = {name: self.passages.find(name) for name in ids}
        places = {name: place for name, place in found.items() if place is not None}
        if not places:
            return ranks
        rows, asked = self._encode(queries)
        for row, number in zip(rows, asked, strict=True):
            ranks[number] |= self._ranks_of(row, places)
        return ranks

    def _ranks_of(self, row: Vectors, places: dict[str, int]) -> dict[str, int | None]:
        scores, others = self.vectors.as_good_as(row, list(places.values()))
        scores = _rounded(scores)
        ranks: dict[str, int | None] = {}
        for name, place in places.items():
            own = scores[others == place][0]
            before = (scores > own) | ((scores == own) & (others < place))
            ranks[name] = 1 + int(np.count_nonzero(before))
        return ranks


def _rounded(scores: NDArray[Any]) -> NDArray[np.floating[Any]]:
    """Scores with the digits that do not depend on what else is asked; 0 has no sign."""
    return np.round(np.asarray(scores, dtype=np.float64), _DIGITS) + 0.0
