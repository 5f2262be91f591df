"""Actions that keep what they find: the set `heads`.

Owns the state of such an episode and the sources of one question. An action searches in its own
way; its best passage that is not kept yet is kept as the next of the final list, and the rest of
its list is the tail. A sequence of one action repeated is therefore that action's plain list, so
every plain list is among the fixed sequences. The agent sees the next passage of every action
before it chooses.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice
from typing import NamedTuple

import numpy as np

from searchrl_control.environment.actions import Action
from searchrl_control.environment.candidates import (
    CANDIDATE_FEATURES,
    DEPTH,
    SOURCES,
    Kept,
    tell_candidates,
)
from searchrl_control.environment.features import (
    LIST_FEATURES,
    QUERY_FEATURES,
    Features,
    query_features,
)
from searchrl_control.environment.games import Game, Top
from searchrl_control.reformulate.contract import Reformulator
from searchrl_control.searchers.question import Question
from searchrl_control.searchers.ranking import Found, points


class HeadState(NamedTuple):
    """The passages that were kept, and the order of the source whose list is the tail."""

    kept: Kept
    tail: tuple[int, ...]


class HeadGame(Game[HeadState]):
    """The set `heads`. What a source finds is searched once, when it is first needed."""

    def __init__(
        self, question: Question, actions: Sequence[Action], reformulator: Reformulator
    ) -> None:
        super().__init__(question, actions, reformulator)
        self._found: dict[Action, Found] = {}
        self._orders: dict[tuple[Action, Kept], tuple[int, ...]] = {}
        # Both depend on what is kept, not on the source of the tail.
        self._told: dict[Kept, Features] = {}
        self._legal: dict[Kept, tuple[bool, ...]] = {}

    @staticmethod
    def widths(dim: int) -> dict[str, int]:
        """See `Game`."""
        return {
            **{"query": dim, "searches": 3 * len(LIST_FEATURES), "terms": len(QUERY_FEATURES)},
            **{"candidates": len(SOURCES) * len(CANDIDATE_FEATURES), "found": dim},
        }

    def statics(self) -> dict[str, Features]:
        """See `Game`. `searches` are the features of the lists by words, fused and followed."""
        question, features = self.question, self.features
        searches = (
            features.of(question.words),
            features.of(question.fused, question.words),
            features.of(question.followed, question.fused),
        )
        terms = query_features(question)
        return {"query": question.vector_D, "searches": np.concatenate(searches), "terms": terms}

    def begin(self) -> HeadState:
        """The single pass, and nothing kept."""
        return HeadState((), self.order(Action.WORDS, ()))

    def play(self, state: HeadState, action: Action) -> HeadState:
        """See `Game`."""
        first = self.next_of(action, state.kept, 1)
        return HeadState((*state.kept, *first), self.order(action, state.kept))

    def legal(self, state: HeadState) -> tuple[bool, ...]:
        """A source that has a passage to keep, and Terminate; Search does nothing here."""
        if state.kept not in self._legal:
            self._legal[state.kept] = tuple(
                bool(self.next_of(one, state.kept, 1))
                if one in SOURCES
                else one is Action.TERMINATE
                for one in self.actions
            )
        return self._legal[state.kept]

    def top(self, state: HeadState, k: int) -> Top:
        """The first k passages, with points that say no more than the order."""
        left = (place for place in state.tail if place not in state.kept)
        places = islice(chain(state.kept, left), k)
        return [(place, 1.0 - rank / k) for rank, place in enumerate(places)]

    def show(self, state: HeadState) -> tuple[dict[str, Features], str]:
        """See `Game`."""
        if state.kept not in self._told:
            self._told[state.kept] = tell_candidates(self, state.kept).ravel()
        return {"candidates": self._told[state.kept]}, self.question.text

    def next_of(self, action: Action, kept: Kept, count: int) -> tuple[int, ...]:
        """The next places of a source that are not kept yet, best first."""
        left = (place for place in self.order(action, kept) if place not in kept)
        return tuple(islice(left, count))

    def order(self, action: Action, kept: Kept) -> tuple[int, ...]:
        """The first places of a source, best first; none for Hop while nothing is kept."""
        key = (action, kept if action is Action.HOP else ())
        if key not in self._orders:
            found = self.found(action, kept)
            self._orders[key] = () if found is None else tuple(found.first(DEPTH).tolist())
        return self._orders[key]

    def found(self, action: Action, kept: Kept) -> Found | None:
        """What a source finds; None for Hop while nothing is kept. Only Hop depends on it."""
        if action is Action.HOP:
            return self.question.hop(kept) if kept else None
        if action not in self._found:
            self._found[action] = self._search(action)
        return self._found[action]

    def _search(self, action: Action) -> Found:
        question = self.question
        if action in (Action.NARROW, Action.BROAD):
            query, _ = self.rewrite(action, question.query, points(question.words))
            return question.with_vectors(query or question.query)
        lists = {Action.WORDS: "words", Action.DENSE: "similar", Action.FUSE: "fused"}
        found: Found = getattr(question, lists.get(action, "followed"))
        return found
