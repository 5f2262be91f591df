"""The environment `multisource_questions`: your own questions, planned over sources that you name.

Owns its settings. Questions, corpora and splits are those of the environment `corpus`, the sources
are `sources`. Registered as `multisource_questions`; made by `searchrl` or `gymnasium.make`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from searchrl.contracts import RetrieverFactory, TagProtocol
from searchrl.core.episode import Action, Passage, Task
from searchrl.envs.corpus import CorpusEnv
from searchrl.envs.formats.dataset import Paths
from searchrl.envs.results import Found
from searchrl.envs.text import Matches, same_answer
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
        parent_results: bool = True,
        topk: int = 2,
        shuffle: bool = False,
        max_turns: int = 2,
        search_timeout_s: Annotated[float, Field(gt=0)] = 60.0,
        world_seed: int = 0,
        render_mode: str | None = None,
        matches: Matches = same_answer,
    ) -> None:
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

    def look_up(self, task: Task, action: Action, turn: str) -> Found:
        """Run the plan of a turn; see `PlanRunner.run`."""

        def order(passages: Sequence[Passage]) -> tuple[Passage, ...]:
            return self._ordered(task, tuple(passages))

        return self._sources.look_up(turn, lambda source: self.passages(task), order, self.budget)
