"""The environment `multisource`: questions whose answer is in one of three sources.

A plan is run, its results are shown, an answer ends the episode. The world is in `world` and
`questions`; `sources` runs a plan.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from searchrl.contracts import Action, Passage, RetrieverFactory, TagProtocol, Task
from searchrl.envs import Found, Mix, SearchSettings, TextEnv
from searchrl_dag.multisource.questions import (
    BRIDGE,
    COMPARE,
    COUNT,
    FILTER,
    KINDS,
    LOOKUP,
    draft_task,
)
from searchrl_dag.multisource.sources import Corpus, Sources, SourceSettings
from searchrl_dag.multisource.world import World, make_world

NUM_TASKS: Mapping[str, int] = {"train": 20_000, "validation": 400, "test": 1_000}

TEST_MIX: Mapping[str, float] = {LOOKUP: 0.4, BRIDGE: 0.3, COMPARE: 0.1, FILTER: 0.1, COUNT: 0.1}
"""Shares of the kinds of task in validation and test ..."""

TRAIN_MIX: Mapping[str, float] = {
    LOOKUP: 0.55,
    BRIDGE: 0.2,
    COMPARE: 0.1,
    FILTER: 0.05,
    COUNT: 0.1,
}
"""... and in training: where several sources must be right at once, an answer says less of each."""

SEEN_WORDING, UNSEEN_WORDING = "seen_wording", "unseen_wording"
"""Slices of the test split: training shows the wordings of question and passages, or not."""


@dataclass(frozen=True, kw_only=True)
class MultisourceSettings(SourceSettings):
    """The sources, and which tasks there are.

    Attributes:
        mix: weights of the kinds in all splits; those left out are 0. None: `TRAIN_MIX` in
            training, `TEST_MIX` elsewhere.
        joint_table: where a person's facts are depends on the noun and the query before at once.
    """

    mix: Mapping[str, float] | None = None
    joint_table: bool = False


class MultisourceEnv(TextEnv):
    """Questions over three sources; which of them has what is a hidden table of the world.

    A plan is run level by level; a query that refers to a parent gets the parent's result. With the
    default of two turns there is one plan and then the answer, so a query that needs another one's
    result can only get it inside the plan.

    The protocol is `dag`, or one that reads plans and writes results as it does.
    """

    name: ClassVar[str] = "multisource"
    splits: tuple[str, ...] = tuple(NUM_TASKS)
    settings_type: ClassVar[type[SearchSettings]] = MultisourceSettings
    settings: MultisourceSettings

    def __init__(
        self, *, protocol: TagProtocol, retriever: RetrieverFactory, **settings: Any
    ) -> None:
        super().__init__(protocol=protocol, retriever=retriever, **settings)
        mix = self.settings.mix
        train, other = (TRAIN_MIX, TEST_MIX) if mix is None else (mix, mix)
        self._mixes = {s: Mix(train if s == "train" else other, KINDS) for s in NUM_TASKS}
        self._sources = Sources(protocol, self.settings, self._indexes, f"env {self.name}")

    def num_tasks(self, split: str) -> int:
        """The number of tasks of `split`."""
        return NUM_TASKS[self.ensure_split(split)]

    def kind_of(self, split: str, index: int) -> str:
        """The kind of task `index`."""
        return self._mixes[split].kind_of(index, f"multisource/mix/{self.world_seed}/{split}")

    def make_task(self, split: str, index: int) -> Task:
        """Task `index` of `split`. Its `meta` holds the plan that answers it."""
        kind = self.kind_of(split, index)
        key = f"multisource/{self.world_seed}/{split}/{index}"
        draft = draft_task(self.world(split), kind, key, split)
        return Task(
            id=f"{self.name}-{split}-{index}",
            split=split,
            index=index,
            question=draft.question,
            answers=(draft.answer,),
            kind=kind,
            gold_ids=tuple(step.fact.id for step in draft.steps),
            env=self.name,
            slices=(SEEN_WORDING if draft.is_seen else UNSEEN_WORDING,) if split == "test" else (),
            meta={
                "nodes": [[step.label, step.query, step.fact.source] for step in draft.steps],
                "edges": [[step.parent, step.label] for step in draft.steps if step.parent],
                "asked": draft.asked,
            },
        )

    def world(self, split: str) -> World:
        """Places, people, facts and the three corpora of a split."""
        return make_world(self.world_seed, split, self.settings.joint_table)

    def passages(self, task: Task) -> tuple[str, Sequence[Passage]]:
        """Every passage of every source."""
        corpora = self.world(task.split).corpora.values()
        return self._key(task.split, "all"), tuple(p for corpus in corpora for p in corpus)

    def build_indexes(self) -> None:
        """Make the retrievers of all sources and splits, before any time limit runs."""
        for split in self.splits:
            self._sources.build(functools.partial(self._corpus, split))

    def look_up(self, task: Task, action: Action, turn: str) -> Found:
        """Run the plan of a turn; see `Sources.run`."""
        return self._sources.look_up(
            turn,
            functools.partial(self._corpus, task.split),
            lambda passages: self._ordered(task, tuple(passages)),
            self.budget,
        )

    def _corpus(self, split: str, source: str) -> Corpus:
        """The passages of a source in a split, with their name."""
        return self._key(split, source), self.world(split).corpora[source]

    def _key(self, split: str, source: str) -> str:
        table = "joint" if self.settings.joint_table else "single"
        return f"multisource/{table}/{self.world_seed}/{split}/{source}"
