"""Features of a query, of a list, and of the next passage that a source of `heads` would keep.

They are signs of the quality of a search, without judgements: score gaps and their spread (Shtok et
al. 2012, NQC), clarity (Cronen-Townsend et al. 2002), IDF statistics (He and Ounis 2004), coherence
of the first passages, overlap between lists, and titles that passages name. All are bounded by
`BOUND`. `N` passages, `S` sources.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from searchrl_control.environment.measures import CUTOFF
from searchrl_control.environment.settings import Action
from searchrl_control.searching.library import Floats
from searchrl_control.searching.question import Found, Places, Question

if TYPE_CHECKING:
    from searchrl_control.environment.games import HeadGame

BOUND = 10.0
"""Bound of every feature, either way."""

Signs = Mapping[str, tuple[float, float]]
"""The names of signs in their order -> the usual mean and standard deviation of each.

One table for all collections, as images have one for all pictures: if each collection had its own,
a network could not tell collections apart by their signs. Measured over all positions of the
training questions of SciFact, HotpotQA, MuSiQue and 2WikiMultihopQA, each of which counts alike.
"""

QUERY_FEATURES: Signs = {
    "terms": (0.99, 0.34),
    "idf_mean": (0.40, 0.07),
    "idf_max": (0.70, 0.11),
    "idf_min": (0.16, 0.06),
    "idf_spread": (0.35, 0.09),
    "idf_sum": (0.73, 0.07),
}

LIST_FEATURES: Signs = {
    "gap_second": (0.27, 0.20),
    "gap_last": (0.63, 0.17),
    "spread": (0.20, 0.06),
    "first_three": (0.78, 0.13),
    "words_first": (0.45, 0.14),
    "words_three": (0.36, 0.11),
    "words_mean": (0.26, 0.10),
    "share_first": (0.59, 0.18),
    "share_three": (0.79, 0.15),
    "share_least": (0.37, 0.14),
    "similar_first": (0.56, 0.14),
    "similar_three": (0.48, 0.13),
    "similar_mean": (0.40, 0.12),
    "similar_best": (0.59, 0.13),
    "coherence": (0.41, 0.17),
    "as_words": (0.84, 0.18),
    "as_vectors": (0.48, 0.24),
    "as_before": (0.83, 0.19),
    "is_other_first": (0.09, 0.29),
    "as_before_three": (0.83, 0.22),
    "named_best": (0.95, 0.11),
    "named_new": (0.87, 0.17),
    "named_new_three": (0.79, 0.17),
    "num_named": (1.30, 0.80),
    "named_found": (0.80, 0.25),
    "title_first": (0.70, 0.38),
    "title_second": (0.47, 0.38),
    "title_third": (0.33, 0.32),
    "clarity": (3.13, 0.62),
}

_NAMED = 0.8
"""The share of a title's IDF in a passage from which it counts as named."""


def query_features(question: Question) -> Floats:
    """`QUERY_FEATURES` [6] of a question's terms."""
    idf = question.library.terms.idf_V[list(question.query)] if question.query else np.zeros(1)
    tens = (float(of(idf)) / 10 for of in (np.mean, np.max, np.min))
    fifths = float(np.std(idf)) / 5, float(np.log1p(np.sum(idf))) / 5
    return bounded([len(question.query) / 10, *tens, *fifths])


class ListFeatures:
    """The features of the lists of one question."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._terms = question.library.terms
        self._numbers = np.array(list(question.query), dtype=np.int64)
        self._idf = self._terms.idf_V[self._numbers]
        self._idf_sum = max(float(self._idf.sum()), 1e-6)
        self._as_words = set(question.words.first(CUTOFF).tolist())
        self._as_vectors = set(question.similar.first(CUTOFF).tolist())

    def of(self, found: Found, before: Found | None = None) -> Floats:
        """`LIST_FEATURES` [29] of a list; zeros if it is empty."""
        places = found.first(CUTOFF)
        if not len(places):
            return np.zeros(len(LIST_FEATURES), dtype=np.float32)
        return bounded(
            [
                *self._gaps(found.scores_N[places]),
                *self._by_words(places),
                *self._by_vectors(places),
                *self._overlaps(places, before),
                *self._named(places),
                *([self.title_share(int(place)) for place in places[:3]] + [0.0] * 3)[:3],
                self._clarity(places),
            ]
        )

    def share_of(self, place: int) -> NDArray[np.bool_]:
        """For each term of the question: does it stand in a passage?"""
        return np.isin(self._numbers, self._terms.terms_in(place))

    def idf_share(self, is_in: NDArray[np.bool_]) -> float:
        """The share of the question's IDF that some of its terms have."""
        return float(self._idf[is_in].sum()) / self._idf_sum

    def title_share(self, place: int) -> float:
        """The share of a title's IDF that stands in the question."""
        terms = self._terms.terms_in(place, is_title=True)
        idf = self._terms.idf_V[terms]
        return float(idf[np.isin(terms, self._numbers)].sum()) / max(float(idf.sum()), 1e-6)

    def words_of(self, place: int) -> float:
        """The BM25 score of a passage, over the sum of the question's IDF."""
        return float(self._question.words.scores_N[place]) / self._idf_sum

    def _gaps(self, scores: Floats) -> list[float]:
        highest = max(float(scores[0]), 1e-6)
        second = float(scores[min(1, len(scores) - 1)])
        return [
            (float(scores[0]) - second) / highest,
            (float(scores[0]) - float(scores[-1])) / highest,
            float(np.std(scores / highest)),
            float(np.mean(scores[:3])) / highest,
        ]

    def _by_words(self, places: Places) -> list[float]:
        scores = self._question.words.scores_N[places] / self._idf_sum
        is_in = np.array([self.share_of(int(place)) for place in places[:3]])
        shares = [self.idf_share(one) for one in is_in]
        return [
            float(scores[0]),
            float(np.mean(scores[:3])),
            float(np.mean(scores)),
            shares[0],
            self.idf_share(np.asarray(is_in.any(axis=0), dtype=np.bool_)),
            min(shares),
        ]

    def _by_vectors(self, places: Places) -> list[float]:
        similar = self._question.similar.scores_N[places]
        vectors = self._question.library.vectors_ND[places[:5]]
        count = len(vectors)
        products = vectors @ vectors.T
        others = max(count * (count - 1), 1)
        return [
            float(similar[0]),
            float(np.mean(similar[:3])),
            float(np.mean(similar)),
            float(np.max(similar[:3])),
            float(products.sum() - np.trace(products)) / others,
        ]

    def _overlaps(self, places: Places, before: Found | None) -> list[float]:
        now = places.tolist()
        then = before.first(CUTOFF).tolist() if before is not None else []
        shared = [len({*now} & one) / CUTOFF for one in (self._as_words, self._as_vectors, {*then})]
        if not then:
            return [*shared[:2], 1.0, 0.0, 1.0]
        return [*shared, float(now[0] != then[0]), len({*now[:3]} & {*then[:3]}) / 3]

    def _named(self, places: Places) -> list[float]:
        covered = [self._question.library.links(int(place)) for place in places[:2]]
        best = np.maximum.reduce(covered)
        new = best.copy()
        new[places] = 0
        highest = np.sort(np.partition(new, -3)[-3:] if len(new) > 3 else new)
        return [
            float(best.max()),
            float(highest[-1]),
            float(highest.mean()),
            float(np.log1p(np.count_nonzero(best > _NAMED))),
            float(best[places].max()),
        ]

    def _clarity(self, places: Places) -> float:
        counts = np.asarray(self._terms.counts_NV[places[:5]].sum(axis=0)).ravel()
        terms = counts.nonzero()[0]
        shares = counts[terms] / counts.sum()
        return float((shares * np.log(shares / self._terms.share_V[terms])).sum())


def bounded(values: Sequence[float]) -> Floats:
    """Features as float32, none of them beyond `BOUND`."""
    return np.clip(np.asarray(values, dtype=np.float32), -BOUND, BOUND)


SOURCES = (
    Action.NARROW,
    Action.BROAD,
    Action.WORDS,
    Action.DENSE,
    Action.FUSE,
    Action.FOLLOW,
    Action.HOP,
)
"""The actions that search, in the order of their numbers."""

DEPTH = 60
"""Passages of each source that are read."""

CANDIDATE_FEATURES: Signs = {
    "points_narrow": (0.61, 0.30),
    "points_broad": (0.61, 0.30),
    "points_words": (0.68, 0.27),
    "points_dense": (0.75, 0.22),
    "points_fuse": (0.62, 0.30),
    "points_follow": (0.62, 0.28),
    "points_hop": (0.68, 0.29),
    "rank_narrow": (0.39, 0.28),
    "rank_broad": (0.38, 0.28),
    "rank_words": (0.38, 0.30),
    "rank_dense": (0.28, 0.30),
    "rank_fuse": (0.40, 0.28),
    "rank_follow": (0.37, 0.29),
    "rank_hop": (0.43, 0.35),
    "words": (0.29, 0.14),
    "similar": (0.44, 0.16),
    "similar_gap": (-0.14, 0.13),
    "title_share": (0.35, 0.35),
    "source_gap": (0.30, 0.85),
    "votes": (0.51, 0.28),
    "adds": (0.10, 0.16),
    "named": (0.42, 0.37),
    "named_by_it": (0.44, 0.37),
    "left": (0.32, 0.24),
    "near_kept": (0.49, 0.23),
}

Kept = tuple[int, ...]
"""The places of the passages that were kept, in their order."""


def tell_candidates(sources: HeadGame, kept: Kept) -> Floats:
    """The features [S, C] of the candidates; a row of zeros for a source without one."""
    nexts = {action: sources.next_of(action, kept, 2) for action in SOURCES}
    # Follow stands for Hop until a passage is kept: the scorer sees no hole there.
    seen = [a if kept or a is not Action.HOP else Action.FOLLOW for a in SOURCES]
    lists = [sources.found(action, kept) for action in seen]
    ranks = [{p: rank for rank, p in enumerate(sources.order(action, kept))} for action in seen]
    votes = Counter(places[0] for places in nexts.values() if places)
    values = np.zeros((len(SOURCES), len(CANDIDATE_FEATURES)), dtype=np.float32)
    similar = sources.question.similar.scores_N
    # Over the highest one, scores of words, vectors and points can be compared.
    highest = [(one, float(one.scores_N.max())) for one in lists]
    for row, places in enumerate(nexts.values()):
        if places:
            place = places[0]
            others = lists[row].scores_N[list(places)]
            values[row] = bounded(
                [
                    *(float(one.scores_N[place]) / top if top > 0 else 0.0 for one, top in highest),
                    *(1 / (1 + one.get(place, DEPTH)) for one in ranks),
                    sources.features.words_of(place),
                    float(similar[place]),
                    float(similar[place] - similar.max()),
                    sources.features.title_share(place),
                    float(others[0] - others[-1]),
                    votes[place] / len(SOURCES),
                    *_beside_kept(sources, place, kept),
                ]
            )
    return values


def _beside_kept(sources: HeadGame, place: int, kept: Kept) -> list[float]:
    """The gain of a passage over those that are kept, and titles that they name of each other."""
    library, features = sources.question.library, sources.features
    covers = features.share_of(place)
    covered = np.zeros(len(covers), dtype=np.bool_)
    for one in kept:
        covered |= features.share_of(one)
    named = named_by_it = near = 0.0
    if kept:
        named = max(float(library.links(one)[place]) for one in kept)
        named_by_it = max(float(library.links(place)[one]) for one in kept)
        near = float(np.max(library.vectors_ND[list(kept)] @ library.vectors_ND[place]))
    adds, left = features.idf_share(covers & ~covered), features.idf_share(~covered)
    return [adds, named, named_by_it, left, near]
