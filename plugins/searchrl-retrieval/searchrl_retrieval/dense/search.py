"""The retriever over vectors: `dense` and `static` answer with it, from FAISS or from Chroma.

Owns what a query without words finds (nothing), the order of equal scores (that of the corpus) and
the way from places to passages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from searchrl.contracts import Passage
from searchrl_retrieval.dense.chroma import ChromaVectors
from searchrl_retrieval.dense.encoders import Encoder, Vectors
from searchrl_retrieval.dense.vectors import FaissVectors
from searchrl_retrieval.index.passages import PassageStore, Stored, find_ranks

_SPARE = 8
"""Passages that are asked for beyond k, so that equal scores at the end keep their order."""

_DIGITS = 6
"""Of a score. What is beyond differs with the number of queries that are asked together."""


class VectorRetriever(Stored):
    """Passages by the inner product of their vectors with that of the query.

    A search for nothing but white space, or for tokens without a vector, finds nothing.
    Safe to use from several threads.
    """

    def __init__(
        self, passages: PassageStore, encoder: Encoder, vectors: FaissVectors | ChromaVectors
    ) -> None:
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
        for number, scores, places in zip(asked, *results, strict=True):
            scores, places = _rounded(scores[places >= 0]), places[places >= 0]
            order = np.lexsort((places, -scores))[:k]
            pairs = zip(scores[order].tolist(), places[order].tolist(), strict=True)
            found[number] = [replace(self.passages[place], score=score) for score, place in pairs]
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


class FlatVectorRetriever(VectorRetriever):
    """The same where every vector is compared, so that every passage has a rank.

    A graph, compressed vectors and Chroma look at some vectors only, and can tell none.
    """

    vectors: FaissVectors

    def ranks(self, queries: Sequence[str], ids: Sequence[str]) -> list[dict[str, int | None]]:
        """The rank of each of these passages per query, from 1; None if it is not found.

        Costs one pass over all vectors per query, as a search does.
        """
        ranks: list[dict[str, int | None]] = [dict.fromkeys(ids) for _ in queries]
        places = self.places(ids)
        if any(place is not None for place in places.values()):
            for row, number in zip(*self._encode(queries), strict=True):
                ranks[number] = find_ranks(_rounded(self.vectors.score(row)), places)
        return ranks


def _rounded(scores: NDArray[Any]) -> NDArray[np.floating[Any]]:
    """Scores with the digits that do not depend on what else is asked; 0 has no sign."""
    return np.round(np.asarray(scores, dtype=np.float64), _DIGITS) + 0.0
