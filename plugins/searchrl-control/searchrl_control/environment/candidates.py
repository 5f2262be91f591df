"""What the agent sees of each source in the set `heads`: the next passage it would keep.

Owns the features of a candidate: how every search scores it, at which ranks it stands, how much it
adds to what is kept, and how far kept passages name it. `S` sources. Caller: `positions`.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from searchrl_control.environment.actions import Action
from searchrl_control.environment.features import Features, ListFeatures, bounded
from searchrl_control.environment.heads import SOURCES, Heads, HeadState
from searchrl_control.searchers.question import Question

_RANKED = 60
"""A passage that a source does not have counts as if at this rank."""

CANDIDATE_FEATURES = (
    *(f"points_{action.lower()}" for action in SOURCES),
    *(f"rank_{action.lower()}" for action in SOURCES),
    *("words", "similar", "similar_gap", "source_gap", "votes", "title_share", "adds"),
    *("named", "named_by_it", "left", "near_kept"),
)


class Candidates:
    """The features of the next passage of every source, for one question.

    Args:
        question: of the episode.
        heads: the actions.
        lists: the features of the question's lists.
    """

    def __init__(self, question: Question, heads: Heads, lists: ListFeatures) -> None:
        self._question = question
        self._heads = heads
        self._lists = lists

    def of(self, state: HeadState) -> Features:
        """The features [S, C] of the candidates; a row of zeros for a source without one."""
        nexts = {
            action: self._heads.next_of(state, action, 2)
            for action in SOURCES
            if action in state.sources
        }
        ranks = {
            action: {int(p): r for r, p in enumerate(found.first(_RANKED).tolist())}
            for action, found in state.sources.items()
        }
        votes = Counter(places[0] for places in nexts.values() if places)
        told = np.zeros((len(SOURCES), len(CANDIDATE_FEATURES)), dtype=np.float32)
        for row, action in enumerate(SOURCES):
            if nexts.get(action):
                told[row] = self._tell(state, action, nexts[action], ranks, votes)
        return told

    def _tell(
        self,
        state: HeadState,
        action: Action,
        places: tuple[int, ...],
        ranks: dict[Action, dict[int, int]],
        votes: Counter[int],
    ) -> Features:
        place = places[0]
        sources = state.sources
        # Hop stands for Follow until a passage is kept: the scorer sees no hole there.
        as_source = {a: a if a in sources else Action.FOLLOW for a in SOURCES}
        scores = {a: _relative(sources[as_source[a]].scores_N, place) for a in SOURCES}
        at = [1 / (1 + ranks[as_source[a]].get(place, _RANKED)) for a in SOURCES]
        similar = self._question.similar
        own = sources[action].scores_N
        gap = float(own[place] - own[places[1]]) if len(places) > 1 else 0.0
        covers = self._lists.share_of(place)
        covered = np.zeros(len(covers), dtype=np.bool_)
        for kept in state.kept:
            covered |= self._lists.share_of(kept)
        return bounded(
            [
                *scores.values(),
                *at,
                self._lists.words_of(place),
                float(similar.scores_N[place]),
                float(similar.scores_N[place] - similar.scores_N.max()),
                gap,
                votes[place] / len(SOURCES),
                self._lists.title_share(place),
                self._lists.idf_share(covers & ~covered),
                *self._to_kept(state, place),
                self._lists.idf_share(~covered),
                self._nearest_kept(state, place),
            ]
        )

    def _to_kept(self, state: HeadState, place: int) -> tuple[float, float]:
        """How far kept passages name this one, and how far it names one of them."""
        if not state.kept:
            return 0.0, 0.0
        links = self._question.library.links
        named = max(float(links.covered(kept)[place]) for kept in state.kept)
        names = links.covered(place)
        return named, max(float(names[kept]) for kept in state.kept)

    def _nearest_kept(self, state: HeadState, place: int) -> float:
        vectors = self._question.library.vectors.vectors_ND
        if not state.kept:
            return 0.0
        return float(np.max(vectors[list(state.kept)] @ vectors[place]))


def _relative(scores_N: Features, place: int) -> float:
    """A score over the highest one: comparable between words, vectors and points."""
    highest = float(scores_N.max())
    return float(scores_N[place]) / highest if highest > 0 else 0.0
