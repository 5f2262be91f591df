"""The `regulations` environment: questions on school handbooks that only a search can answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from searchrl.contracts import RetrieverFactory, TagProtocol
from searchrl.core.drawing import Drawing, Table
from searchrl.core.episode import Episode, Passage, Task
from searchrl.data.questions import Question
from searchrl.envs.regulations.handbook_file import (
    Handbook,
    load_demo,
    load_handbook,
    load_questions,
)
from searchrl.envs.regulations.questions import (
    CROWDED,
    LOOKUP,
    NOT_REGULATED,
    NOT_REGULATED_ANSWER,
    RENAMED,
    REWORDED,
    TASK_KINDS,
    THREE_HOP,
    TWO_HOP,
    TaskKind,
    draft_task,
)
from searchrl.envs.regulations.world.prose import Statement
from searchrl.envs.regulations.world.school import (
    LEVELS,
    NUM_SCHOOLS,
    Difficulty,
    School,
    make_school,
)
from searchrl.envs.splits import Mix
from searchrl.envs.text import SearchSettings, TextEnv
from searchrl.errors import ConfigError

TASKS_PER_SCHOOL = 10  # no two ask the same

MIXES: Mapping[Difficulty, Mapping[str, float]] = {
    Difficulty.EASY: {LOOKUP: 0.5, TWO_HOP: 0.3, NOT_REGULATED: 0.2},
    Difficulty.NORMAL: {
        LOOKUP: 0.24,
        REWORDED: 0.12,
        RENAMED: 0.12,
        TWO_HOP: 0.2,
        CROWDED: 0.12,
        NOT_REGULATED: 0.2,
    },
    Difficulty.HARD: {
        LOOKUP: 0.15,
        REWORDED: 0.15,
        TWO_HOP: 0.25,
        THREE_HOP: 0.25,
        NOT_REGULATED: 0.2,
    },
}
"""Shares of the task kinds at each level."""

MAX_DRAWN = 300
"""Characters of an article that are drawn."""
_RULE = "Answer from the handbook of {school}; if it does not say, answer: " + NOT_REGULATED_ANSWER


@dataclass(frozen=True, kw_only=True)
class RegulationsSettings(SearchSettings):
    """Tasks and their world, besides the settings of every search environment.

    Attributes:
        mix: weights of the task kinds of the level (`MIXES`); kinds left out are 0.
        difficulty: `easy` (one rule, one sentence), `normal` (prose with exceptions) or `hard`
            (rules that others replace, up to three hops).
        handbook: None (generated schools), "demo", or the path of a .md or .json file.
        questions: path of a JSON or JSONL file with questions about `handbook`.
    """

    mix: Mapping[TaskKind, float] | None = None
    difficulty: Difficulty = Difficulty.NORMAL
    handbook: str | Path | None = None
    questions: str | Path | None = None


class RegulationsEnv(TextEnv):
    """Questions about one school's handbook per episode; every school has its own rules.

    Splits `train` and `test` hold generated schools, disjoint in content and name; `demo` asks
    about the readable handbook that comes with the package. With `handbook` set, every split asks
    the questions about that handbook instead. `DataError` names rows that cannot be used.
    """

    name: ClassVar[str] = "regulations"
    splits: tuple[str, ...] = ("train", "validation", "test", "demo")
    settings_type: ClassVar[type[SearchSettings]] = RegulationsSettings
    settings: RegulationsSettings

    def __init__(
        self, *, protocol: TagProtocol, retriever: RetrieverFactory, **settings: Any
    ) -> None:
        super().__init__(protocol=protocol, retriever=retriever, **settings)
        given = self.settings
        self.difficulty = Difficulty(given.difficulty)
        mix = given.mix
        kinds = None if mix is None else {str(kind): weight for kind, weight in mix.items()}
        self._mix = _make_mix(kinds, self.difficulty)
        self._is_generated = given.handbook is None
        self._held: tuple[tuple[str, int], School] | None = None
        self._handbook, self._questions = _load(given.handbook, given.questions)

    def num_tasks(self, split: str) -> int:
        """The number of tasks of `split`."""
        self.ensure_split(split)
        if self._is_fixed(split):
            return len(self._questions)
        return NUM_SCHOOLS[split] * TASKS_PER_SCHOOL

    def kind_of(self, split: str, index: int) -> str:
        """The kind of task `index`."""
        return self._mix.kind_of(index, f"mix/{self.world_seed}/{split}")

    def make_task(self, split: str, index: int) -> Task:
        """Task `index` of `split`; neighbours are about different schools."""
        if self._is_fixed(split):
            row = self._questions[index]
            meta = {"queries": list(row.queries), "bridge": row.bridge}
            return row.as_task(self.name, split, index, school=self._handbook.name, **meta)
        num_schools = NUM_SCHOOLS[split]
        slot, number = divmod(index, num_schools)
        kind = self.kind_of(split, index)
        earlier = (self.kind_of(split, number + i * num_schools) for i in range(slot))
        ordinal = sum(one == kind for one in earlier)
        with _DRAFTING:  # once for a group, whose episodes begin at the same time
            draft = _draw(
                self.make_school, self.world_seed, split, number, self.difficulty, kind, ordinal
            )
        place = {"school": self.school(split, number).name, "school_number": number}
        return replace(
            draft,
            id=f"{self.name}-{split}-{index}",
            split=split,
            index=index,
            kind=kind,
            env=self.name,
            slices=draft.slices if split == "test" else (),
            difficulty=str(self.difficulty),
            meta={**place, **draft.meta},
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
        """The question, the name of the handbook, and the answer if it is not there."""
        return f"{task.question}\n{_RULE.format(school=task.meta['school'])}"

    def passages(self, task: Task) -> tuple[str, Sequence[Passage]]:
        """The articles of the task's handbook."""
        if "school_number" not in task.meta:
            return self._handbook.key, self._handbook.passages
        school = self.school(task.split, task.meta["school_number"])
        return school.key, school.passages

    def draw_episode(self, episode: Episode) -> Sequence[Drawing]:
        """The gold articles, and the turn that showed each."""
        return _draw_evidence(episode, self.passages(episode.task)[1])

    def statements(self, task: Task) -> Mapping[str, Sequence[Statement]]:
        """The statements of each article, by its id; empty for a handbook from a file."""
        if "school_number" not in task.meta:
            return {}
        articles = self.school(task.split, task.meta["school_number"]).articles
        return {article.passage.id: article.statements for article in articles}

    @staticmethod
    def make_school(world_seed: int, split: str, number: int, difficulty: Difficulty) -> School:
        """Build a school; a pure function."""
        return make_school(world_seed, split, number, difficulty)

    def school(self, split: str, number: int) -> School:
        """The generated school `number` of `split`, with everything its handbook states.

        The last one is held: episodes ask for it again and again.
        """
        if self._held is None or self._held[0] != (split, number):
            school = self.make_school(self.world_seed, split, number, self.difficulty)
            self._held = (split, number), school
        return self._held[1]

    @property
    def has_replaced(self) -> bool:
        """True if an article may say that another one no longer holds."""
        return self._is_generated and LEVELS[self.difficulty].replaced > 0

    def _is_fixed(self, split: str) -> bool:
        return split == "demo" or not self._is_generated

    def _ensure_school(self, split: str, number: object) -> int:
        if isinstance(number, int) and 0 <= number < NUM_SCHOOLS[split]:
            return number
        raise ConfigError(
            f"env {self.name}: split '{split}' has schools 0 to {NUM_SCHOOLS[split] - 1}, "
            f"got {number!r}."
        )


_DRAFTING = threading.Lock()


@lru_cache(maxsize=1024)  # more tasks than a run evaluates on; a draft is some kilobytes
def _draw(
    make: Callable[[int, str, int, Difficulty], School],
    world_seed: int,
    split: str,
    number: int,
    difficulty: Difficulty,
    kind: str,
    ordinal: int,
) -> Task:
    return draft_task(make(world_seed, split, number, difficulty), kind, ordinal)


def _make_mix(given: Mapping[str, float] | None, difficulty: Difficulty) -> Mix:
    """The mix of kinds; without `given`, that of the level."""
    weights = MIXES[difficulty] if given is None else given
    for kind in (
        kind for kind in TASK_KINDS if weights.get(kind) and kind not in MIXES[difficulty]
    ):
        levels = " or ".join(level for level in MIXES if kind in MIXES[level])
        raise ConfigError(
            f"env.mix: the level '{difficulty}' has no tasks of kind '{kind}'. Set "
            f"env.difficulty to {levels}, or leave the kind out."
        )
    return Mix(weights, TASK_KINDS)


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
    loaded = load_handbook(Path(handbook))
    return loaded, () if questions is None else load_questions(Path(questions), loaded)


def _draw_evidence(episode: Episode, passages: Sequence[Passage]) -> list[Drawing]:
    """The gold articles hop by hop, with text and the first turn that showed each."""
    texts = {passage.id: " ".join(passage.text.split()) for passage in passages}
    shown: dict[str, int] = {}
    for number, turn in enumerate(episode.turns, 1):
        for passage in turn.passages:
            shown.setdefault(passage.id, number)
    rows = [
        (
            hop,
            name,
            text if len(text) <= MAX_DRAWN else f"{text[:MAX_DRAWN]}…",
            f"in turn {shown[name]}" if name in shown else "never",
        )
        for hop, name in enumerate(episode.task.gold_ids, 1)
        if (text := texts.get(name)) is not None
    ]
    columns = ("hop", "article", "what it says", "shown")
    return [Table("the evidence that the answer takes", columns, rows)] if rows else []
