"""The audit of questions and corpus before anything is trained: what is wrong with which question.

Faults of the texts are found by `data.audit`. Here the run's retriever is asked, too, and a policy
that cannot search. No torch, unless the policy needs it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from searchrl.config import RunConfig
from searchrl.contracts import Metric, Passage, Retriever, StoredRetriever
from searchrl.data import audit as texts
from searchrl.data.dataset import Dataset, load_dataset
from searchrl.data.questions import Question
from searchrl.engine.rollout.world import TaskWorld, attribute_of
from searchrl.engine.rollout.worlds import name_defaults
from searchrl.envs.text import SearchSettings
from searchrl.errors import BudgetSpent, ConfigError, RetrieverFailure
from searchrl.files import replace_file
from searchrl.plugins import Registry
from searchrl.plugins.parts import make_retriever_factory
from searchrl.plugins.registry import raising_of
from searchrl.plugins.signatures import find_settings
from searchrl.programs.evaluate import open_player
from searchrl.statistics import proportion

_FILES = ("questions", "corpus", "test_questions", "test_frac")
_BATCH = 64
_CHEAP = 5000
"""Most questions, and passages whose words are read, for the line of `train`: a second's work."""
FAULTS = {"reachable": False, "guessable": True, "leaking": True, "ambiguous": True}
"""The value of each figure for which a question does not pass."""


@dataclass(slots=True)
class Audited:
    """A question with its figures, as far as they were measured, and the reasons of its faults."""

    split: str
    question: Question
    figures: dict[str, bool] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)

    @property
    def has_passed(self) -> bool:
        """True if it has no fault. What only a second query finds is none."""
        return all(self.figures.get(name) is not value for name, value in FAULTS.items())

    @property
    def rank(self) -> tuple[bool, int]:
        """The place among others, worst first."""
        return self.has_passed, -len(self.reasons)

    def mark(self, name: str, value: bool, reason: str = "") -> None:
        """Note a figure, and why it is a fault."""
        self.figures[name] = value
        self.reasons += [f"{name}: {reason}"] if reason else []


def audit(
    config: RunConfig,
    registry: Registry,
    *,
    has_policy: bool = False,
    on_phase: Callable[[str, int, int], None] = lambda name, done, total: None,
) -> tuple[list[Audited], Sequence[Passage]]:
    """Look at every question of a task; returns what was found, and the corpus.

    With `has_policy` the policy of the config plays without a search. ConfigError if there are
    several tasks, or no files of questions.
    """
    task, *others = name_defaults(config, registry).tasks
    if others:
        raise ConfigError(f"the config has {1 + len(others)} tasks; audit one of them: --env NAME")
    entry = registry.get("env", task.env.name)
    settings = entry.ensure_settings(task.env.settings)
    if settings.get("questions") is None or "questions" not in find_settings(entry.load()):
        raise ConfigError(
            f"env '{task.env.name}': no questions to audit; name them: --env corpus "
            "--set env.questions=FILE --set env.corpus=FILE"
        )
    files = {name: settings[name] for name in _FILES if name in settings}
    data = load_dataset(**files, is_audited=True)
    rows = [Audited(split, one) for split, part in data.questions.items() for one in part]
    factory = make_retriever_factory(registry, task.retriever.name, task.retriever.settings)
    try:
        with raising_of(f"retriever '{task.retriever.name}':", RetrieverFailure):
            retriever = factory(data.passages)
            _mark_texts(rows, _find_gold(rows, data, retriever), data.passages)
            _mark_found(rows, retriever, settings.get("topk", SearchSettings.topk), on_phase)
    except BudgetSpent as error:  # nobody has told it yet
        raise RetrieverFailure(str(error)) from error
    if has_policy:
        _mark_guesses(rows, config, registry)
    return rows, data.passages


def count(rows: Sequence[Audited]) -> dict[str, Metric]:
    """The share of each figure over the questions for which it was measured."""
    names = ("reachable", "findable", "findable_by_question", "findable_by_answer", *FAULTS)
    figures: dict[str, Metric] = {}
    for name in dict.fromkeys(names):
        if values := [row.figures[name] for row in rows if name in row.figures]:
            figures[name] = proportion(sum(values), len(values))
    return figures | {"passed": proportion(sum(row.has_passed for row in rows), len(rows))}


def write_kept(rows: Iterable[Audited], passages: Sequence[Passage], path: Path) -> dict[str, Path]:
    """Write the questions that passed; returns the file of each setting of `env`.

    Those of the split `test` have a file of their own, and so have passages, if there are any.
    """
    kept = [row for row in rows if row.has_passed]
    parts: dict[str, list[dict[str, Any]]] = {
        "questions": [_as_row(row.question) for row in kept if row.split != "test"],
        "test_questions": [_as_row(row.question) for row in kept if row.split == "test"],
        "corpus": [{"id": one.id, "title": one.title, "text": one.text} for one in passages],
    }
    files = {}
    for name, lines in parts.items():
        if lines:
            files[name] = path if name == "questions" else path.with_suffix(f".{name}.jsonl")
            text = "".join(f"{json.dumps(line)}\n" for line in lines)
            replace_file(files[name], text.encode())
    return files


def foresee_faults(worlds: Iterable[TaskWorld]) -> Iterator[str]:
    """One line about the questions of each world where looking at them is cheap."""
    for world in worlds:
        data = world.ask(lambda env: attribute_of(env, "dataset", None))
        if not isinstance(data, Dataset) or not 0 < len(data.passages) <= _CHEAP:
            continue
        rows = [Audited(split, one) for split, part in data.questions.items() for one in part]
        if len(rows) > _CHEAP:
            continue
        _mark_texts(rows, data.gold, data.passages)
        told = ", ".join(
            f"{sum(row.figures.get(name) is value for row in rows)} {word}"
            for name, value, word in (
                ("reachable", False, "unreachable"),
                ("leaking", True, "leaking"),
                ("ambiguous", True, "ambiguous"),
            )
        )
        yield f"audit of {len(rows):,} questions: {told} (which: searchrl audit)"


def _find_gold(
    rows: Sequence[Audited], data: Dataset, retriever: Retriever
) -> Collection[str] | None:
    """The ids of gold passages that exist; None if the retriever has them and cannot tell."""
    if data.passages or not isinstance(retriever, StoredRetriever):
        return data.gold
    wanted = dict.fromkeys(name for row in rows for name in row.question.gold_ids)
    stored = retriever.stored(list(wanted))
    return None if stored is None else {one.id for one in stored if one is not None}


def _mark_texts(
    rows: Sequence[Audited], gold: Collection[str] | None, passages: Sequence[Passage]
) -> None:
    """Mark all that is seen without a search."""
    questions = [row.question for row in rows]
    lacking = {} if gold is None else texts.find_unreachable(questions, gold, passages)
    told = texts.find_told(questions)
    twins = texts.find_twins(questions, [row.split for row in rows])
    ambiguous = texts.find_ambiguous(questions)
    for number, row in enumerate(rows):
        leak = told.get(number) or twins.get(number, "")
        if gold is not None and (row.question.gold_ids or row.question.answers):
            row.mark("reachable", number not in lacking, lacking.get(number, ""))
        row.mark("leaking", bool(leak), leak)
        row.mark("ambiguous", number in ambiguous, ambiguous.get(number, ""))


def _mark_found(
    rows: Sequence[Audited],
    retriever: Retriever,
    k: int,
    on_phase: Callable[[str, int, int], None],
) -> None:
    """Mark which evidence is among the first `k` for the question, and for its first answer."""
    for start in range(0, len(rows), _BATCH):
        part = rows[start : start + _BATCH]
        asked = [(row, "findable_by_question", row.question.question) for row in part]
        asked += [(row, "findable_by_answer", one) for row in part for one in _content(row)[:1]]
        results = retriever.search([query for *_, query in asked], k)
        for (row, name, _), passages in zip(asked, results, strict=True):
            gold, answers = row.question.gold_ids, row.question.answers
            is_gold = not {one.id for one in passages}.isdisjoint(gold)
            row.figures[name] = is_gold or (not gold and bool(texts.find_texts(answers, passages)))
        for row in part:
            is_found = any(row.figures.get(f"findable_by_{way}") for way in ("question", "answer"))
            reason = f"no evidence among the first {k}, by question or answer"
            row.mark("findable", is_found, "" if is_found else reason)
        on_phase("search", start + len(part), len(rows))


def _mark_guesses(rows: Sequence[Audited], config: RunConfig, registry: Registry) -> None:
    """Mark what the policy answers that finds nothing: the tasks of each split that `eval` plays."""
    by_id = {(row.split, row.question.id): row for row in rows}
    with open_player(config, registry) as player:
        nothing = {"retriever": "empty"}
        (world,) = player.make_worlds(nothing)
        for split in dict.fromkeys(row.split for row in rows):
            played = range(min(config.eval.num_tasks, world.num_tasks(split)))
            for one in player.play(nothing, split=split, indices=played).rollouts:
                if (score := one.scored.scores.get("em")) is not None:
                    row = by_id[split, one.episode.task.id]
                    row.mark("guessable", score == 1, "answered without a search" if score else "")


def _content(row: Audited) -> list[str]:
    return [one for one in row.question.answers if one.casefold() not in ("yes", "no")]


def _as_row(question: Question) -> dict[str, Any]:
    row = {
        "id": question.id,
        "question": question.question,
        "golden_answers": question.answers,
        "supporting_ids": question.gold_ids,
        "type": question.kind,
        "slices": question.slices,
        "difficulty": question.difficulty,
    }
    return {name: value for name, value in row.items() if value}
