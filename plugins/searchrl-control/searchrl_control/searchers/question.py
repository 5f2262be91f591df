"""One question over a library: its rankings, each computed once.

Owns the searches that need nothing but the question: by words, by vectors, fused, followed, and
what follows from one passage. The numbers were chosen on training questions (docs/log.md).
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from searchrl_control.searchers.library import Library, Query, Vectors
from searchrl_control.searchers.ranking import (
    Found,
    Scores,
    by_words,
    fuse,
    points,
    raise_by,
)

VECTOR_WEIGHT = 0.3
"""Of the vectors beside the words in a fused search."""

PIVOTS = 3
"""Passages whose links are followed."""

LINK_WEIGHT = 0.3
"""Of the titles that the first passages name."""

HOP_WEIGHT = 0.6
"""Of the titles that kept passages name: they were chosen, so they count more than the first."""


class Question:
    """The rankings of one question.

    `itself` is the place of a passage that is this question, as in ArguAna; it is never found.
    """

    def __init__(self, library: Library, text: str, itself: int | None = None) -> None:
        self.library, self.text, self.itself = library, text, itself
        self.query = library.terms.query(text)
        self._rests: dict[int, Scores] = {}

    @cached_property
    def vector_D(self) -> Vectors:
        """The embedding of the question."""
        found = self.library.vectors.encoder.encode_queries([self.text])[0]
        return np.asarray(found, dtype=np.float32)

    @cached_property
    def words(self) -> Found:
        """The single pass: BM25 of the question."""
        return self.search_words(self.query)

    @cached_property
    def similar(self) -> Found:
        """By vectors alone: every passage is found."""
        scores = np.asarray(self.library.vectors.vectors_ND @ self.vector_D, dtype=np.float32)
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
        """BM25 of a query whose terms have weights."""
        scores = self.library.terms.score(query)
        if self.itself is not None:
            scores[self.itself] = 0
        return by_words(scores)

    def with_vectors(self, query: Query) -> Found:
        """BM25 of a query, fused with the vectors of the question."""
        found = self.words if query is self.query else self.search_words(query)
        return points(fuse(found, self.similar, VECTOR_WEIGHT))

    def follow(self, places: list[int], weight: float) -> Found:
        """Half the fused ranking, half a search for what is left, and the titles that are named.

        What is left is the mean over these passages. A title gets the square of its share.
        """
        found = self.fused
        zeros = np.zeros_like(found.scores_N)
        left = np.mean([self._rest(place) for place in places], axis=0) if places else zeros
        links = [self.library.links(place) for place in places]
        best = np.maximum.reduce(links) if links else zeros
        named = (weight * best * best).astype(np.float32)
        if self.itself is not None:
            named[self.itself] = 0
        half = Found(0.5 * found.scores_N, found.is_in_N)
        return raise_by(raise_by(half, 0.5 * np.asarray(left, dtype=np.float32)), named)

    def _rest(self, place: int) -> Scores:
        if place not in self._rests:
            query = self.library.residual(self.query, place)
            self._rests[place] = points(self.search_words(query)).scores_N
        return self._rests[place]
