"""The `regulations` environment: questions on school handbooks that only a search can answer.

Owns the numbering of tasks (index → school, kind, question), the prompt and the settings. The
episode is in `envs.text.TextEnv`, the world in `school.py` and `questions.py`, fixed handbooks in
`handbook_file.py`. Registered as `regulations`; made by `searchrl` or `gymnasium.make`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from searchrl.contracts import RetrieverFactory, TagProtocol
from searchrl.core.episode import Passage, Task
from searchrl.envs.data_files import Question
from searchrl.envs.regulations.drills import make_drill
from searchrl.envs.regulations.handbook_file import (
    Handbook,
    load_demo,
    load_handbook,
    load_questions,
)
from searchrl.envs.regulations.prose import Statement
from searchrl.envs.regulations.questions import (
    DRILL,
    LOOKUP,
    NOT_REGULATED,
    NOT_REGULATED_ANSWER,
    TASK_KINDS,
    TWO_HOP,
    draft_task,
)
from searchrl.envs.regulations.school import NUM_SCHOOLS, Difficulty, School, make_school
from searchrl.envs.regulations.searching import content_words
from searchrl.envs.text import Matches, TextEnv, same_answer
from searchrl.errors import ConfigError, suggest

TASKS_PER_SCHOOL = 10
"""Tasks per school; no two ask the same."""

DEFAULT_MIX: Mapping[str, float] = {LOOKUP: 0.5, TWO_HOP: 0.3, NOT_REGULATED: 0.2}
"""Shares of the task kinds."""

SEEN_WORDING, UNSEEN_WORDING = "seen_wording", "unseen_wording"
"""Slices of the test split: whether training shows the question's and the articles' wordings."""

_GOLDEN = (math.sqrt(5) - 1) / 2
_RULE = "Answer from the handbook of {school}; if it does not say, answer: " + NOT_REGULATED_ANSWER


class RegulationsEnv(TextEnv):
    """Questions about one school's handbook per episode; every school has its own rules.

    Splits `train` and `test` hold generated schools, disjoint in content and name; `demo` asks
    about the readable handbook that comes with the package. With `handbook` set, every split asks
    the questions about that handbook instead.

    Args:
        protocol, retriever: as for `TextEnv`.
        mix: weights of the task kinds `lookup`, `two_hop`, `not_regulated` and `drill` (random
            words, for a cold start); kinds left out are 0.
        difficulty: `easy`, `normal` or `hard`, see `Difficulty`.
        handbook: None (generated schools), "demo", or the path of a .md or .json file.
        questions: path of a JSON or JSONL file with questions about `handbook`.
        topk, max_turns, world_seed, render_mode, matches: as for `TextEnv`.

    Raises:
        ConfigError: a setting is wrong.
        DataError: a handbook or question file holds something unusable.
    """

    name: ClassVar[str] = "regulations"
    splits: tuple[str, ...] = ("train", "validation", "test", "demo")

    def __init__(
        self,
        *,
        protocol: TagProtocol,
        retriever: RetrieverFactory,
        mix: Mapping[str, float] | None = None,
        difficulty: str = Difficulty.NORMAL,
        handbook: str | Path | None = None,
        questions: str | Path | None = None,
        topk: int = 3,
        shuffle: bool = False,
        max_turns: int = 4,
        world_seed: int = 0,
        render_mode: str | None = None,
        matches: Matches = same_answer,
    ) -> None:
        super().__init__(
            protocol=protocol,
            retriever=retriever,
            topk=topk,
            shuffle=shuffle,
            max_turns=max_turns,
            world_seed=world_seed,
            render_mode=render_mode,
            matches=matches,
        )
        self.mix = _ensure_mix(DEFAULT_MIX if mix is None else mix)
        self.difficulty = _ensure_difficulty(difficulty)
        self._is_generated = handbook is None
        self._handbook, self._questions = _load(handbook, questions)

    def num_tasks(self, split: str) -> int:
        """How many tasks `split` has."""
        self.ensure_split(split)
        if self._is_fixed(split):
            return len(self._questions)
        return NUM_SCHOOLS[split] * TASKS_PER_SCHOOL

    def kind_of(self, split: str, index: int) -> str:
        """The kind of task `index`.

        Drawn from a low-discrepancy sequence, so that any row of tasks has the shares of `mix`.
        """
        offset = Random(f"mix/{self.world_seed}/{split}").random()
        point = math.modf(index * _GOLDEN + offset)[0]
        for kind, upto in self.mix:
            if point < upto:
                return kind
        return self.mix[-1][0]

    def make_task(self, split: str, index: int) -> Task:
        """Task `index` of `split`; neighbours are about different schools."""
        if self._is_fixed(split):
            row = self._questions[index]
            meta = {"queries": list(row.queries), "bridge": row.bridge}
            return row.as_task(self.name, split, index, school=self._handbook.name, **meta)
        num_schools = NUM_SCHOOLS[split]
        slot, number = divmod(index, num_schools)
        kind = self.kind_of(split, index)
        if kind == DRILL:
            return self._drill_task(split, index, number)
        earlier = (self.kind_of(split, number + i * num_schools) for i in range(slot))
        school = self.school(split, number)
        draft = draft_task(school, kind, sum(k == kind for k in earlier))
        return Task(
            id=f"{self.name}-{split}-{index}",
            split=split,
            index=index,
            question=draft.question.text,
            answers=draft.answers,
            kind=kind,
            gold_ids=draft.gold_ids,
            env=self.name,
            slices=(SEEN_WORDING if draft.is_seen else UNSEEN_WORDING,) if split == "test" else (),
            meta={
                "school": school.name,
                "school_number": number,
                "queries": list(draft.queries),
                "thin_query": school.finder.commonest(draft.question.query),
                "bridge": draft.bridge,
                "value_kind": str(draft.value_kind),
                "abouts": list(draft.abouts),
                "gists": list(draft.gists),
                "condition": draft.condition,
                "template": draft.question.template,
            },
        )

    def _drill_task(self, split: str, index: int, number: int) -> Task:
        drill = make_drill(self.world_seed, split, index)
        query = content_words(drill.question)
        return Task(
            id=f"{self.name}-{split}-{index}",
            split=split,
            index=index,
            question=drill.question,
            answers=drill.found.value.answers if drill.found else (NOT_REGULATED_ANSWER,),
            kind=DRILL,
            gold_ids=drill.gold_ids,
            env=self.name,
            meta={
                "school": self.school(split, number).name,
                "drill": index,
                "queries": [query],
                "thin_query": query.split()[0],
                "bridge": "",
                "value_kind": str(drill.kind),
                "abouts": [drill.gist],
                "gists": [drill.gist],
                "condition": "",
            },
        )

    def make_ask_task(self, question: str, split: str, options: dict[str, Any]) -> Task:
        """A user's question about `options["school"]` (a number) or about the fixed handbook."""
        if self._is_fixed(split):
            meta: dict[str, Any] = {"school": self._handbook.name}
        else:
            number = self._ensure_school(split, options.get("school", 0))
            meta = {"school": self.school(split, number).name, "school_number": number}
        return replace(super().make_ask_task(question.strip(), split, options), meta=meta)

    def make_prompt(self, task: Task) -> str:
        """The question, then where to answer it from and what to say if it is not there.

        Half of the drills are bare questions, as other environments put them.
        """
        if task.kind == DRILL and task.index % 2:
            return task.question
        return f"{task.question}\n{_RULE.format(school=task.meta['school'])}"

    def passages(self, task: Task) -> tuple[str, Sequence[Passage]]:
        """The articles of the task's handbook, or of the drill."""
        if "drill" in task.meta:
            drill = make_drill(self.world_seed, task.split, task.meta["drill"])
            key = f"drill/{self.world_seed}/{task.split}/{task.index}"
            return key, [article.passage for article in drill.articles]
        if "school_number" not in task.meta:
            return self._handbook.key, self._handbook.passages
        school = self.school(task.split, task.meta["school_number"])
        return school.key, school.passages

    def statements(self, task: Task) -> Mapping[str, Sequence[Statement]]:
        """What each article states, by its id; empty for a handbook that was not generated."""
        if "drill" in task.meta:
            articles = make_drill(self.world_seed, task.split, task.meta["drill"]).articles
        elif "school_number" in task.meta:
            articles = self.school(task.split, task.meta["school_number"]).articles
        else:
            return {}
        return {article.passage.id: article.statements for article in articles}

    def school(self, split: str, number: int) -> School:
        """The generated school `number` of `split`, with everything its handbook states."""
        return make_school(self.world_seed, split, number, self.difficulty)

    def _is_fixed(self, split: str) -> bool:
        return split == "demo" or not self._is_generated

    def _ensure_school(self, split: str, number: object) -> int:
        if isinstance(number, int) and 0 <= number < NUM_SCHOOLS[split]:
            return number
        raise ConfigError(
            f"env {self.name}: split '{split}' has schools 0 to {NUM_SCHOOLS[split] - 1}, "
            f"got {number!r}."
        )


def _ensure_mix(mix: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """The kinds with their cumulative shares."""
    for kind, weight in mix.items():
        if kind not in TASK_KINDS:
            raise ConfigError(f"env.mix has no kind '{kind}'." + suggest(kind, TASK_KINDS))
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not weight >= 0:
            raise ConfigError(f"env.mix: the weight of '{kind}' must be ≥ 0, got {weight!r}.")
    total = math.fsum(mix.values())
    if not 0 < total < math.inf:
        raise ConfigError(f"env.mix needs a positive, finite total weight, got {dict(mix)}.")
    kinds = [kind for kind in TASK_KINDS if mix.get(kind, 0) > 0]
    upto, shares = 0.0, []
    for kind in kinds:
        upto += mix[kind] / total
        shares.append((kind, upto))
    return tuple(shares)


def _ensure_difficulty(name: str) -> Difficulty:
    if name in list(Difficulty):
        return Difficulty(name)
    raise ConfigError(f"env.difficulty: no level {name!r}." + suggest(str(name), list(Difficulty)))


def _load(
    handbook: str | Path | None, questions: str | Path | None
) -> tuple[Handbook, tuple[Question, ...]]:
    if handbook is None or handbook == "demo":
        demo, demo_questions = load_demo()
        if questions is None:
            return demo, demo_questions
        if handbook is None:
            raise ConfigError("env.questions needs env.handbook: the file the questions are about.")
        return demo, load_questions(Path(questions), demo)
    own = load_handbook(Path(handbook))
    return own, () if questions is None else load_questions(Path(questions), own)
