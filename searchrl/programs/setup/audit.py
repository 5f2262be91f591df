"""The audit of questions and corpus before anything is trained: what is wrong with which question.

Faults of the texts are found by `data.audit`. Here the run's retriever is asked, too, and a policy
that cannot search. No torch, unless the policy needs it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from searchrl.config import RunConfig
from searchrl.contracts import Metric, Passage, Retriever, StoredRetriever
from searchrl.data import audit as texts
from searchrl.data.dataset import Dataset, load_dataset
from searchrl.data.questions import Question
from searchrl.engine.metrics.evaluation import EvalResult
from searchrl.engine.rollout.world import TaskWorld, attribute_of
from searchrl.engine.rollout.worlds import name_defaults
from searchrl.envs.text import SearchSettings
from searchrl.errors import BudgetSpent, ConfigError, RetrieverFailure
from searchrl.files import replace_file
from searchrl.plugins import Registry
from searchrl.plugins.parts import make_retriever_factory
from searchrl.plugins.registry import raising_of
from searchrl.statistics import proportion

FAULTS = {"reachable": False, "guessable": True, "leaking": True, "ambiguous": True}
"""The value of each figure for which a question does not pass."""
_FILES = ("questions", "corpus", "test_questions", "test_frac")
_BATCH = 64
_CHEAP = 3000
"""Most questions and passages for the line of `train`: a second's work."""

OnPhase = Callable[[str, int, int], None]
Play = Callable[..., EvalResult]
"""As `evaluate.Player.play`."""


@dataclass(slots=True)
class Audited:
    """A question with its figures, as far as they were measured, and the reasons."""

    split: str
    question: Question
    figures: dict[str, bool] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    ranks: dict[str, int | None] = field(default_factory=dict)
    """The first rank of its evidence, by the query: `question` or `answer`."""

    @property
    def has_passed(self) -> bool:
        """True if it has no fault; that nothing is found with one query is none."""
        return all(self.figures.get(name) is not value for name, value in FAULTS.items())

    def mark(self, name: str, value: bool, reason: str = "") -> None:
        """Note a figure, and the reason if it has one."""
        self.figures[name] = value
        self.reasons += [f"{name}: {reason}"] if reason else []


def audit(
    config: RunConfig,
    registry: Registry,
    on_phase: OnPhase,
    play: Play | None = None,
) -> tuple[list[Audited], Sequence[Passage]]:
    """Look at every question of the first task; returns them, and the passages.

    `play` plays a policy, which guesses. ConfigError if the environment has no files of questions.
    """
    task = name_defaults(config, registry).tasks[0]
    settings = registry.get("env", task.env.name).ensure_settings(task.env.settings)
    lead = f"env '{task.env.name}':"
    if settings.get("questions") is None:
        raise ConfigError(
            f"{lead} no questions to audit; name them: --env corpus "
            "--set env.questions=FILE --set env.corpus=FILE"
        )
    files = {name: settings[name] for name in _FILES if name in settings}
    data = load_dataset(**files, is_audited=True)
    rows = _mark_texts(data)
    factory = make_retriever_factory(registry, task.retriever.name, task.retriever.settings)
    try:
        with raising_of(f"retriever '{task.retriever.name}':", RetrieverFailure):
            retriever = factory(data.passages)
            if not data.passages and not isinstance(retriever, StoredRetriever):
                raise ConfigError(f"{lead} no corpus to search; name it: --set env.corpus=FILE")
            _mark_found(rows, retriever, settings.get("topk", SearchSettings.topk), on_phase)
    except BudgetSpent as error:  # the command line does not print its text
        raise RetrieverFailure(str(error)) from error
    if play is not None:
        _mark_guesses(rows, config, play)
    return rows, data.passages


def count(rows: Sequence[Audited]) -> dict[str, Metric]:
    """The share of each figure over the questions for which it was measured."""
    figures: dict[str, Metric] = {}
    for name in dict.fromkeys(name for row in rows for name in row.figures):
        values = [row.figures[name] for row in rows if name in row.figures]
        figures[name] = proportion(sum(values), len(values))
    return figures | {"passed": proportion(sum(row.has_passed for row in rows), len(rows))}


def write_kept(rows: Iterable[Audited], passages: Sequence[Passage], path: Path) -> dict[str, Path]:
    """Write the questions that passed; returns the file of each setting of `env`.

    Those of the split `test` have a file of their own, and so have passages, if there are any.
    """
    parts: dict[str, list[str]] = {"questions": [], "test_questions": []}
    for row in (row for row in rows if row.has_passed):
        one, name = row.question, "test_questions" if row.split == "test" else "questions"
        facts = {"id": one.id, "question": one.question, "golden_answers": one.answers}
        facts |= {"supporting_ids": one.gold_ids, "type": one.kind, "slices": one.slices}
        facts |= {"difficulty": one.difficulty}
        parts[name].append(json.dumps({key: value for key, value in facts.items() if value}))
    corpus = [json.dumps({"id": p.id, "title": p.title, "text": p.text}) for p in passages]
    files = {}
    path.parent.mkdir(parents=True, exist_ok=True)
    for name, lines in (parts | {"corpus": corpus}).items():
        if lines:
            files[name] = path if name == "questions" else path.with_suffix(f".{name}.jsonl")
            replace_file(files[name], "".join(f"{line}\n" for line in lines).encode())
    return files


def foresee_faults(worlds: Iterable[TaskWorld]) -> Iterator[str]:
    """One line about the questions of each world where looking at them is cheap."""
    for world in worlds:
        data = world.ask(lambda env: attribute_of(env, "dataset", None))
        if not isinstance(data, Dataset):
            continue
        if max(len(data.passages), *map(len, data.questions.values())) <= _CHEAP:
            counts = {name: metric["value"] for name, metric in count(_mark_texts(data)).items()}
            told = ", ".join(f"{name} {value:.1%}" for name, value in counts.items())
            yield f"audit of the questions: {told} (which: searchrl audit)"


def _mark_texts(data: Dataset) -> list[Audited]:
    """All questions, with what is seen without a search."""
    rows = [Audited(split, one) for split, part in data.questions.items() for one in part]
    questions = [row.question for row in rows]
    lacking = texts.find_unreachable(questions, data.gold, data.passages)
    told = texts.find_told(questions)
    twins = texts.find_twins(questions, [row.split for row in rows])
    ambiguous = texts.find_ambiguous(questions)
    for number, row in enumerate(rows):
        if data.passages and (row.question.gold_ids or row.question.texts):
            row.mark("reachable", number not in lacking, lacking.get(number, ""))
        leaks = [one[number] for one in (told, twins) if number in one]
        row.mark("leaking", bool(leaks), "; ".join(leaks))
        row.mark("ambiguous", number in ambiguous, ambiguous.get(number, ""))
    return rows


def _mark_found(rows: Sequence[Audited], retriever: Retriever, k: int, on_phase: OnPhase) -> None:
    """Mark the rank of the evidence among the first `k`, for the question and its first answer."""
    rows = [row for row in rows if row.question.gold_ids or row.question.texts]
    for start in range(0, len(rows), _BATCH):
        part = rows[start : start + _BATCH]
        asked = [(row, "question", row.question.question) for row in part]
        asked += [(row, "answer", text) for row in part for text in row.question.texts[:1]]
        results = retriever.search([query for *_, query in asked], k)
        for (row, name, _), passages in zip(asked, results, strict=True):
            gold, answers = row.question.gold_ids, row.question.texts
            places = (
                rank
                for rank, one in enumerate(passages, 1)
                if (one.id in gold if gold else texts.find_texts(answers, [one]))
            )
            row.ranks[name] = next(places, None)
            row.mark(f"findable_by_{name}", row.ranks[name] is not None)
        for row in part:
            is_found = any(row.ranks.values())
            row.mark("findable", is_found, "" if is_found else f"no evidence among the first {k}")
        on_phase("search", start + len(part), len(rows))


def _mark_guesses(rows: Sequence[Audited], config: RunConfig, play: Play) -> None:
    """Mark what a policy answers that finds nothing: the first tasks of each split."""
    task = config.to_dict()["tasks"][0] | {"retriever": {"name": "empty"}}
    by_id = {(row.split, row.question.id): row for row in rows}
    for split in dict.fromkeys(row.split for row in rows):
        result = play({"tasks": [task]}, split=split, num_tasks=config.eval.num_tasks)
        for one in result.rollouts:
            if (score := one.scored.scores.get("em")) is not None:
                reason = "answered without a search" if score else ""
                by_id[split, one.episode.task.id].mark("guessable", score == 1, reason)
