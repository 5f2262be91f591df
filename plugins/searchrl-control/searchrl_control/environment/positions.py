"""Every position that was reached, computed once: what makes a warm step a look-up.

Owns the two kinds of memory of a collection. Positions (what the agent sees, some kilobytes) are
kept for all questions, up to a number; the searches behind them (arrays over the whole collection)
for as many of the last questions as fit into a budget. A position depends on the question and the
actions before it and on nothing else, so a cold and a warm memory give the same episodes. Safe to
use from several threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from searchrl_control.environment.actions import HEADS, SETS, Action
from searchrl_control.environment.features import Features
from searchrl_control.environment.games import Game, Path, Position
from searchrl_control.environment.heads import HeadGame
from searchrl_control.environment.lists import ListGame
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
    """A question: its id, its text, and the place of a passage that is the question, if one is."""

    id: str
    text: str
    itself: int | None = None


class Step(NamedTuple):
    """The path after an action, what was done, and whether the action was illegal."""

    path: Path
    done: Action
    is_illegal: bool


class Positions:
    """The positions of one collection under one set of actions.

    Args:
        library: the collection.
        actions: the name of the set.
        reformulator: of Narrow and Broad.
        k: passages of a list.
    """

    def __init__(self, library: Library, actions: str, reformulator: Reformulator, k: int) -> None:
        self.library = library
        self.actions: tuple[Action, ...] = tuple(SETS[actions])
        self.k = k
        self._game: type[Game[Any]] = HeadGame if actions == HEADS else ListGame
        self._reformulator = reformulator
        self.widths: Mapping[str, int] = self._game.widths(library.vectors.dim)
        """The blocks of an observation and their widths."""
        per_question = _BYTES_PER_PASSAGE * len(library.passages) + _BYTES_BESIDE
        max_questions = max(_LEAST_QUESTIONS, MAX_BYTES // per_question)
        self.open = lru_cache(maxsize=max_questions)(self._open)
        """The searches of a question."""
        self.at = lru_cache(maxsize=MAX_POSITIONS)(self._at)
        """The position of a question after the first Search and a path of actions."""
        self.statics = lru_cache(maxsize=MAX_POSITIONS)(self._statics)
        """The blocks of a question that no action changes."""

    def advance(self, asker: Asker, path: Path | None, number: int) -> Step:
        """What an action does: the one rule of which are legal, for episodes and comparisons.

        The first action is Search. An illegal one, and one that is no number of an action, becomes
        Search, and Search begins again. Terminate leaves the list as it is.

        Args:
            asker: the question.
            path: the actions so far; None: there was no Search yet.
            number: of the action.
        """
        return self._go_on(self.legal(asker, path), path, number)

    def legal(self, asker: Asker, path: Path | None) -> tuple[bool, ...]:
        """Which actions are legal after a path, by number; before it, Search alone."""
        if path is None:
            return tuple(action is Action.SEARCH for action in self.actions)
        return self.at(asker, path).legal

    def lists_after(
        self, asker: Asker, sequences: Sequence[Path], k: int | None = None
    ) -> list[list[tuple[str, float]]]:
        """The lists after many sequences, as ids with scores; nothing is observed.

        What they begin alike is played once. `k` passages, by default as many as in an episode.
        """
        game, passages = self.open(asker), self.library.passages
        paths: dict[Path, Path] = {(): ()}

        def follow(sequence: Path) -> Path:
            if sequence not in paths:
                before = follow(sequence[:-1])
                legal = game.legal(game.state(before))
                paths[sequence] = self._go_on(legal, before, sequence[-1]).path
            return paths[sequence]

        with game.lock:
            tops = [game.top(game.state(follow(one)), k or self.k) for one in sequences]
        return [[(passages[place].id, score) for place, score in top] for top in tops]

    def ids(self, position: Position) -> tuple[str, ...]:
        """The ids of the passages of a list, best first."""
        return tuple(self.library.passages[place].id for place, _ in position.top)

    def _go_on(self, legal: Sequence[bool], path: Path | None, number: int) -> Step:
        is_illegal = not (0 <= number < len(legal) and legal[number])
        done = Action.SEARCH if is_illegal else self.actions[number]
        if done is Action.SEARCH or path is None:
            return Step((), done, is_illegal)
        return Step(path if done is Action.TERMINATE else (*path, number), done, is_illegal)

    def _open(self, asker: Asker) -> Game[Any]:
        question = Question(self.library, asker.text, asker.itself)
        return self._game(question, self.actions, self._reformulator)

    def _at(self, asker: Asker, path: Path) -> Position:
        game = self.open(asker)
        with game.lock:
            position: Position = game.look(path, self.k)
        _freeze(position.blocks)
        return position

    def _statics(self, asker: Asker) -> Mapping[str, Features]:
        game = self.open(asker)
        with game.lock:
            statics = game.statics()
        _freeze(statics)
        return statics


def _freeze(blocks: Mapping[str, Features]) -> None:
    for block in blocks.values():
        block.setflags(write=False)  # kept, and shared by all episodes
