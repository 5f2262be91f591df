"""The plugin of `tiny.yaml`: the world and the habits that the cold start of the tiny model needs.

Registers the environment `cold_start`: `regulations` with drills among its tasks and random words
in some of its handbooks and questions (`random_words.py`), without the articles that only a search
in other words finds, and an expert that searches once for each hop.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from searchrl import hookimpl
from searchrl.contracts import Expert, TagProtocol
from searchrl.core.episode import Passage, Task
from searchrl.envs.regulations import RegulationsEnv, scripts
from searchrl.envs.regulations.questions import CROWDED, IN_OTHER_WORDS, NOT_REGULATED_ANSWER
from searchrl.envs.regulations.scripts import HandbookExpert
from searchrl.envs.regulations.world.prose import Statement
from searchrl.envs.regulations.world.school import Difficulty, School, make_school
from searchrl.envs.regulations.world.searching import content_words

sys.path.insert(0, str(Path(__file__).parent))
from random_words import Drill, insert_words, make_drill, replace_words

DRILLS = 0.1
"""Share of the tasks that are drills."""

NOISE, REPLACED, INSERTED = 0.25, (0.1, 0.2, 0.3), 0.5
"""Shares: schools with random words; of an article's words, those that are replaced; questions with
words put between theirs."""

OWN_NAME = 0.25
"""Share of the second searches for a club, form, venue or fund that say what is wanted and not the
other names: neither finds anything here."""


@lru_cache(maxsize=4096)  # all of training: they come again
def make_noisy_school(world_seed: int, split: str, number: int, difficulty: Difficulty) -> School:
    """As `make_school`; a share of the schools has articles with random words in them."""
    school = make_school(world_seed, split, number, difficulty)
    rng = Random(f"noise/{school.key}")
    if rng.random() >= NOISE:
        return school
    articles = tuple(replace_words(one, rng, rng.choice(REPLACED)) for one in school.articles)
    return replace(school, key=f"{school.key}/noisy", articles=articles)


class ColdStartEnv(RegulationsEnv):
    """`regulations` with drills, and with random words in some handbooks and questions.

    The article that a task needs other words for is taken out of its handbook: whoever searches
    again does so in vain, and is right to say that it is not regulated.
    """

    name: ClassVar[str] = "cold_start"

    @staticmethod
    def make_school(world_seed: int, split: str, number: int, difficulty: Difficulty) -> School:
        """Build a school; some have random words."""
        return make_noisy_school(world_seed, split, number, difficulty)

    def make_task(self, split: str, index: int) -> Task:
        """A drill, or a task of `regulations` in which random words may stand."""
        rng = Random(f"cold start/{self.world_seed}/{split}/{index}")
        if rng.random() < DRILLS:
            return self._drill_task(split, index)
        task = super().make_task(split, index)
        if task.kind in IN_OTHER_WORDS:
            return _take_out(task, rng)
        number = task.meta.get("school_number")
        is_noisy = number is not None and self.school(split, number).key.endswith("/noisy")
        if not is_noisy or rng.random() >= INSERTED:
            return task
        # The first query is a piece of the question, and stays one.
        query, *others = task.meta["queries"]
        longer = insert_words(query, rng)
        meta = {**task.meta, "queries": [longer, *others]}
        return replace(task, question=task.question.replace(query, longer), meta=meta)

    def make_prompt(self, task: Task) -> str:
        """Half of the drills are bare questions, as other environments put them."""
        is_bare = "drill" in task.meta and task.index % 2
        return task.question if is_bare else super().make_prompt(task)

    def passages(self, task: Task) -> tuple[str, Sequence[Passage]]:
        """The articles of the task's handbook, or of the drill."""
        if "drill" not in task.meta:
            key, passages = super().passages(task)
            if missing := task.meta.get("missing"):
                passages = [one for one in passages if one.id != missing]
                key = f"{key}/without/{missing}"
            return key, passages
        key = f"drill/{self.world_seed}/{task.split}/{task.index}"
        return key, [article.passage for article in self._drill(task.split, task.index).articles]

    def statements(self, task: Task) -> Mapping[str, Sequence[Statement]]:
        """What each article states, by its id."""
        if "drill" not in task.meta:
            return super().statements(task)
        articles = self._drill(task.split, task.index).articles
        return {article.passage.id: article.statements for article in articles}

    def _drill(self, split: str, index: int) -> Drill:
        return make_drill(self.world_seed, split, index)

    def _drill_task(self, split: str, index: int) -> Task:
        drill = self._drill(split, index)
        return Task(
            id=f"{self.name}-{split}-{index}",
            split=split,
            index=index,
            question=drill.question,
            answers=drill.found.value.answers if drill.found else (NOT_REGULATED_ANSWER,),
            kind="drill",
            gold_ids=drill.gold_ids,
            env=self.name,
            meta={
                "school": make_noisy_school(self.world_seed, split, 0, self.difficulty).name,
                "drill": index,
                "queries": [content_words(drill.question)],
                "value_kind": str(drill.kind),
                "abouts": [drill.gist],
                "gists": [drill.gist],
                "condition": "",
            },
        )


def _take_out(task: Task, rng: Random) -> Task:
    """The task of a handbook without the article that only other words find."""
    *before, missing = task.gold_ids
    meta = {**task.meta, "missing": missing}
    if rng.random() < OWN_NAME:
        meta["again"] = meta["gists"][int(task.kind == CROWDED)]
    return replace(task, answers=(NOT_REGULATED_ANSWER,), gold_ids=tuple(before), meta=meta)


class _Reader(HandbookExpert):
    """The expert, but for one thing: it never searches again for what a search did not find."""

    searches_again = False


def make_passive(env: Any, task: Task, protocol: TagProtocol) -> Expert:
    """Answers at once, always the same for a kind of value: a guess that differs cannot be learned,
    and what cannot be learned costs reading."""
    return scripts.make_passive(env, replace(task, id=task.meta["value_kind"]), protocol)


@hookimpl
def register_envs(register: Any) -> None:
    """The world of the cold start, with the policies that it shows."""
    register(
        ColdStartEnv.name,
        ColdStartEnv,
        expert=_Reader,
        scripts={
            "passive": make_passive,
            # Searches once more where a search found nothing: in this world always in vain.
            "again": "searchrl.envs.regulations:make_expert",
        },
        description="regulations with drills and random words, for a cold start",
    )
