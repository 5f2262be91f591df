"""One question under one set of actions: which position every path of actions leads to.

Owns what the sets have in common: states by path, each computed from the one before it, and how a
reformulator is asked. The sets are `lists` and `heads`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from searchrl_control.environment.actions import Action
from searchrl_control.environment.features import Features, ListFeatures
from searchrl_control.reformulate.contract import Asked, Reformulator
from searchrl_control.searchers.question import Question
from searchrl_control.searchers.ranking import Found
from searchrl_control.searchers.terms import Query

SHOWN = 10
"""Passages that a reformulator is shown, at most."""

_MEAN_OF = 3
"""First passages whose embeddings are averaged."""

Path = tuple[int, ...]
"""The numbers of the actions that were done, after the first Search."""

Top = list[tuple[int, float]]
"""The places of the first passages with their scores, best first."""

S = TypeVar("S")


class Position(NamedTuple):
    """What the agent has in front of it.

    `top` is the list. `blocks` are the parts of the observation that change with it. `legal` says,
    by number, which actions do anything; `text` is what was searched.
    """

    top: Top
    blocks: Mapping[str, Features]
    legal: tuple[bool, ...]
    text: str


class Game(ABC, Generic[S]):
    """One question under one set of actions.

    Args:
        question: of the episode.
        actions: of the set.
        reformulator: of Narrow and Broad.
    """

    def __init__(
        self, question: Question, actions: Sequence[Action], reformulator: Reformulator
    ) -> None:
        self.lock = threading.Lock()
        """Held by who calls anything else."""
        self.question = question
        self.actions = actions
        self.reformulator = reformulator
        self.features = ListFeatures(question)
        self._states: dict[Path, S] = {}

    @staticmethod
    @abstractmethod
    def widths(dim: int) -> dict[str, int]:
        """The blocks of an observation and their widths; `dim` is that of an embedding."""

    @abstractmethod
    def statics(self) -> dict[str, Features]:
        """The blocks of the observation that no action changes."""

    @abstractmethod
    def begin(self) -> S:
        """The state after the first Search."""

    @abstractmethod
    def play(self, state: S, action: Action) -> S:
        """The state after an action that is legal and neither Search nor Terminate."""

    @abstractmethod
    def legal(self, state: S) -> tuple[bool, ...]:
        """Which actions are legal in a state, by number."""

    @abstractmethod
    def top(self, state: S, k: int) -> Top:
        """The list of a state."""

    @abstractmethod
    def show(self, state: S) -> tuple[dict[str, Features], str]:
        """The blocks of a state but `found`, and what was searched."""

    def state(self, path: Path) -> S:
        """The state after Search and these actions."""
        if path not in self._states:
            self._states[path] = (
                self.play(self.state(path[:-1]), self.actions[path[-1]]) if path else self.begin()
            )
        return self._states[path]

    def look(self, path: Path, k: int) -> Position:
        """The position after Search and these actions, with a list of k passages."""
        state = self.state(path)
        top = self.top(state, k)
        blocks, text = self.show(state)
        vectors = self.question.library.vectors
        places = [place for place, _ in top[:_MEAN_OF]]
        blocks["found"] = (
            np.asarray(vectors.vectors_ND[places].mean(axis=0), dtype=np.float32)
            if places
            else np.zeros(vectors.dim, dtype=np.float32)
        )
        return Position(top, blocks, self.legal(state), text)

    def rewrite(self, action: Action, query: Query, found: Found) -> tuple[Query, str]:
        """What the reformulator makes of a search: terms that the collection knows, and a text."""
        library = self.question.library
        passages = tuple(
            replace(library.passages[place], score=float(found.scores_N[place]))
            for place in found.first(SHOWN).tolist()
        )
        asked = Asked(self.question.text, library.terms.weights_of(query), passages)
        is_narrow = action is Action.NARROW
        said = (self.reformulator.narrow if is_narrow else self.reformulator.broaden)(asked)
        terms = library.terms
        query = terms.query_of(said.weights) if said.weights else terms.query(said.text)
        return query, said.text
