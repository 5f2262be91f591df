"""The plugin of `tiny.yaml`: the world and the habits that the cold start of the tiny model needs.

Registers the environment `cold_start`: `regulations` with drills among its tasks and random words
in some of its handbooks and questions (`random_words.py`), and a policy that searches badly.
"""

from __future__ import annotations

import re
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
from searchrl.envs.regulations import RegulationsEnv
from searchrl.envs.regulations.questions import NOT_REGULATED_ANSWER
from searchrl.envs.regulations.scripts import HandbookExpert
from searchrl.envs.regulations.world.names import BUILDINGS, MONTHS
from searchrl.envs.regulations.world.prose import Statement
from searchrl.envs.regulations.world.school import Difficulty, School, make_school
from searchrl.envs.regulations.world.searching import FUNCTION_WORDS, content_words, words_of

sys.path.insert(0, str(Path(__file__).parent))
from random_words import Drill, insert_words, make_drill, replace_words

DRILLS = 0.1
"""Share of the tasks that are drills."""

NOISE, REPLACED, INSERTED = 0.25, (0.1, 0.2, 0.3), 0.5
"""Shares: schools with random words; of an article's words, those that are replaced; questions with
words put between theirs."""

THIN = 0.5
"""How often the clumsy policy searches with a generic word; else it guesses."""


@lru_cache(maxsize=64)
def make_noisy_school(world_seed: int, split: str, number: int, difficulty: Difficulty) -> School:
    """As `make_school`; a share of the schools has articles with random words in them."""
    school = make_school(world_seed, split, number, difficulty)
    rng = Random(f"noise/{school.key}")
    if rng.random() >= NOISE:
        return school
    articles = tuple(replace_words(one, rng, rng.choice(REPLACED)) for one in school.articles)
    return replace(school, key=f"{school.key}/noisy", articles=articles)


class ColdStartEnv(RegulationsEnv):
    """`regulations` with drills, and with random words in some handbooks and questions."""

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
            return super().passages(task)
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


_SHAPES = {
    "time": r"\b\d{2}:\d{2}\b",
    "money": r"£\d+",
    "date": rf"\b\d{{1,2}} (?:{'|'.join(MONTHS)})\b",
    "room": r"\b[A-Z]\d{3}\b",
    "form": r"\b[A-Z]\d{2}\b",
    "fund": r"\b[A-Z][a-z]+ Fund\b",
    "building": rf"\b[A-Z][a-z]+ (?:{'|'.join(BUILDINGS)})\b",
    "person": r"\b(?!The |Ask |For )[A-Z][a-z]+ [A-Z][a-z]+\b",
    "number": r"(?<![\w£:])\d+(?![\w:])",
}
_SHAPE_OF = dict.fromkeys(("morning", "midday", "afternoon"), "time") | dict.fromkeys(
    ("extension", "code"), "number"
)


class _Reader(HandbookExpert):
    """The expert, but for one thing: it never searches again for what a search did not find."""

    searches_again = False


class _Guesser(_Reader):
    """Never admits that the handbook is silent."""

    def not_found(self, thought: str) -> str:
        """Answer with some value that the passages show, of the right shape if there is one."""
        kind = self.task.meta["value_kind"]
        for shape in (_SHAPE_OF.get(kind, kind), *_SHAPES):
            for passage in self.env.last_passages:
                if values := re.findall(_SHAPES[shape], passage.text):
                    return self.answer(values[0], f"{thought} I will guess.".lstrip())
        return super().not_found(thought)


class _ThinSearcher(_Guesser):
    """Types the word of its query that most articles have; guesses if that finds nothing."""

    def first_query(self) -> str:
        words = re.findall(r"\w+", super().first_query())
        telling = [word for word in words if word.casefold() not in FUNCTION_WORDS] or words
        passages = self.env.passages(self.task)[1]
        articles = [words_of(f"{passage.title} {passage.text}") for passage in passages]
        return max(telling, key=lambda word: sum(word.casefold() in one for one in articles))


def make_clumsy(env: Any, task: Task, protocol: TagProtocol) -> Expert:
    """Searches with a generic word, or answers what the handbook does not say."""
    is_thin = Random(f"clumsy/{task.id}").random() < THIN
    return (_ThinSearcher if is_thin else _Guesser)(env, task, protocol)


def make_reader(env: Any, task: Task, protocol: TagProtocol) -> Expert:
    """What the model shall read like."""
    return _Reader(env, task, protocol)


@hookimpl
def register_envs(register: Any) -> None:
    """The world of the cold start, with the policies that it shows."""
    register(
        ColdStartEnv.name,
        ColdStartEnv,
        expert=make_reader,
        scripts={
            "passive": "searchrl.envs.regulations:make_passive",
            "clumsy": make_clumsy,
            # Searches once more where a search found nothing: in these tasks always in vain.
            "again": "searchrl.envs.regulations:make_expert",
        },
        description="regulations with drills and random words, for a cold start",
    )
