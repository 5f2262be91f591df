"""Queries that are changed by what the collection holds: RM3, and fewer words with neighbours.

Owns both formulas. RM3 (Abdul-Jaleel et al. 2004, "UMass at TREC 2004"; Lavrenko and Croft 2001):

    P(t | R) = sum over d of P(t | d) * s(d) / sum of s       of the first passages of a ranking
    weight   = original * P(t | query) + (1 - original) * P(t | R)     of the best terms of P(t | R)

Terms that stand in over a tenth of the passages get no weight of P(t | R), as in Anserini.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from searchrl_retrieval.dense.encoders import Encoder

from searchrl_control.searchers.ranking import Scores
from searchrl_control.searchers.terms import Query, TermIndex

_FREQUENT = 0.1
"""A term in more than this share of the passages says nothing of a query."""

_LEAST_FOUND = 3
_LEAST_LETTERS = 3
"""A neighbour stands in at least so many passages and has at least so many letters."""

_LEAST_NEAR = 0.45
"""A neighbour is at least so similar."""

_BATCH = 256


class Feedback(NamedTuple):
    """The numbers of RM3: passages and terms that are looked at, and the weight of the query."""

    passages: int = 5
    terms: int = 20
    original: float = 0.7


def rm3(
    index: TermIndex,
    query: Query,
    places: Sequence[int],
    scores: Sequence[float],
    how: Feedback | None = None,
) -> dict[int, float]:
    """The query with the terms of the first passages of a ranking; itself if there are none.

    Args:
        index: the collection.
        query: what was searched.
        places: of the passages found, best first.
        scores: of these passages; those not above 0 count as equal.
        how: the numbers.
    """
    how = how or Feedback()
    first = np.asarray(places[: how.passages], dtype=np.int64)
    if not len(first) or not query:
        return dict(query)
    of_first: Scores = np.asarray(scores[: how.passages], dtype=np.float32)
    if of_first.min() <= 0:
        of_first = np.ones(len(first), dtype=np.float32)
    weights = of_first / of_first.sum() / np.maximum(index.lengths_N[first], 1)
    model = np.asarray(index.counts_NV[first].T @ weights).ravel()
    model[index.found_in_V > _FREQUENT * index.num_passages] = 0
    best = np.argsort(-model, kind="stable")[: how.terms]
    best = best[model[best] > 0]
    of_all = sum(query.values())
    changed = {number: how.original * weight / of_all for number, weight in query.items()}
    of_best = float(model[best].sum())
    for number in best.tolist():
        more = (1 - how.original) * float(model[number]) / of_best
        changed[number] = changed.get(number, 0.0) + more
    return changed


class Neighbours:
    """The terms of a collection that an encoder places near a term. Found when they are asked for.

    Args:
        index: the collection.
        encoder: of texts; stems are encoded as if they were words.
        keep: how many neighbours a term has at most.
    """

    def __init__(self, index: TermIndex, encoder: Encoder, keep: int = 4) -> None:
        self._index = index
        self._encoder = encoder
        self._keep = keep
        names = index.names
        self._numbers = np.array(
            [
                number
                for number in np.flatnonzero(index.found_in_V >= _LEAST_FOUND).tolist()
                if len(names[number]) >= _LEAST_LETTERS
            ],
            dtype=np.int64,
        )
        self._vectors = encoder.encode_queries([names[number] for number in self._numbers])
        self._known: dict[int, tuple[tuple[int, float], ...]] = {}

    def of(self, number: int) -> tuple[tuple[int, float], ...]:
        """The nearest terms of a term with their similarity, nearest first; never itself."""
        if number not in self._known:
            self._known[number] = self._find(number)
        return self._known[number]

    def _find(self, number: int) -> tuple[tuple[int, float], ...]:
        if not len(self._numbers):
            return ()
        vector = self._encoder.encode_queries([self._index.names[number]])[0]
        near = self._vectors @ vector
        best = np.argsort(-near, kind="stable")[: self._keep + 1]
        found = [(int(self._numbers[at]), float(near[at])) for at in best]
        kept = [(other, how) for other, how in found if other != number and how > _LEAST_NEAR]
        return tuple(kept[: self._keep])


def broaden(
    index: TermIndex,
    query: Query,
    neighbours: Neighbours,
    *,
    keep: float = 0.67,
    num_near: int = 2,
    weight: float = 0.4,
) -> dict[int, float]:
    """The query without its terms of lowest IDF, with neighbours of those that are left.

    Args:
        index: the collection.
        query: what was searched.
        neighbours: of its terms.
        keep: the share of the terms that is left, at least two.
        num_near: neighbours of each term.
        weight: of a neighbour, times its similarity.
    """
    by_value = sorted(query, key=lambda number: -index.idf_V[number])
    left = by_value[: max(2, math.ceil(keep * len(by_value)))]
    changed = {number: float(query[number]) for number in left}
    for number in left:
        for other, near in neighbours.of(number)[:num_near]:
            changed[other] = max(changed.get(other, 0.0), weight * near)
    return changed
