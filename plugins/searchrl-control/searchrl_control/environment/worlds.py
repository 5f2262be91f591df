"""A collection with everything that its episodes share, opened once per process.

Owns the order in which it is opened, and what counts as the same: all settings that change a list
or a task. Many environments of one training run share one world, and so its memory of positions.
"""

from __future__ import annotations

import functools
import threading
from pathlib import Path

from searchrl import ConfigError
from searchrl.contracts import Task
from searchrl_control.collections.judged import Judged, read_judged, write_draw
from searchrl_control.collections.places import default_cache, find_collection
from searchrl_control.environment.measures import CUTOFF
from searchrl_control.environment.positions import Asker, Positions
from searchrl_control.environment.settings import OF_EPISODES, EnvSettings
from searchrl_control.generation.difficulty import Difficulty, difficulty_of
from searchrl_control.reformulate.classical import Classical
from searchrl_control.reformulate.contract import Reformulator
from searchrl_control.reformulate.writer import Written, ask_endpoint, ask_weights
from searchrl_control.searchers.library import Library
from searchrl_control.searchers.ranking import by_words
from searchrl_control.searchers.vectors import load_encoder

ENV = "retrieval-control"


class World:
    """An opened collection: its questions, and the positions of their episodes.

    Args:
        place: which one, and how it is searched.
        reformulator: of Narrow and Broad; None: the one that the settings name.

    Raises:
        ConfigError, DataError: a setting or the data are wrong.
    """

    def __init__(self, place: EnvSettings, reformulator: Reformulator | None = None) -> None:
        cache = Path(place.cache).expanduser() if place.cache else default_cache()
        data = Path(place.data).expanduser() if place.data else None
        path = find_collection(place.collection, data, hub=place.hub, cache=cache)
        self.name = Path(place.collection).name
        self.judged = read_judged(path, place.split_seed, place.train_share)
        if place.split_file:
            if self.judged.draw is None:
                raise ConfigError(
                    f"env {ENV}: the collection '{place.collection}' has both splits of its own; "
                    "leave split_file out"
                )
            write_draw(self.judged.draw, Path(place.split_file))
        encoder = load_encoder(place.encoder, place.model)
        self.library = Library(self.judged.passages, encoder, cache)
        made = reformulator or make_reformulator(place, self.library, cache)
        self.positions = Positions(self.library, place.actions, made, place.topk)
        self._levels: dict[str, Difficulty] = {}

    def questions(self, split: str) -> tuple[Judged, ...]:
        """The questions of a split."""
        return self.judged.questions[split]

    def asker(self, question: Judged) -> Asker:
        """A question as positions need it."""
        itself = self.library.place_of.get(question.id)
        # In ArguAna, questions are passages; spaces differ between files of one collection.
        is_itself = (
            itself is not None
            and self.library.passages[itself].text.split() == question.text.split()
        )
        return Asker(question.id, question.text, itself if is_itself else None)

    def level(self, question: Judged) -> Difficulty:
        """How hard a question is, by its single pass."""
        if question.id not in self._levels:
            scores = self.library.terms.score(self.library.terms.query(question.text))
            if (itself := self.asker(question).itself) is not None:
                scores[itself] = 0
            first = by_words(scores).first(CUTOFF).tolist()
            ids = [self.library.passages[place].id for place in first]
            self._levels[question.id] = difficulty_of(ids, question.qrels)
        return self._levels[question.id]

    def make_task(self, split: str, index: int) -> Task:
        """Question `index` of a split as a task."""
        question = self.questions(split)[index]
        return Task(
            id=f"{ENV}-{self.name}-{split}-{question.id}",
            split=split,
            index=index,
            question=question.text,
            kind=self.name,
            gold_ids=tuple(name for name, grade in question.qrels.items() if grade > 0),
            env=ENV,
            meta={"question": question.id},
            difficulty=str(self.level(question)),
        )


def make_reformulator(place: EnvSettings, library: Library, cache: Path) -> Reformulator:
    """The reformulator that the settings name."""
    if place.reformulator == "classical":
        return Classical(library)
    if place.reformulator == "policy":
        if place.policy:
            return Written(ask_weights(place.policy, cache / "reformulations.sqlite"))
        needs = "env.policy: a run, the folder of a model, or tiny"
    else:
        if place.url and place.endpoint_model:
            return Written(ask_endpoint(place.url, place.endpoint_model))
        needs = "env.url (such as http://localhost:8000/v1) and env.endpoint_model"
    raise ConfigError(f"env.reformulator={place.reformulator} needs {needs}")


_OPENING = threading.Lock()


def open_world(settings: EnvSettings) -> World:
    """The world of some settings; the same object wherever lists and tasks are the same."""
    told = {name: said for name, said in settings if name not in OF_EPISODES}
    # One at a time: many environments of a run ask for the same world at once.
    with _OPENING:
        return _open(EnvSettings(**told))


@functools.lru_cache(maxsize=8)
def _open(place: EnvSettings) -> World:
    return World(place)
