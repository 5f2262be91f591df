"""The environment `multisource_questions`: your own questions, planned over sources that you name.

Owns its settings. Questions, corpora and splits are those of the environment `corpus`, the sources
are `sources`. Registered as `multisource_questions`; made by `searchrl` or `gymnasium.make`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from searchrl.contracts import RetrieverFactory, TagProtocol
from searchrl.core.episode import Action, Passage, Task
from searchrl.envs.corpus import CorpusEnv
from searchrl.envs.formats.dataset import Dataset, Paths
from searchrl.envs.results import Found
from searchrl.envs.text import Matches, same_answer
from searchrl.errors import ConfigError, suggest
from searchrl_dag.multisource.sources import Sources


class OwnQuestionsEnv(CorpusEnv):
    """Questions of your own; a plan searches General, News and Academic.

    A source without a retriever of its own has `retriever`. All sources are given the corpus of the
    questions; one that has passages of its own, such as `exa` or `http`, searches those.

    Args:
        protocol: `dag`, or one that reads plans and writes results as it does.
        retriever: of every source that has none of its own.
        general, news, academic: the retrievers of these sources.
        questions, corpus, test_questions, test_frac: as for the environment `corpus`.
        difficulty: only questions that their file says to be so hard (`level: hard`); null: all.
        num_questions: how many questions of the training split are used, the first ones; null: all.
        parent_results: whether queries get the results of their parents.
        topk: passages shown for each query.
        search_timeout_s: how long one source may take for the queries of one level.
        shuffle, max_turns, world_seed, render_mode, matches: as for `CorpusEnv`.

    Raises:
        ConfigError: a setting is missing or wrong.
        DataError: files hold rows that cannot be used; names all of them.
    """

    name: ClassVar[str] = "multisource_questions"

    def __init__(
        self,
        *,
        protocol: TagProtocol,
        retriever: RetrieverFactory,
        general: RetrieverFactory | None = None,
        news: RetrieverFactory | None = None,
        academic: RetrieverFactory | None = None,
        questions: Paths | None = None,
        corpus: str | Path | None = None,
        test_questions: Paths | None = None,
        test_frac: float = 0.2,
        difficulty: str | None = None,
        num_questions: Annotated[int, Field(ge=1)] | None = None,
        parent_results: bool = True,
        topk: int = 2,
        shuffle: bool = False,
        max_turns: int = 2,
        search_timeout_s: Annotated[float, Field(gt=0)] = 60.0,
        world_seed: int = 0,
        render_mode: str | None = None,
        matches: Matches = same_answer,
    ) -> None:
        self.difficulty = difficulty
        self.num_questions = num_questions
        super().__init__(
            protocol=protocol,
            retriever=retriever,
            questions=questions,
            corpus=corpus,
            test_questions=test_questions,
            test_frac=test_frac,
            topk=topk,
            shuffle=shuffle,
            max_turns=max_turns,
            world_seed=world_seed,
            render_mode=render_mode,
            matches=matches,
        )
        self._sources = Sources(
            protocol,
            {"general": general, "news": news, "academic": academic},
            self._indexes,
            topk=topk,
            parent_results=parent_results,
            timeout_s=search_timeout_s,
            owner=f"env {self.name}",
        )

    def load(
        self, questions: Paths | None, corpus: str | Path | None, test_questions: Paths | None
    ) -> Dataset:
        """As `CorpusEnv.load`, without the questions that the settings leave out."""
        data = super().load(questions, corpus, test_questions)
        wanted = self.difficulty
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
            kept["train"] = kept["train"][: self.num_questions]
        return replace(data, questions=kept)

    def build_indexes(self) -> None:
        """Make the retrievers of all sources; see `TextEnv.build_indexes` and `Sources.build`."""
        super().build_indexes()
        self._sources.build(lambda source: (self._data.key, self._data.passages))

    def look_up(self, task: Task, action: Action, turn: str) -> Found:
        """Run the plan of a turn; see `PlanRunner.run`."""

        def order(passages: Sequence[Passage]) -> tuple[Passage, ...]:
            return self._ordered(task, tuple(passages))

        return self._sources.look_up(turn, lambda source: self.passages(task), order, self.budget)
