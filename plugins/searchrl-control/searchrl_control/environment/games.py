"""One question under one set of actions: the position behind every path of actions.

In `published` actions add up: Narrow and Broad change the last query. In `heads` an action searches
in its own way; its best passage that is not kept yet is kept as the next of the final list, and the
rest of its list is the tail. A sequence of one action repeated is therefore that action's plain
list, so every plain list is among the fixed sequences. The agent sees the next passage of every
action before it chooses.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from typing import ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from searchrl_control.environment.features import (
    CANDIDATE_FEATURES,
    DEPTH,
    LIST_FEATURES,
    QUERY_FEATURES,
    SOURCES,
    Kept,
    ListFeatures,
    query_features,
    tell_candidates,
)
from searchrl_control.environment.measures import CUTOFF
from searchrl_control.environment.settings import Action
from searchrl_control.searching.library import Floats, Query
from searchrl_control.searching.question import HOP_WEIGHT, Found, Question, points
from searchrl_control.searching.reformulators import Asked, Reformulator

_MEAN_OF = 3
"""First passages whose embeddings are averaged."""

Moves = tuple[int, ...]
"""The numbers of the actions after the first Search."""

Top = list[tuple[int, float]]
"""The places of the first passages with their scores, best first."""

S = TypeVar("S")


class Position(NamedTuple):
    """The list, the parts of the observation, the legal actions by number, and the last search."""

    top: Top
    blocks: Mapping[str, Floats]
    legal: tuple[bool, ...]
    text: str


@dataclass(eq=False)
class Game(ABC, Generic[S]):
    """One question under one set of actions. `lock` is held by who calls anything else."""

    question: Question
    actions: Sequence[Action]
    reformulator: Reformulator
    lock: threading.Lock = field(default_factory=threading.Lock)
    _states: dict[Moves, S] = field(default_factory=dict)

    further: ClassVar[Mapping[str, int]]
    """The further blocks of this set's observation, and their widths."""

    @cached_property
    def features(self) -> ListFeatures:
        """The signs of the question's lists."""
        return ListFeatures(self.question)

    @classmethod
    def widths(cls, dim: int) -> dict[str, int]:
        """The blocks of an observation and their widths; `dim` is that of an embedding."""
        return {"query": dim, "found": dim, "terms": len(QUERY_FEATURES), **cls.further}

    @cached_property
    def always(self) -> dict[str, Floats]:
        """The blocks that no action changes."""
        return {"query": self.question.vector_D, "terms": query_features(self.question)}

    @abstractmethod
    def begin(self) -> S:
        """The state after the first Search."""

    @abstractmethod
    def play(self, state: S, action: Action) -> S:
        """The state after an action that is legal and neither Search nor Terminate."""

    @abstractmethod
    def legal(self, state: S) -> tuple[bool, ...]:
        """The legal actions of a state, by number."""

    @abstractmethod
    def top(self, state: S, k: int) -> Top:
        """The k first passages of a state."""

    @abstractmethod
    def show(self, state: S) -> tuple[Mapping[str, Floats], str]:
        """The blocks of a state but `found`, and the last search."""

    def state(self, path: Moves) -> S:
        """The state after Search and these actions."""
        if path not in self._states:
            self._states[path] = (
                self.play(self.state(path[:-1]), self.actions[path[-1]]) if path else self.begin()
            )
        return self._states[path]

    def look(self, path: Moves | None) -> Position:
        """The position after Search and these actions; without a path, that before Search."""
        library = self.question.library
        widths = self.widths(library.encoder.dim)
        blank = {name: np.zeros(width, np.float32) for name, width in widths.items()}
        if path is None:
            legal = tuple(one is Action.SEARCH for one in self.actions)
            return Position([], blank | self.always, legal, "")
        state = self.state(path)
        top = self.top(state, CUTOFF)
        blocks, text = self.show(state)
        if places := [place for place, _ in top[:_MEAN_OF]]:
            blank["found"] = library.vectors_ND[places].mean(axis=0, dtype=np.float32)
        return Position(top, {**blank, **self.always, **blocks}, self.legal(state), text)

    def rewrite(self, action: Action, query: Query, found: Found) -> tuple[Query, str]:
        """A search as the reformulator changes it: terms that the collection knows, and a text."""
        library = self.question.library
        passages = tuple(
            replace(library.passages[place], score=float(found.scores_N[place]))
            for place in found.first(CUTOFF).tolist()
        )
        terms = library.terms
        asked = Asked(self.question.text, terms.weights_of(query), passages)
        is_narrow = action is Action.NARROW
        made = (self.reformulator.narrow if is_narrow else self.reformulator.broaden)(asked)
        return terms.query_of(made.weights) if made.weights else terms.query(made.text), made.text


class ListState(NamedTuple):
    """The list, the terms and the text of its search, and the list before it."""

    query: Query
    text: str
    found: Found
    before: Found | None = None


class ListGame(Game[ListState]):
    """The set `published`."""

    further: ClassVar = {"list": len(LIST_FEATURES)}

    def begin(self) -> ListState:
        """The single pass, as points like every list after it: feedback weighs passages by them."""
        question = self.question
        return ListState(question.query, question.text, points(question.single_pass))

    def play(self, state: ListState, action: Action) -> ListState:
        """The list of another search; words that the collection does not know change nothing."""
        query, text = self.rewrite(action, state.query, state.found)
        if not query:
            return state._replace(before=state.found)
        return ListState(query, text, points(self.question.search_words(query)), state.found)

    def legal(self, state: ListState) -> tuple[bool, ...]:
        """All actions."""
        return (True,) * len(self.actions)

    def top(self, state: ListState, k: int) -> Top:
        """The list."""
        places = state.found.first(k)
        return list(zip(places.tolist(), state.found.scores_N[places].tolist(), strict=True))

    def show(self, state: ListState) -> tuple[Mapping[str, Floats], str]:
        """The signs of the list."""
        return {"list": self.features.of(state.found, state.before)}, state.text


class HeadState(NamedTuple):
    """The passages that were kept, and the order of the source whose list is the tail."""

    kept: Kept
    tail: tuple[int, ...]


@dataclass(eq=False)
class HeadGame(Game[HeadState]):
    """The set `heads`. Each source searches once, when it is first needed."""

    # Of Hop they depend on what is kept; the features do not depend on the source of the tail.
    # Mappings and no `functools.cache`: its cycle would keep arrays until they are collected.
    _found: dict[tuple[Action, Kept], Found] = field(default_factory=dict)
    _orders: dict[tuple[Action, Kept], tuple[int, ...]] = field(default_factory=dict)
    _told: dict[Kept, Floats] = field(default_factory=dict)

    further: ClassVar = {
        "searches": 3 * len(LIST_FEATURES),
        "candidates": len(SOURCES) * len(CANDIDATE_FEATURES),
    }

    @cached_property
    def always(self) -> dict[str, Floats]:
        """With the signs of the lists by words, fused and followed."""
        one, of = self.question, self.features.of
        lists = of(one.words), of(one.fused, one.words), of(one.followed, one.fused)
        return {**super().always, "searches": np.concatenate(lists)}

    def begin(self) -> HeadState:
        """Nothing kept."""
        return HeadState((), self.order(Action.SEARCH, ()))

    def play(self, state: HeadState, action: Action) -> HeadState:
        """One more kept."""
        first = self.next_of(action, state.kept, 1)
        return HeadState((*state.kept, *first), self.order(action, state.kept))

    def legal(self, state: HeadState) -> tuple[bool, ...]:
        """Sources that have a passage to keep, and Terminate; Search does nothing here."""
        return tuple(
            one is Action.TERMINATE or (one in SOURCES and bool(self.next_of(one, state.kept, 1)))
            for one in self.actions
        )

    def top(self, state: HeadState, k: int) -> Top:
        """The kept passages and the tail, with points for their order."""
        left = (place for place in state.tail if place not in state.kept)
        places = islice(chain(state.kept, left), k)
        return [(place, 1.0 - rank / k) for rank, place in enumerate(places)]

    def show(self, state: HeadState) -> tuple[Mapping[str, Floats], str]:
        """The candidates."""
        if state.kept not in self._told:
            self._told[state.kept] = tell_candidates(self, state.kept).ravel()
        return {"candidates": self._told[state.kept]}, self.question.text

    def next_of(self, action: Action, kept: Kept, count: int) -> tuple[int, ...]:
        """The next places of a source that are not kept yet, best first."""
        left = (place for place in self.order(action, kept) if place not in kept)
        return tuple(islice(left, count))

    def order(self, action: Action, kept: Kept) -> tuple[int, ...]:
        """The first places of a source, best first; none for Hop while nothing is kept."""
        if action is Action.HOP and not kept:
            return ()
        key = (action, kept if action is Action.HOP else ())
        if key not in self._orders:
            self._orders[key] = tuple(self.found(action, kept).first(DEPTH).tolist())
        return self._orders[key]

    def found(self, action: Action, kept: Kept) -> Found:
        """The result of a source."""
        key = (action, kept if action is Action.HOP else ())
        if key not in self._found:
            self._found[key] = self._search(*key)
        return self._found[key]

    def _search(self, action: Action, kept: Kept) -> Found:
        question = self.question
        if action in (Action.NARROW, Action.BROAD):
            query, _ = self.rewrite(action, question.query, points(question.words))
            return question.with_vectors(query or question.query)
        if action is Action.HOP:
            return question.follow(list(kept), HOP_WEIGHT)
        lists = {Action.SEARCH: "single_pass", Action.WORDS: "words", Action.DENSE: "similar"}
        lists |= {Action.FUSE: "fused", Action.FOLLOW: "followed"}
        found: Found = getattr(question, lists[action])
        return found
