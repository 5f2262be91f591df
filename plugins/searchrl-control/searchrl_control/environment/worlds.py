"""A collection with everything that its episodes share, and every position that was reached.

Positions (some kilobytes) are kept for all questions, up to a number; the searches behind them
(arrays over the whole collection) for as many of the last questions as fit into a budget. A
position depends on the question and the actions before it alone, so a cold and a warm memory give
the same episodes. Safe to use from several threads.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from searchrl_retrieval.dense.kinds import Dense, Static
from searchrl_retrieval.evaluation.collection import Judged

from searchrl import ConfigError, cache_path
from searchrl_control.collections.judged import find_collection, read_judged
from searchrl_control.environment.games import Game, HeadGame, ListGame, Moves, Position, Top
from searchrl_control.environment.measures import CUTOFF, Difficulty, difficulty_of
from searchrl_control.environment.settings import HEADS, OF_EPISODES, SETS, Action, EnvSettings
from searchrl_control.searching.library import Library
from searchrl_control.searching.question import Question
from searchrl_control.searching.reformulators import Classical, Reformulator
from searchrl_control.searching.writer import Ask, Written, ask_endpoint, ask_weights

MAX_POSITIONS = 40_000
"""Positions in memory; the least recently used go first."""

MAX_BYTES = 2**30
"""Memory for the searches of the last questions; those that do not fit are searched again."""

_BYTES_PER_PASSAGE = 250
"""A question whose episodes went everywhere has some 50 rankings of a score and a flag each."""

_BYTES_BESIDE = 2**19
"""Bytes of the paths and signs of such a question, however small its collection."""

_LEAST_QUESTIONS = 16

ENV = "retrieval-control"


class World:
    """An opened collection under one set of actions: its questions, and their positions."""

    def __init__(self, place: EnvSettings, reformulator: Reformulator | None = None) -> None:
        cache = Path(place.cache).expanduser() if place.cache else cache_path("control")
        data = Path(place.data).expanduser() if place.data else None
        path = find_collection(place.collection, data, hub=place.hub, cache=cache)
        self.name = Path(place.collection).name
        self.judged = read_judged(path, place.split_seed, place.train_share)
        self.questions = self.judged.questions
        """By split."""
        kind = Static if place.encoder == "static" else Dense
        made = kind(model=place.model) if place.model else kind()
        self.library = Library(self.judged.passages, made, cache)
        self.ask = find_model(place, cache)
        self.search = place.search
        self.actions: tuple[Action, ...] = SETS[place.actions]
        self._game: type[Game[Any]] = HeadGame if place.actions == HEADS else ListGame
        self._reformulator: Reformulator = reformulator or (
            Written(self.ask) if self.ask else Classical(self.library)
        )
        self.widths = self._game.widths(self.library.encoder.dim)
        """The blocks of an observation and their widths."""
        per_question = _BYTES_PER_PASSAGE * len(self.library.passages) + _BYTES_BESIDE
        self.open = lru_cache(max(_LEAST_QUESTIONS, MAX_BYTES // per_question))(self._open)
        """The searches of a question."""
        self.at = lru_cache(MAX_POSITIONS)(self._at)
        """The position of a question after the first Search and a path of actions; see `look`."""
        self.level = lru_cache(None)(self._level)
        """The difficulty of a question, by its single pass."""

    def go_on(
        self, legal: Sequence[bool], path: Moves | None, number: int
    ) -> tuple[Moves, Action, bool]:
        """The path after an action, the action itself, and True if the number was illegal.

        The first action is Search. An illegal number becomes Search, which begins again. Terminate
        leaves the list as it is.
        """
        is_illegal = not (0 <= number < len(legal) and legal[number])
        done = Action.SEARCH if is_illegal else self.actions[number]
        if done is Action.SEARCH or path is None:
            return (), done, is_illegal
        return path if done is Action.TERMINATE else (*path, number), done, is_illegal

    def lists_after(
        self, question: Judged, sequences: Sequence[Moves], k: int = CUTOFF
    ) -> list[list[tuple[str, float]]]:
        """The first `k` passages after each of many sequences, as ids with scores.

        Equal beginnings are played once.
        """
        game = self.open(question)
        paths: dict[Moves, Moves] = {(): ()}

        def follow(sequence: Moves) -> Moves:
            if sequence not in paths:
                before = follow(sequence[:-1])
                legal = game.legal(game.state(before))
                paths[sequence], _, _ = self.go_on(legal, before, sequence[-1])
            return paths[sequence]

        with game.lock:
            tops = [game.top(game.state(follow(one)), k) for one in sequences]
        return [list(zip(self.ids(top), (score for _, score in top), strict=True)) for top in tops]

    def ids(self, top: Top) -> list[str]:
        """The ids of the passages of a list, best first."""
        return [self.library.passages[place].id for place, _ in top]

    def _open(self, question: Judged) -> Game[Any]:
        place = self.library.place_of.get(question.id)
        # In ArguAna, questions are passages; spaces differ between files of one collection.
        words = question.text.split()
        if place is not None and self.library.passages[place].text.split() != words:
            place = None
        rankings = Question(self.library, question.text, place, self.search)
        return self._game(rankings, self.actions, self._reformulator)

    def _at(self, question: Judged, path: Moves | None) -> Position:
        game = self.open(question)
        with game.lock:
            position: Position = game.look(path)
        for block in position.blocks.values():
            block.setflags(write=False)  # kept, and shared by all episodes
        return position

    def _level(self, question: Judged) -> Difficulty:
        game = self.open(question)
        with game.lock:
            first = game.question.single_pass.first(CUTOFF).tolist()
        return difficulty_of([self.library.passages[place].id for place in first], question.qrels)


def find_model(place: EnvSettings, cache: Path) -> Ask | None:
    """The model that narrows and broadens; None: RM3 and neighbours do."""
    if place.policy:
        return ask_weights(place.policy, cache / "reformulations.sqlite")
    if place.url and place.endpoint_model:
        return ask_endpoint(place.url, place.endpoint_model)
    if place.url or place.endpoint_model:
        raise ConfigError(
            "env.url (such as http://localhost:8000/v1) and env.endpoint_model go together"
        )
    return None


_OPENING = threading.Lock()
_world_of = lru_cache(maxsize=8)(World)


def open_world(settings: EnvSettings) -> World:
    """The world of some settings; one object for equal lists and tasks."""
    # One at a time: many environments of a run ask for the same world at once.
    with _OPENING:
        return _world_of(EnvSettings(**settings.model_dump(exclude={*OF_EPISODES})))
