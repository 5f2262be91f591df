"""Every position that was reached, computed once: what makes a warm step a look-up.

Owns the two kinds of memory of a collection. Positions (what the agent sees, some kilobytes) are
kept for all questions, up to a number; the searches behind them (arrays over the whole collection)
for as many of the last questions as fit into a budget. A position depends on the question and the
actions before it and on nothing else, so a cold and a warm memory give the same episodes. Safe to
use from several threads: the rollouts of a group ask for the same positions at the same time, and
the first one computes them for all.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from searchrl_control.environment.actions import HEADS, Action, find_set
from searchrl_control.environment.features import Features
from searchrl_control.environment.games import Game, HeadGame, ListGame, Path, Position
from searchrl_control.reformulate.contract import Reformulator
from searchrl_control.searchers.library import Library
from searchrl_control.searchers.question import Question

MAX_POSITIONS = 40_000
"""Positions in memory; the ones that were not used for longest go first."""

MAX_BYTES = 2**30
"""Memory for the searches of the last questions. A step of training that has more questions than
fit computes them again for every action."""

_BYTES_PER_PASSAGE = 250
"""Of a question whose episodes went everywhere: about 50 rankings of a score and a flag each."""

_BYTES_BESIDE = 2**19
"""What such a question has beside them, however small its collection: paths and their signs."""

_LEAST_QUESTIONS = 16


class Asker(NamedTuple):
    """A question as positions need it.

    `id` is that of the question, `itself` the place of a passage that is the question.
    """

    id: str
    text: str
    itself: int | None = None


class Step(NamedTuple):
    """The path after an action, what was done, and whether the action was illegal."""

    path: Path
    done: Action
    is_illegal: bool


class _Opened(NamedTuple):
    """The searches of a question, and who may use them now."""

    game: Game
    lock: threading.Lock


class Positions:
    """The positions of one collection under one set of actions.

    Args:
        library: the collection.
        actions: the name of the set.
        reformulator: of Narrow and Broad.
        k: passages of a list.

    Raises:
        ConfigError: there is no such set.
    """

    def __init__(self, library: Library, actions: str, reformulator: Reformulator, k: int) -> None:
        self.library = library
        self.actions: tuple[Action, ...] = find_set(actions)
        self.k = k
        self._game = HeadGame if actions == HEADS else ListGame
        self._reformulator = reformulator
        self._positions: OrderedDict[tuple[str, Path], Position] = OrderedDict()
        self._statics: dict[str, Mapping[str, Features]] = {}
        self._opened: OrderedDict[str, _Opened] = OrderedDict()
        self._lock = threading.Lock()
        per_question = _BYTES_PER_PASSAGE * len(library.passages) + _BYTES_BESIDE
        self.max_questions = max(_LEAST_QUESTIONS, MAX_BYTES // per_question)
        """Questions whose searches are in memory."""
        self.num_cold = 0
        """Positions that had to be computed."""
        of_question, of_position = self._game.widths(library.vectors.dim)
        self.widths: Mapping[str, int] = {**of_question, **of_position}
        """The blocks of an observation and their widths."""

    def statics(self, asker: Asker) -> Mapping[str, Features]:
        """The blocks of a question that no action changes."""
        if (found := self._statics.get(asker.id)) is not None:
            return found
        opened = self._open(asker)
        with opened.lock:
            if (found := self._statics.get(asker.id)) is None:
                found = opened.game.statics()
                for block in found.values():
                    block.setflags(write=False)  # kept, and shared by all episodes
                self._statics[asker.id] = found
        return found

    def at(self, asker: Asker, path: Path) -> Position:
        """The position after the first Search and these actions."""
        key = (asker.id, path)
        if (found := self._find(key)) is not None:
            return found
        opened = self._open(asker)
        with opened.lock:
            if (found := self._find(key)) is not None:
                return found
            found = opened.game.look(path, self.k)
            with self._lock:
                self.num_cold += 1
                self._positions[key] = found
                while len(self._positions) > MAX_POSITIONS:
                    self._positions.popitem(last=False)
        return found

    def _find(self, key: tuple[str, Path]) -> Position | None:
        with self._lock:
            found = self._positions.get(key)
            if found is not None:
                self._positions.move_to_end(key)
            return found

    def advance(self, asker: Asker, path: Path | None, number: int) -> Step:
        """What an action does: the one rule of which are legal, for episodes and comparisons.

        The first action is Search. An illegal one, and one that is no number of an action, becomes
        Search, and Search begins again. Terminate leaves the list as it is.

        Args:
            asker: the question.
            path: the actions so far; None: there was no Search yet.
            number: of the action.
        """
        return _go_on(self.actions, self.legal(asker, path), path, number)

    def legal(self, asker: Asker, path: Path | None) -> tuple[bool, ...]:
        """Which actions are legal after a path, by number; before it, Search alone."""
        if path is None:
            return tuple(action is Action.SEARCH for action in self.actions)
        return self.at(asker, path).legal

    def list_after(
        self, asker: Asker, sequence: Path, k: int | None = None
    ) -> list[tuple[str, float]]:
        """The list after Search and a sequence of actions, as ids with scores, best first.

        Nothing is observed and nothing kept. `k` passages, by default as many as in an episode.
        """
        return next(self.lists_after(asker, [sequence], k))

    def lists_after(
        self, asker: Asker, sequences: Iterable[Path], k: int | None = None
    ) -> Iterator[list[tuple[str, float]]]:
        """The lists after many sequences, in their order; what they begin alike is played once."""
        opened = self._open(asker)
        passages = self.library.passages
        paths: dict[Path, Path] = {(): ()}
        for sequence in sequences:
            with opened.lock:
                path = self._path_of(opened.game, sequence, paths)
                top = opened.game.top(path, k or self.k)
            yield [(passages[place].id, score) for place, score in top]

    def _path_of(self, game: Game, sequence: Path, paths: dict[Path, Path]) -> Path:
        """The path that a sequence leads to; `paths` are those that are known."""
        if sequence not in paths:
            before = self._path_of(game, sequence[:-1], paths)
            gone = _go_on(self.actions, game.legal(before), before, sequence[-1])
            paths[sequence] = gone.path
        return paths[sequence]

    def ids(self, position: Position) -> tuple[str, ...]:
        """The ids of the passages of a list, best first."""
        passages = self.library.passages
        return tuple(passages[place].id for place in position.places)

    def _open(self, asker: Asker) -> _Opened:
        with self._lock:
            opened = self._opened.get(asker.id)
        if opened is None:
            question = Question(self.library, asker.text, asker.itself)
            game = self._game(question, self.actions, self._reformulator)
            opened = _Opened(game, threading.Lock())
        with self._lock:
            opened = self._opened.setdefault(asker.id, opened)
            self._opened.move_to_end(asker.id)
            while len(self._opened) > self.max_questions:
                self._opened.popitem(last=False)
        return opened


def _go_on(
    actions: Sequence[Action], legal: Sequence[bool], path: Path | None, number: int
) -> Step:
    """See `Positions.advance`."""
    is_illegal = not (0 <= number < len(legal) and legal[number])
    done = Action.SEARCH if is_illegal else actions[number]
    if done is Action.SEARCH or path is None:
        return Step((), done, is_illegal)
    return Step(path if done is Action.TERMINATE else (*path, number), done, is_illegal)
