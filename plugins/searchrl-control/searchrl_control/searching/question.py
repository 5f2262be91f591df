"""Rankings of one collection, and those of one question over it, each computed once.

Equal scores are ordered as the corpus is, so that ids change nothing. The arithmetic of fusion is
that of `searchrl_retrieval.fusion`, on arrays: an episode does it many times. The numbers were
chosen on training questions (docs/log.md). `N` is the number of passages.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from searchrl_control.searching.library import Floats, Library, Query

Places = NDArray[np.int64]
"""Places of passages in the corpus, from 0."""

DEPTH = 100
"""Passages of a ranking that get points when two are fused."""

VECTOR_WEIGHT = 0.3
"""Weight of the vectors beside the words in a fused search."""

PIVOTS = 3
"""Passages whose links are followed."""

LINK_WEIGHT = 0.3
"""Weight of the titles that the first passages name."""

HOP_WEIGHT = 0.6
"""Weight of the titles that kept passages name: these were chosen, so they count more."""


class Found(NamedTuple):
    """The result of a search: `scores_N`, and the passages of its ranking, as `is_in_N`."""

    scores_N: Floats
    is_in_N: NDArray[np.bool_]

    def first(self, k: int) -> Places:
        """The places of the at most `k` best passages, best first; equals in corpus order."""
        places = np.flatnonzero(self.is_in_N)
        if len(places) > k:
            scores = self.scores_N[places]
            # All that equal the last one stay, so that the corpus decides between them.
            places = places[scores >= np.partition(scores, -k)[-k]]
        return places[np.argsort(-self.scores_N[places], kind="stable")[:k]].astype(np.int64)


def points(found: Found, depth: int = DEPTH) -> Found:
    """The first `depth` passages with min-max points (Lee 1997): the first has 1, the last 0.

    All others have 0 and are out of the ranking. If all scores are equal, all points are 1.
    """
    places = found.first(depth)
    given = np.zeros(len(found.scores_N), dtype=np.float32)
    is_in = np.zeros(len(found.scores_N), dtype=np.bool_)
    if len(places):
        scores = found.scores_N[places]
        span = scores[0] - scores[-1]
        given[places] = (scores - scores[-1]) / span if span > 0 else 1.0
        is_in[places] = True
    return Found(given, is_in)


def fuse(first: Found, second: Found, weight: float) -> Found:
    """The weighted mean of the points of two rankings; `weight` is that of the second."""
    one, other = points(first), points(second)
    scores = ((1 - weight) * one.scores_N + weight * other.scores_N).astype(np.float32)
    return Found(scores, one.is_in_N | other.is_in_N)


class Question:
    """The rankings of one question.

    `itself` is the place of a passage that is this question, as in ArguAna; it is never found.
    `search` is what the single pass does: `bm25s`, `dense` or `hybrid`.
    """

    def __init__(
        self, library: Library, text: str, itself: int | None = None, search: str = "bm25s"
    ) -> None:
        self.library, self.text, self.itself, self.search = library, text, itself, search
        self.query = library.terms.query(text)
        self._rests: dict[int, Floats] = {}

    @cached_property
    def vector_D(self) -> Floats:
        """The embedding of the question."""
        return np.asarray(self.library.encoder.encode_queries([self.text])[0], dtype=np.float32)

    @property
    def single_pass(self) -> Found:
        """The result of the first Search of an episode."""
        if self.search == "bm25s":
            return self.words
        return self.similar if self.search == "dense" else self.fused

    @cached_property
    def words(self) -> Found:
        """BM25 of the question."""
        return self.search_words(self.query)

    @cached_property
    def similar(self) -> Found:
        """By vectors alone: every passage is found."""
        scores = np.asarray(self.library.vectors_ND @ self.vector_D, dtype=np.float32)
        is_in = np.ones(len(scores), dtype=np.bool_)
        if self.itself is not None:
            is_in[self.itself] = False
        return Found(scores, is_in)

    @cached_property
    def fused(self) -> Found:
        """Words and vectors, as points."""
        return self.with_vectors(self.query)

    @cached_property
    def followed(self) -> Found:
        """The fused ranking, half of it for what its first passages leave open, with links."""
        return self.follow(self.fused.first(PIVOTS).tolist(), LINK_WEIGHT)

    def search_words(self, query: Query) -> Found:
        """BM25 of a query whose terms have weights; passages without any of them are not found."""
        scores = self.library.terms.score(query)
        if self.itself is not None:
            scores[self.itself] = 0
        return Found(scores, scores > 0)

    def with_vectors(self, query: Query) -> Found:
        """BM25 of a query, fused with the vectors of the question."""
        words = self.words if query is self.query else self.search_words(query)
        return points(fuse(words, self.similar, VECTOR_WEIGHT))

    def follow(self, places: list[int], weight: float) -> Found:
        """Half the fused ranking, half a search for the rest of the question, and named titles.

        The rest is the mean over these passages. A title gets the square of its share. A passage
        with points of one of the three is found.
        """
        fused = self.fused
        zeros = np.zeros_like(fused.scores_N)
        rests = [self._rest(place) for place in places]
        left = 0.5 * np.asarray(np.mean(rests, axis=0) if places else zeros, dtype=np.float32)
        best = np.maximum.reduce([self.library.links(place) for place in places] or [zeros])
        named = (weight * best * best).astype(np.float32)
        if self.itself is not None:
            named[self.itself] = 0
        is_in = fused.is_in_N | (left > 0) | (named > 0)
        return Found(0.5 * fused.scores_N + left + named, is_in)

    def _rest(self, place: int) -> Floats:
        if place not in self._rests:
            query = self.library.residual(self.query, place)
            self._rests[place] = points(self.search_words(query)).scores_N
        return self._rests[place]
