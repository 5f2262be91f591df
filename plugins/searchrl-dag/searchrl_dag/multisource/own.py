"""The environment `multisource_questions`: your own questions, planned over sources that you name.

Questions, corpora and splits are those of the environment `corpus`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from pydantic import Field

from searchrl import ConfigError, suggest
from searchrl.contracts import Action, RetrieverFactory, TagProtocol, Task
from searchrl.data import Dataset
from searchrl.envs import CorpusEnv, CorpusSettings, Found, SearchSettings
from searchrl_dag.multisource.sources import Sources, SourceSettings


@dataclass(frozen=True, kw_only=True)
class OwnQuestionsSettings(CorpusSettings, SourceSettings):
    """The settings of `corpus`, the sources, and which questions are used.

    Attributes:
        difficulty: only questions that their file says to be so hard (`level: hard`); null: all.
        num_questions: the number of training questions that are used, the first ones; null: all.
    """

    topk: int = 2
    max_turns: int = 2
    difficulty: str | None = None
    num_questions: Annotated[int, Field(ge=1)] | None = None
    search_timeout_s: Annotated[float, Field(gt=0)] = 60.0


class OwnQuestionsEnv(CorpusEnv):
    """Questions of your own; a plan searches General, News and Academic.

    A source without a retriever of its own has `retriever`. All sources are given the corpus of the
    questions; one that has passages of its own, such as `exa` or `http`, searches those. The
    protocol is `dag`, or one that reads plans and writes results as it does.
    """

    name: ClassVar[str] = "multisource_questions"
    settings_type: ClassVar[type[SearchSettings]] = OwnQuestionsSettings
    settings: OwnQuestionsSettings

    def __init__(
        self, *, protocol: TagProtocol, retriever: RetrieverFactory, **settings: Any
    ) -> None:
        super().__init__(protocol=protocol, retriever=retriever, **settings)
        self._sources = Sources(protocol, self.settings, self._indexes, f"env {self.name}")

    def load(self) -> Dataset:
        """As `CorpusEnv.load`, without the questions that the settings leave out."""
        data = super().load()
        wanted = self.settings.difficulty
        known = {one.difficulty for rows in data.questions.values() for one in rows} - {""}
        if wanted is not None and wanted not in known:
            raise ConfigError(
                f"env {self.name}: no question has the difficulty '{wanted}'."
                + suggest(wanted, known, "The files name none.")
            )
        kept = {
            split: tuple(one for one in rows if wanted in (None, one.difficulty))
            for split, rows in data.questions.items()
        }
        if "train" in kept:
            kept["train"] = kept["train"][: self.settings.num_questions]
        return replace(data, questions=kept)

    def build_indexes(self) -> None:
        """Make the retrievers of all sources; see `TextEnv.build_indexes` and `Sources.build`."""
        super().build_indexes()
        self._sources.build(lambda source: (self._data.key, self._data.passages))

    def look_up(self, task: Task, action: Action, turn: str) -> Found:
        """Run the plan of a turn; see `Sources.run`."""
        return self._sources.look_up(
            turn,
            lambda source: self.passages(task),
            lambda passages: self._ordered(task, tuple(passages)),
            self.budget,
        )
