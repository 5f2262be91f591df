"""One question under one set of actions: which position every path of actions leads to.

Owns the two games, that of lists and that of heads: their states by path, and what of a position is
observed. A state is computed from the one before it, so a path that was reached is not searched
again while it is in memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from searchrl_control.environment.actions import Action
from searchrl_control.environment.candidates import CANDIDATE_FEATURES, Candidates
from searchrl_control.environment.features import (
    LIST_FEATURES,
    QUERY_FEATURES,
    Features,
    ListFeatures,
    query_features,
)
from searchrl_control.environment.heads import SOURCES, HeadState, Kept, Sources
from searchrl_control.environment.lists import Lists, ListState
from searchrl_control.reformulate.contract import Reformulator
from searchrl_control.searchers.question import Question

_MEAN_OF = 3
"""First passages whose embeddings are averaged."""

MAX_LISTS = 32
"""States of one question in memory where each has arrays over the whole collection; the ones that
were not used for longest go first, and are searched again if they are needed again."""

Path = tuple[int, ...]
"""The numbers of the actions that were done, after the first Search."""


class Position(NamedTuple):
    """What the agent has in front of it.

    `places` are those of the first k passages, best first, with `scores`. `blocks` are the parts of
    the observation that change with it. `legal` says, by number, which actions do anything; `text`
    is what was searched.
    """

    places: tuple[int, ...]
    scores: tuple[float, ...]
    blocks: Mapping[str, Features]
    legal: tuple[bool, ...]
    text: str


class Game(Protocol):
    """One question under one set of actions."""

    def statics(self) -> Mapping[str, Features]:
        """The blocks of the observation that no action changes."""

    def look(self, path: Path, k: int) -> Position:
        """The position after Search and these actions, with a list of k passages."""

    def legal(self, path: Path) -> tuple[bool, ...]:
        """Which actions are legal after a path, by number."""

    def top(self, path: Path, k: int) -> list[tuple[int, float]]:
        """The places of the first k passages after a path, with their scores: nothing observed."""


class ListGame:
    """The set `published`: actions change the list that is there."""

    def __init__(
        self, question: Question, actions: Sequence[Action], reformulator: Reformulator
    ) -> None:
        self._question = question
        self._actions = actions
        self._lists = Lists(reformulator)
        self._features = ListFeatures(question)
        self._states: OrderedDict[Path, ListState] = OrderedDict()

    @staticmethod
    def widths(dim: int) -> tuple[dict[str, int], dict[str, int]]:
        """The blocks and their widths: those of a question, and those of a position."""
        return (
            {"query": dim, "terms": len(QUERY_FEATURES)},
            {"found": dim, "list": len(LIST_FEATURES)},
        )

    def statics(self) -> Mapping[str, Features]:
        """See `Game`."""
        return {"query": self._question.vector_D, "terms": query_features(self._question)}

    def look(self, path: Path, k: int) -> Position:
        """See `Game`."""
        state = self._state(path)
        top = self.top(path, k)
        blocks = {
            "found": _mean(self._question, top),
            "list": self._features.of(state.found, state.before),
        }
        return _position(top, blocks, self.legal(path), state.text)

    def legal(self, path: Path) -> tuple[bool, ...]:
        """See `Game`."""
        return (True,) * len(self._actions)

    def top(self, path: Path, k: int) -> list[tuple[int, float]]:
        """See `Game`."""
        return self._lists.top(self._state(path), k)

    def _state(self, path: Path) -> ListState:
        found = self._states.get(path)
        if found is None:
            if path:
                action = self._actions[path[-1]]
                found = self._lists.play(self._question, self._state(path[:-1]), action)
            else:
                found = self._lists.begin(self._question)
            self._states[path] = found
            while len(self._states) > MAX_LISTS:
                self._states.popitem(last=False)
        else:
            self._states.move_to_end(path)
        return found


class HeadGame:
    """The set `heads`: actions keep a passage."""

    def __init__(
        self, question: Question, actions: Sequence[Action], reformulator: Reformulator
    ) -> None:
        self._question = question
        self._actions = actions
        self._sources = Sources(question, reformulator)
        self._features = ListFeatures(question)
        self._candidates = Candidates(question, self._sources, self._features)
        self._states: dict[Path, HeadState] = {}
        # Both depend on what is kept, not on the source of the tail.
        self._told: dict[Kept, Features] = {}
        self._legal: dict[Kept, tuple[bool, ...]] = {}

    @staticmethod
    def widths(dim: int) -> tuple[dict[str, int], dict[str, int]]:
        """The blocks and their widths: those of a question, and those of a position."""
        return (
            {"query": dim, "searches": 3 * len(LIST_FEATURES), "terms": len(QUERY_FEATURES)},
            {"candidates": len(SOURCES) * len(CANDIDATE_FEATURES), "found": dim},
        )

    def statics(self) -> Mapping[str, Features]:
        """See `Game`. `searches` are the features of the lists by words, fused and followed."""
        question = self._question
        searches = (
            self._features.of(question.words),
            self._features.of(question.fused, question.words),
            self._features.of(question.followed, question.fused),
        )
        return {
            "query": question.vector_D,
            "searches": np.concatenate(searches),
            "terms": query_features(question),
        }

    def look(self, path: Path, k: int) -> Position:
        """See `Game`."""
        top = self.top(path, k)
        kept = self._state(path).kept
        if kept not in self._told:
            self._told[kept] = self._candidates.of(kept).ravel()
        blocks = {"candidates": self._told[kept], "found": _mean(self._question, top)}
        return _position(top, blocks, self.legal(path), self._question.text)

    def legal(self, path: Path) -> tuple[bool, ...]:
        """See `Game`."""
        kept = self._state(path).kept
        if kept not in self._legal:
            self._legal[kept] = tuple(self._sources.is_legal(kept, one) for one in self._actions)
        return self._legal[kept]

    def top(self, path: Path, k: int) -> list[tuple[int, float]]:
        """See `Game`."""
        return self._state(path).top(k)

    def _state(self, path: Path) -> HeadState:
        found = self._states.get(path)
        if found is None:
            if path:
                found = self._sources.play(self._state(path[:-1]), self._actions[path[-1]])
            else:
                found = self._sources.begin()
            self._states[path] = found
        return found


def _mean(question: Question, top: Sequence[tuple[int, float]]) -> Features:
    """The mean [D] of the embeddings of the first passages; zeros without any."""
    vectors = question.library.vectors
    places = [place for place, _ in top[:_MEAN_OF]]
    if not places:
        return np.zeros(vectors.dim, dtype=np.float32)
    return np.asarray(vectors.vectors_ND[places].mean(axis=0), dtype=np.float32)


def _position(
    top: Sequence[tuple[int, float]],
    blocks: Mapping[str, Features],
    legal: tuple[bool, ...],
    text: str,
) -> Position:
    for block in blocks.values():
        block.setflags(write=False)  # kept, and shared by all episodes
    places = tuple(place for place, _ in top)
    return Position(places, tuple(score for _, score in top), blocks, legal, text)
