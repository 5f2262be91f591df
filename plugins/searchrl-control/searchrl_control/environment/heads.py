"""Actions that keep what they find: the set `heads`.

Owns the state of such an episode and the sources of one question. An action searches in its own
way; its best passage that is not kept yet is kept as the next of the final list, and the rest of
its list is the tail. A sequence of one action repeated is therefore that action's plain list, so
every plain list is among the fixed sequences. The agent sees the next passage of every action
before it chooses.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, islice
from typing import NamedTuple

from searchrl_control.environment.actions import Action
from searchrl_control.environment.lists import SHOWN
from searchrl_control.reformulate.contract import Asked, Reformulator
from searchrl_control.searchers.question import Question
from searchrl_control.searchers.ranking import Found, points

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

Kept = tuple[int, ...]
"""The places of the passages that were kept, in their order."""


class HeadState(NamedTuple):
    """The passages that were kept, and the order of the source whose list is the tail."""

    kept: Kept
    tail: tuple[int, ...]

    def top(self, k: int) -> list[tuple[int, float]]:
        """The places of the first k passages, with points that say no more than the order."""
        left = (place for place in self.tail if place not in self.kept)
        places = islice(chain(self.kept, left), k)
        return [(place, 1.0 - rank / k) for rank, place in enumerate(places)]


class Sources:
    """What every source finds for one question, each computed once, when it is first needed.

    Args:
        question: the question.
        reformulator: of Narrow and Broad.
    """

    def __init__(self, question: Question, reformulator: Reformulator) -> None:
        self._question = question
        self._reformulator = reformulator
        self._found: dict[tuple[Action, Kept], Found] = {}
        self._orders: dict[tuple[Action, Kept], tuple[int, ...]] = {}

    def begin(self) -> HeadState:
        """After Search: the single pass, and nothing kept."""
        return HeadState((), self.order(Action.WORDS, ()))

    def play(self, state: HeadState, action: Action) -> HeadState:
        """The state after an action that is legal; Search begins again."""
        if action is Action.SEARCH:
            return self.begin()
        first = self.next_of(action, state.kept, 1)
        return HeadState((*state.kept, *first), self.order(action, state.kept))

    def is_legal(self, kept: Kept, action: Action) -> bool:
        """Whether an action has a passage to keep; Search has none, Terminate needs none."""
        if action in (Action.SEARCH, Action.TERMINATE):
            return action is Action.TERMINATE
        return bool(self.next_of(action, kept, 1))

    def next_of(self, action: Action, kept: Kept, count: int) -> tuple[int, ...]:
        """The next places of a source that are not kept yet, best first."""
        found = []
        for place in self.order(action, kept):
            if place not in kept:
                found.append(place)
                if len(found) == count:
                    break
        return tuple(found)

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
            return self._question.hop(kept) if kept else None
        key = (action, ())
        if key not in self._found:
            self._found[key] = self._search(action)
        return self._found[key]

    def _search(self, action: Action) -> Found:
        question = self._question
        if action is Action.WORDS:
            return question.words
        if action is Action.DENSE:
            return question.similar
        if action is Action.FUSE:
            return question.fused
        if action is Action.FOLLOW:
            return question.followed
        asked, terms = self._ask(), question.library.terms
        if action is Action.NARROW:
            rewrite = self._reformulator.narrow(asked)
        else:
            rewrite = self._reformulator.broaden(asked)
        query = terms.query_of(rewrite.weights) if rewrite.weights else terms.query(rewrite.text)
        return question.with_vectors(query or question.query)

    def _ask(self) -> Asked:
        question = self._question
        found = points(question.words)
        passages = tuple(
            replace(question.library.passages[place], score=float(found.scores_N[place]))
            for place in found.first(SHOWN).tolist()
        )
        return Asked(question.text, question.library.terms.weights_of(question.query), passages)
