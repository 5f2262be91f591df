"""What is observed of lists and candidates: signs of how well a search went, without judgements.

Owns the named features of a query, of a list, and of the next passage that a source of the set
`heads` would keep. Sources: score gaps and their spread (Shtok et al. 2012, NQC), clarity
(Cronen-Townsend et al. 2002), IDF statistics (He and Ounis 2004), coherence of the first passages,
overlap between lists, and how far titles are named by what was found. All are bounded by `BOUND`.
`N` passages, `S` sources.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from searchrl_control.environment.actions import Action
from searchrl_control.searchers.question import Question
from searchrl_control.searchers.ranking import Found, Places

if TYPE_CHECKING:
    from searchrl_control.environment.games import HeadGame


Features = NDArray[np.float32]

BOUND = 10.0
"""No feature is beyond it, either way."""

QUERY_FEATURES = ("terms", "idf_mean", "idf_max", "idf_min", "idf_spread", "idf_sum")

LIST_FEATURES = (
    *("gap_second", "gap_last", "spread", "first_three"),
    *("words_first", "words_three", "words_mean"),
    *("share_first", "share_three", "share_least"),
    *("similar_first", "similar_three", "similar_mean", "similar_best"),
    "coherence",
    *("as_words", "as_vectors", "as_before", "is_other_first", "as_before_three"),
    *("named_best", "named_new", "named_new_three", "num_named", "named_found"),
    *("title_first", "title_second", "title_third"),
    "clarity",
)

SHOWN = 10
_NAMED = 0.8
"""A title counts as named if so much of its IDF stands in a passage."""


def query_features(question: Question) -> Features:
    """The features [6] of a question's terms, as `QUERY_FEATURES` names them."""
    idf = question.library.terms.idf_V[list(question.query)] if question.query else np.zeros(1)
    return bounded(
        [
            len(question.query) / 10,
            float(np.mean(idf)) / 10,
            float(np.max(idf)) / 10,
            float(np.min(idf)) / 10,
            float(np.std(idf)) / 5,
            float(np.log1p(np.sum(idf))) / 5,
        ]
    )


class ListFeatures:
    """The features of the lists of one question."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._terms = question.library.terms
        self._numbers = np.array(list(question.query), dtype=np.int64)
        self._idf = self._terms.idf_V[self._numbers]
        self._idf_sum = max(float(self._idf.sum()), 1e-6)
        self._as_words = set(question.words.first(SHOWN).tolist())
        self._as_vectors = set(question.similar.first(SHOWN).tolist())

    def of(self, found: Found, before: Found | None = None) -> Features:
        """The features [29] of a list, as `LIST_FEATURES` names them; zeros if it is empty."""
        places = found.first(SHOWN)
        if not len(places):
            return np.zeros(len(LIST_FEATURES), dtype=np.float32)
        values = [
            *self._gaps(found.scores_N[places]),
            *self._by_words(places),
            *self._by_vectors(places),
            *self._overlaps(places, before),
            *self._named(places),
            *([self.title_share(int(place)) for place in places[:3]] + [0.0] * 3)[:3],
            self._clarity(places),
        ]
        return bounded(values)

    def share_of(self, place: int) -> NDArray[np.bool_]:
        """Which of the question's terms stand in a passage, in the order of the question."""
        return np.isin(self._numbers, self._terms.terms_in(place))

    def idf_share(self, is_in: NDArray[np.bool_]) -> float:
        """The share of the question's IDF that some of its terms have."""
        return float(self._idf[is_in].sum()) / self._idf_sum

    def title_share(self, place: int) -> float:
        """The share of a title's IDF that stands in the question."""
        terms = self._terms.terms_in_title(place)
        idf = self._terms.idf_V[terms]
        return float(idf[np.isin(terms, self._numbers)].sum()) / max(float(idf.sum()), 1e-6)

    def words_of(self, place: int) -> float:
        """The BM25 score of a passage, over the sum of the question's IDF."""
        return float(self._question.words.scores_N[place]) / self._idf_sum

    def _gaps(self, scores: Features) -> list[float]:
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
        vectors = self._question.library.vectors.vectors_ND[places[:5]]
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
        shown = places.tolist()
        now = set(shown)
        with_words = len(now & self._as_words) / SHOWN
        with_vectors = len(now & self._as_vectors) / SHOWN
        if before is None or not len(then := before.first(SHOWN).tolist()):
            return [with_words, with_vectors, 1.0, 0.0, 1.0]
        return [
            with_words,
            with_vectors,
            len(now & set(then)) / SHOWN,
            float(shown[0] != then[0]),
            len(set(shown[:3]) & set(then[:3])) / 3,
        ]

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
        found = counts.nonzero()[0]
        shares = counts[found] / counts.sum()
        return float((shares * np.log(shares / self._terms.share_V[found])).sum())


def bounded(values: Sequence[float]) -> Features:
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
"""Passages of each source that are looked at."""

CANDIDATE_FEATURES = (
    *(f"points_{action.lower()}" for action in SOURCES),
    *(f"rank_{action.lower()}" for action in SOURCES),
    *("words", "similar", "similar_gap", "title_share", "source_gap", "votes"),
    *("adds", "named", "named_by_it", "left", "near_kept"),
)

Kept = tuple[int, ...]
"""The places of the passages that were kept, in their order."""


def tell_candidates(sources: HeadGame, kept: Kept) -> Features:
    """The features [S, C] of the candidates; a row of zeros for a source without one."""
    nexts = {action: sources.next_of(action, kept, 2) for action in SOURCES}
    # Follow stands for Hop until a passage is kept: the scorer sees no hole there.
    seen = [a if kept or a is not Action.HOP else Action.FOLLOW for a in SOURCES]
    lists = [sources.found(action, kept) or sources.question.words for action in seen]
    ranks = [{p: rank for rank, p in enumerate(sources.order(action, kept))} for action in seen]
    votes = Counter(places[0] for places in nexts.values() if places)
    told = np.zeros((len(SOURCES), len(CANDIDATE_FEATURES)), dtype=np.float32)
    similar = sources.question.similar.scores_N
    for row, places in enumerate(nexts.values()):
        if places:
            place = places[0]
            others = lists[row].scores_N[list(places)]
            told[row] = bounded(
                [
                    *(_relative(one.scores_N, place) for one in lists),
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
    return told


def _beside_kept(sources: HeadGame, place: int, kept: Kept) -> list[float]:
    """What a passage adds to those that are kept, and how they name each other."""
    library, features = sources.question.library, sources.features
    covers = features.share_of(place)
    covered = np.zeros(len(covers), dtype=np.bool_)
    for one in kept:
        covered |= features.share_of(one)
    named = named_by_it = near = 0.0
    if kept:
        named = max(float(library.links(one)[place]) for one in kept)
        named_by_it = max(float(library.links(place)[one]) for one in kept)
        vectors = library.vectors.vectors_ND
        near = float(np.max(vectors[list(kept)] @ vectors[place]))
    adds, left = features.idf_share(covers & ~covered), features.idf_share(~covered)
    return [adds, named, named_by_it, left, near]


def _relative(scores_N: Features, place: int) -> float:
    """A score over the highest one: comparable between words, vectors and points."""
    highest = float(scores_N.max())
    return float(scores_N[place]) / highest if highest > 0 else 0.0
