"""One question over a library: its rankings, each computed once.

Owns the searches that need nothing but the question: by words, by vectors, fused, followed, and
what follows from one passage. The numbers were chosen on training questions (docs/log.md).
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from searchrl_control.searchers.library import Library
from searchrl_control.searchers.ranking import (
    DEPTH,
    Found,
    Scores,
    by_vectors,
    by_words,
    fuse,
    points,
    raise_by,
)
from searchrl_control.searchers.terms import Query

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

    Args:
        library: what is searched.
        text: the question.
        itself: the place of a passage that is this question, as in ArguAna; it is never found.
    """

    def __init__(self, library: Library, text: str, itself: int | None = None) -> None:
        self.library = library
        self.text = text
        self.itself = itself
        self.query = library.terms.query(text)
        self.vector_D = library.vectors.embed(text)
        self._rests: dict[int, Scores] = {}
        self._hops: dict[tuple[int, ...], Found] = {}

    @cached_property
    def words(self) -> Found:
        """The single pass: BM25 of the question."""
        return self.search_words(self.query)

    @cached_property
    def similar(self) -> Found:
        """By vectors alone."""
        found = by_vectors(self.library.vectors.score(self.vector_D))
        if self.itself is not None:
            found.is_in_N[self.itself] = False
        return found

    @cached_property
    def fused(self) -> Found:
        """Words and vectors, as points."""
        return self.with_vectors(self.query)

    @cached_property
    def followed(self) -> Found:
        """The fused ranking, half of it for what its first passages leave open, with links."""
        return self.follow(self.fused, self.fused.first(PIVOTS).tolist())

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

    def linked(self, places: list[int], weight: float = LINK_WEIGHT) -> Scores:
        """More points [N] for passages whose titles some passages name: the square of the share."""
        covered = [self.library.links.covered(place) for place in places]
        best = np.maximum.reduce(covered) if covered else np.zeros(len(self.words.scores_N))
        more = (weight * best * best).astype(np.float32)
        if self.itself is not None:
            more[self.itself] = 0
        return more

    def rest_of(self, places: list[int]) -> Scores:
        """Points [N] of searches for what each of these passages leaves open: their mean."""
        found = [self._rest(place) for place in places]
        if not found:
            return np.zeros(len(self.words.scores_N), dtype=np.float32)
        return np.asarray(np.mean(found, axis=0), dtype=np.float32)

    def follow(self, found: Found, places: list[int], weight: float = LINK_WEIGHT) -> Found:
        """Half a ranking, half what these passages leave open, and the titles that they name."""
        base = points(found)
        half = Found(0.5 * base.scores_N, base.is_in_N)
        rest = raise_by(half, 0.5 * self.rest_of(places))
        return raise_by(rest, self.linked(places, weight))

    def hop(self, kept: tuple[int, ...]) -> Found:
        """The fused ranking, half of it for what these kept passages leave open, with links."""
        if kept not in self._hops:
            self._hops[kept] = self.follow(self.fused, list(kept), HOP_WEIGHT)
        return self._hops[kept]

    def _rest(self, place: int) -> Scores:
        if place not in self._rests:
            query = self.library.links.residual(self.query, place)
            self._rests[place] = points(self.search_words(query), DEPTH).scores_N
        return self._rests[place]
