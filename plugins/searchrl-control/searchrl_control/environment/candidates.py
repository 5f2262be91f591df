"""What the agent sees of each source in the set `heads`: the next passage it would keep.

Owns the features of a candidate: how every search scores it, at which ranks it stands, how much it
adds to what is kept, and how far kept passages name it. `S` sources.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from searchrl_control.environment.actions import Action
from searchrl_control.environment.features import Features, ListFeatures, bounded
from searchrl_control.environment.heads import DEPTH, SOURCES, Kept, Sources
from searchrl_control.searchers.question import Question

CANDIDATE_FEATURES = (
    *(f"points_{action.lower()}" for action in SOURCES),
    *(f"rank_{action.lower()}" for action in SOURCES),
    *("words", "similar", "similar_gap", "title_share", "source_gap", "votes"),
    *("adds", "named", "named_by_it", "left", "near_kept"),
)


class Candidates:
    """The features of the next passage of every source, for one question.

    Args:
        question: of the episode.
        sources: of the question.
        lists: the features of the question's lists.
    """

    def __init__(self, question: Question, sources: Sources, lists: ListFeatures) -> None:
        self._question = question
        self._sources = sources
        self._lists = lists

    def of(self, kept: Kept) -> Features:
        """The features [S, C] of the candidates; a row of zeros for a source without one."""
        nexts = {action: self._sources.next_of(action, kept, 2) for action in SOURCES}
        # Follow stands for Hop until a passage is kept: the scorer sees no hole there.
        seen = {a: a if kept or a is not Action.HOP else Action.FOLLOW for a in SOURCES}
        scores = [self._scores(seen[action], kept) for action in SOURCES]
        ranks = [
            {place: rank for rank, place in enumerate(self._sources.order(seen[action], kept))}
            for action in SOURCES
        ]
        votes = Counter(places[0] for places in nexts.values() if places)
        told = np.zeros((len(SOURCES), len(CANDIDATE_FEATURES)), dtype=np.float32)
        for row, places in enumerate(nexts.values()):
            if places:
                place = places[0]
                others = scores[row][list(places)]
                told[row] = bounded(
                    [
                        *(_relative(one, place) for one in scores),
                        *(1 / (1 + one.get(place, DEPTH)) for one in ranks),
                        *self._of_question(place),
                        float(others[0] - others[-1]),
                        votes[place] / len(SOURCES),
                        *self._of_kept(place, kept),
                    ]
                )
        return told

    def _scores(self, action: Action, kept: Kept) -> Features:
        found = self._sources.found(action, kept)
        return self._question.words.scores_N if found is None else found.scores_N

    def _of_question(self, place: int) -> list[float]:
        """What the question alone says of a passage."""
        similar = self._question.similar.scores_N
        return [
            self._lists.words_of(place),
            float(similar[place]),
            float(similar[place] - similar.max()),
            self._lists.title_share(place),
        ]

    def _of_kept(self, place: int, kept: Kept) -> list[float]:
        """What a passage adds to those that are kept, and how they name each other."""
        covers = self._lists.share_of(place)
        covered = np.zeros(len(covers), dtype=np.bool_)
        for one in kept:
            covered |= self._lists.share_of(one)
        return [
            self._lists.idf_share(covers & ~covered),
            *self._named(place, kept),
            self._lists.idf_share(~covered),
            self._nearest(place, kept),
        ]

    def _named(self, place: int, kept: Kept) -> tuple[float, float]:
        """How far kept passages name this one, and how far it names one of them."""
        if not kept:
            return 0.0, 0.0
        links = self._question.library.links
        named = max(float(links.covered(one)[place]) for one in kept)
        names = links.covered(place)
        return named, max(float(names[one]) for one in kept)

    def _nearest(self, place: int, kept: Kept) -> float:
        vectors = self._question.library.vectors.vectors_ND
        return float(np.max(vectors[list(kept)] @ vectors[place])) if kept else 0.0


def _relative(scores_N: Features, place: int) -> float:
    """A score over the highest one: comparable between words, vectors and points."""
    highest = float(scores_N.max())
    return float(scores_N[place]) / highest if highest > 0 else 0.0
