"""Reformulators narrow and broaden a search: the contract, and the one that needs no model.

The classical one narrows by RM3 and broadens by neighbours of the best terms. RM3 (Abdul-Jaleel et
al. 2004, "UMass at TREC 2004"; Lavrenko and Croft 2001):

    P(t | R) = sum over d of P(t | d) * s(d) / sum of s       of the first passages of a ranking
    weight   = original * P(t | query) + (1 - original) * P(t | R)     of the best terms of P(t | R)

Terms that stand in over a tenth of the passages get no weight of P(t | R), as in Anserini. Keeping
only the terms of highest IDF, which looks like a natural Narrow, loses .03 to .15 nDCG@10 on four
collections: it is not here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Protocol

import numpy as np

from searchrl.contracts import Passage
from searchrl_control.searching.library import Library, Query


@dataclass(frozen=True, slots=True)
class Asked:
    """A search and its result.

    `weights` are its index terms; `passages` are the first of the agent's list with its scores.
    """

    question: str
    weights: Mapping[str, float]
    passages: tuple[Passage, ...] = ()


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The search to make instead.

    `weights`, if there are any, are index terms and are searched as they are. Otherwise `text` is
    split into terms.
    """

    text: str
    weights: Mapping[str, float] = field(default_factory=dict)


class Reformulator(Protocol):
    """Narrows and broadens searches. Called by several threads at once."""

    def narrow(self, asked: Asked) -> Rewrite:
        """Return a search for less: nearer to what was found. Raises on failure."""

    def broaden(self, asked: Asked) -> Rewrite:
        """Return a search for more: other words for the same. Raises on failure."""


def as_shown(passage: Passage) -> str:
    """A passage as a model reads it: its title, if it has one, and its text."""
    return f"{passage.title}. {passage.text}" if passage.title else passage.text


_FREQUENT = 0.1
"""The share of the passages from which a term says nothing."""

FEEDBACK, EXPANSION, ORIGINAL = 5, 20, 0.7
"""Passages and terms that RM3 reads, and the weight of the query."""

_LEAST_FOUND, _LEAST_LETTERS, _LEAST_NEAR = 3, 3, 0.45
"""The least passages, letters and similarity of a neighbour."""

_KEEP, _NUM_NEAR, _NEAR_WEIGHT = 0.67, 2, 0.4
"""The share of the terms that a broader search keeps, neighbours of each, and the weight of one,
times its similarity."""


class Neighbours:
    """The terms of a collection that its encoder places near a term; stems count as words."""

    def __init__(self, library: Library) -> None:
        self._names, self._encoder = library.terms.names, library.encoder
        often = np.flatnonzero(library.terms.found_in_V >= _LEAST_FOUND).tolist()
        self._numbers = [one for one in often if len(self._names[one]) >= _LEAST_LETTERS]
        self._vectors = self._encoder.encode_queries([self._names[one] for one in self._numbers])
        self.of = cache(self._of)
        """The nearest terms of a term with their similarity, nearest first; never itself."""

    def _of(self, number: int) -> list[tuple[int, float]]:
        if not self._numbers:
            return []
        near = self._vectors @ self._encoder.encode_queries([self._names[number]])[0]
        best = np.argsort(-near, kind="stable")[: _NUM_NEAR + 1]
        pairs = [(self._numbers[at], float(near[at])) for at in best]
        kept = [(other, how) for other, how in pairs if other != number and how > _LEAST_NEAR]
        return kept[:_NUM_NEAR]


class Classical:
    """RM3 and neighbours over one library."""

    def __init__(self, library: Library) -> None:
        self._library, self._terms = library, library.terms
        self._neighbours = Neighbours(library)

    def narrow(self, asked: Asked) -> Rewrite:
        """RM3 of the first passages; scores that are not above 0 count as equal."""
        terms, query = self._terms, self._terms.query_of(asked.weights)
        shown = asked.passages[:FEEDBACK]
        if not shown or not query:
            return self._tell(query)
        scores = np.array([one.score for one in shown], dtype=np.float32)
        if scores.min() <= 0:
            scores = np.ones(len(shown), dtype=np.float32)
        first = [self._library.place_of[one.id] for one in shown]
        weights = scores / scores.sum() / np.maximum(terms.lengths_N[first], 1)
        model = np.asarray(terms.counts_NV[first].T @ weights).ravel()
        model[terms.found_in_V > _FREQUENT * len(terms.lengths_N)] = 0
        best = np.argsort(-model, kind="stable")[:EXPANSION]
        best = best[model[best] > 0]
        of_all, of_best = sum(query.values()), float(model[best].sum())
        changed = {number: ORIGINAL * weight / of_all for number, weight in query.items()}
        for number in best.tolist():
            more = (1 - ORIGINAL) * float(model[number]) / of_best
            changed[number] = changed.get(number, 0.0) + more
        return self._tell(changed)

    def broaden(self, asked: Asked) -> Rewrite:
        """The query without its terms of lowest IDF, with neighbours of those that are left."""
        query = self._terms.query_of(asked.weights)
        by_value = sorted(query, key=lambda number: -self._terms.idf_V[number])
        left = by_value[: math.ceil(_KEEP * len(by_value))]
        changed = {number: query[number] for number in left}
        for number in left:
            for other, near in self._neighbours.of(number):
                changed[other] = max(changed.get(other, 0.0), _NEAR_WEIGHT * near)
        return self._tell(changed)

    def _tell(self, query: Query) -> Rewrite:
        """A search whose text has its terms, the heaviest first."""
        weights = self._terms.weights_of(query)
        return Rewrite(" ".join(sorted(weights, key=lambda term: -weights[term])), weights)
