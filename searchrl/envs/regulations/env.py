"""The `regulations` environment: questions on school handbooks that only a search can answer.

Owns the numbering of tasks (index → school, kind, question), the prompt and the settings. The
episode is in `envs.text.TextEnv`, the world in `school.py` and `questions.py`, fixed handbooks in
`handbook_file.py`. Registered as `regulations`; made by `searchrl` or `gymnasium.make`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from searchrl.contracts import RetrieverFactory, TagProtocol
from searchrl.core.drawing import Drawing
from searchrl.core.episode import Episode, Passage, Task
from searchrl.data.questions import Question
from searchrl.envs.regulations.drawing import draw_evidence
from searchrl.envs.regulations.handbook_file import (
    Handbook,
    load_demo,
    load_handbook,
    load_questions,
)
from searchrl.envs.regulations.hard_questions import draft_hard_task
from searchrl.envs.regulations.questions import (
    COMPARISON,
    COUNTING,
    DRILL,
    LOOKUP,
    NOT_REGULATED,
    NOT_REGULATED_ANSWER,
    PLAIN_KINDS,
    RELATIVE_DATE,
    TASK_KINDS,
    THREE_HOP,
    TWO_HOP,
    Draft,
    TaskKind,
    draft_task,
)
from searchrl.envs.regulations.world.district import (
    NUM_DISTRICTS,
    SCHOOLS_PER_DISTRICT,
    District,
    make_district,
)
from searchrl.envs.regulations.world.drills import make_drill
from searchrl.envs.regulations.world.prose import Statement
from searchrl.envs.regulations.world.school import NUM_SCHOOLS, Difficulty, School, make_school
from searchrl.envs.regulations.world.searching import content_words
from searchrl.envs.splits import Mix
from searchrl.envs.text import Matches, TextEnv, same_answer
from searchrl.errors import ConfigError, suggest

TASKS_PER_SCHOOL = 10
"""Tasks per school; no two ask the same."""

TASKS_PER_HARD_SCHOOL = 30
"""Tasks per school of a district."""

DEFAULT_MIX: Mapping[str, float] = {LOOKUP: 0.5, TWO_HOP: 0.3, NOT_REGULATED: 0.2}
"""Shares of the task kinds at the levels `easy` and `normal`."""

HARD_MIX: Mapping[str, float] = {
    LOOKUP: 0.15,
    TWO_HOP: 0.15,
    THREE_HOP: 0.2,
    COMPARISON: 0.1,
    COUNTING: 0.1,
    RELATIVE_DATE: 0.15,
    NOT_REGULATED: 0.15,
}
"""Shares of the task kinds at the level `hard`."""

SEEN_WORDING, UNSEEN_WORDING = "seen_wording", "unseen_wording"
"""Slices of the test split: whether training shows the question's and the articles' wordings."""

_RULE = "Answer from the handbook of {school}; if it does not say, answer: " + NOT_REGULATED_ANSWER


class RegulationsEnv(TextEnv):
    """Questions about one school's handbook per episode; every school has its own rules.

    Splits `train` and `test` hold generated schools, disjoint in content and name; `demo` asks
    about the readable handbook that comes with the package. With `handbook` set, every split asks
    the questions about that handbook instead.

    Args:
        protocol, retriever: as for `TextEnv`.
        mix: weights of the task kinds `lookup`, `two_hop`, `not_regulated` and `drill` (random
            words, for a cold start), at the level `hard` also of `three_hop`, `comparison`,
            `counting` and `relative_date`; kinds left out are 0.
        difficulty: `easy` (one rule, one sentence), `normal` (prose with exceptions) or `hard`
            (several schools in one handbook, up to three hops).
        handbook: None (generated schools), "demo", or the path of a .md or .json file.
        noise: share of the schools whose articles and questions have random words in them, for a
            cold start: a model then copies what stands there, not what it has often read. It holds
            for every split; it changes nothing at the level `hard`, in drills and in a `handbook`.
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
        mix: Mapping[TaskKind, float] | None = None,
        difficulty: Difficulty = Difficulty.NORMAL,
        handbook: str | Path | None = None,
        questions: str | Path | None = None,
        noise: float = 0.0,
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
        self.difficulty = _ensure_difficulty(difficulty)
        if not 0 <= noise <= 1:
            raise ConfigError(f"env.noise is a share of schools, from 0 to 1; got {noise!r}.")
        self.noise = noise
        kinds = None if mix is None else {str(kind): weight for kind, weight in mix.items()}
        self._mix = _make_mix(kinds, self.difficulty)
        self._is_generated = handbook is None
        self._held: tuple[tuple[str, int], tuple[str, School | District]] | None = None
        self._handbook, self._questions = _load(handbook, questions)

    def num_tasks(self, split: str) -> int:
        """How many tasks `split` has."""
        self.ensure_split(split)
        if self._is_fixed(split):
            return len(self._questions)
        each = TASKS_PER_HARD_SCHOOL if self._is_hard else TASKS_PER_SCHOOL
        return self.num_schools(split) * each

    def num_schools(self, split: str) -> int:
        """How many generated schools `split` has."""
        return NUM_DISTRICTS[split] * SCHOOLS_PER_DISTRICT if self._is_hard else NUM_SCHOOLS[split]

    def kind_of(self, split: str, index: int) -> str:
        """The kind of task `index`."""
        return self._mix.kind_of(index, f"mix/{self.world_seed}/{split}")

    def make_task(self, split: str, index: int) -> Task:
        """Task `index` of `split`; neighbours are about different schools.

        At the level `hard` four neighbours share a handbook.
        """
        if self._is_fixed(split):
            row = self._questions[index]
            meta = {"queries": list(row.queries), "bridge": row.bridge}
            return row.as_task(self.name, split, index, school=self._handbook.name, **meta)
        num_schools = self.num_schools(split)
        slot, number = divmod(index, num_schools)
        kind = self.kind_of(split, index)
        if kind == DRILL:
            return self._drill_task(split, index, number)
        earlier = (self.kind_of(split, number + i * num_schools) for i in range(slot))
        ordinal = sum(one == kind for one in earlier)
        name, _ = self._book(split, number)
        world = (self.world_seed, split, number, self.difficulty, self.noise)
        draft, thin_query = _draw(*world, kind, ordinal)
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
            difficulty=str(self.difficulty),
            meta={
                "school": name,
                "school_number": number,
                "queries": list(draft.queries),
                "thin_query": thin_query,
                "bridge": draft.bridge,
                "value_kind": str(draft.value_kind),
                "abouts": list(draft.abouts),
                "gists": list(draft.gists),
                "condition": draft.condition,
                "template": draft.question.template,
                **draft.more,
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
            difficulty=str(self.difficulty),
            meta={
                "school": self._book(split, number)[0],
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
            meta = {"school": self._book(split, number)[0], "school_number": number}
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
        _, book = self._book(task.split, task.meta["school_number"])
        return book.key, book.passages

    def draw_episode(self, episode: Episode) -> Sequence[Drawing]:
        """The gold articles: what each says, and the turn that showed it."""
        return draw_evidence(episode, self.passages(episode.task)[1])

    def statements(self, task: Task) -> Mapping[str, Sequence[Statement]]:
        """What each article states, by its id; empty for a handbook that was not generated."""
        if "drill" in task.meta:
            articles = make_drill(self.world_seed, task.split, task.meta["drill"]).articles
        elif "school_number" in task.meta:
            articles = self._book(task.split, task.meta["school_number"])[1].articles
        else:
            return {}
        return {article.passage.id: article.statements for article in articles}

    def school(self, split: str, number: int) -> School:
        """The generated school `number` of `split`, with everything its handbook states.

        Not at the level `hard`: there `district` has the handbook of several schools.
        """
        return make_school(self.world_seed, split, number, self.difficulty, self.noise)

    def district(self, split: str, number: int) -> District:
        """The district of school `number` of `split`, at the level `hard`."""
        return make_district(self.world_seed, split, number // SCHOOLS_PER_DISTRICT)

    @property
    def _is_hard(self) -> bool:
        return self.difficulty is Difficulty.HARD

    def _book(self, split: str, number: int) -> tuple[str, School | District]:
        """The name of a school, and the handbook it has for itself or shares; the last is held."""
        held = self._held
        if held is None or held[0] != (split, number):
            found = _find_book(self.world_seed, split, number, self.difficulty, self.noise)
            held = self._held = (split, number), found
        return held[1]

    def _is_fixed(self, split: str) -> bool:
        return split == "demo" or not self._is_generated

    def _ensure_school(self, split: str, number: object) -> int:
        if isinstance(number, int) and 0 <= number < self.num_schools(split):
            return number
        raise ConfigError(
            f"env {self.name}: split '{split}' has schools 0 to {self.num_schools(split) - 1}, "
            f"got {number!r}."
        )


def _find_book(
    world_seed: int, split: str, number: int, difficulty: Difficulty, noise: float
) -> tuple[str, School | District]:
    if difficulty is Difficulty.HARD:
        district = make_district(world_seed, split, number // SCHOOLS_PER_DISTRICT)
        return district.houses[number % SCHOOLS_PER_DISTRICT].name, district
    school = make_school(world_seed, split, number, difficulty, noise)
    return school.name, school


@lru_cache(maxsize=1024)  # more tasks than a run evaluates on; a draft is some kilobytes
def _draw(
    world_seed: int,
    split: str,
    number: int,
    difficulty: Difficulty,
    noise: float,
    kind: str,
    ordinal: int,
) -> tuple[Draft, str]:
    """A task about a school, and a careless query for it."""
    _, book = _find_book(world_seed, split, number, difficulty, noise)
    if isinstance(book, District):
        draft = draft_hard_task(book, number % SCHOOLS_PER_DISTRICT, kind, ordinal)
    else:
        draft = draft_task(book, kind, ordinal)
    return draft, book.finder.commonest(draft.question.query)


def _make_mix(given: Mapping[str, float] | None, difficulty: Difficulty) -> Mix:
    """The mix of kinds; without `given`, that of the level."""
    is_hard = difficulty is Difficulty.HARD
    weights = given if given is not None else HARD_MIX if is_hard else DEFAULT_MIX
    for kind, weight in weights.items():
        if not is_hard and kind in TASK_KINDS and kind not in PLAIN_KINDS and weight:
            raise ConfigError(
                f"env.mix: the level '{difficulty}' has no tasks of kind '{kind}'. Set "
                "env.difficulty to hard, or leave the kind out."
            )
    return Mix(weights, TASK_KINDS)


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
