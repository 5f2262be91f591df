"""A whole data set from its files: questions of each split, passages, gold passages, and notes.

Owns how questions and corpus come together: which corpus is meant, which passages are gold, which
question is in which split, and that unchanged files are read once. Called by the environments over
fixed corpora (`corpus`, `multihop`).
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from searchrl.core.episode import Passage
from searchrl.envs.formats.corpora import Fingerprint, fingerprint, load_corpus
from searchrl.envs.formats.folders import (
    QuestionFile,
    find_alias_file,
    find_corpus_file,
    find_judgement_files,
    find_question_files,
    read_aliases,
    read_judgements,
)
from searchrl.envs.formats.gold import ABSENT, Pool, find_gold, tell_unknown
from searchrl.envs.formats.problems import Problems
from searchrl.envs.formats.questions import Question, read_questions
from searchrl.envs.formats.row import Row
from searchrl.envs.formats.rows import read_rows
from searchrl.errors import show_value
from searchrl.retrieval.passages import PassageStore

TRAIN, VALIDATION, TEST = "train", "validation", "test"

Paths = str | Path | Sequence[str | Path]


@dataclass(frozen=True, slots=True)
class Dataset:
    """What the files hold.

    `questions` are those of each split, `key` names the passages, `gold` are those that some
    question needs, by their ids, and `notes` are sentences that a user should read: what is not
    known of the gold passages, and why. `has_corpus` is False if
    there are no passages because none were given.
    """

    questions: dict[str, tuple[Question, ...]]
    passages: Sequence[Passage]
    key: str
    gold: Mapping[str, Passage]
    notes: tuple[str, ...] = ()
    has_corpus: bool = True


class Files(NamedTuple):
    """The paths of a data set. Without `corpus` it is what lies beside or in the questions."""

    questions: tuple[Path, ...]
    corpus: Path | None = None
    test_questions: tuple[Path, ...] = ()

    @classmethod
    def of(cls, questions: Paths, corpus: str | Path | None, test: Paths | None) -> Files:
        """The paths as they stand in a configuration."""
        own = None if corpus is None else Path(os.path.expanduser(corpus))
        return cls(_as_paths(questions), own, _as_paths(test or ()))


def load_dataset(files: Files, test_frac: float) -> Dataset:
    """Read and check all files. Unchanged files are read once.

    Raises:
        DataError: rows that cannot be used: the first ones, and how many more.
    """
    asked = (*files.questions, *files.test_questions)
    paths = [*asked, *([files.corpus] if files.corpus else ())]
    beside = [find_alias_file(folder) for path in asked for folder in (path, path.parent)]
    paths += filter(None, beside)
    return _load(files, test_frac, fingerprint(paths))


def gold_passages(questions: Sequence[Question], passages: Sequence[Passage]) -> dict[str, Passage]:
    """The passages that are gold for some question, by their ids."""
    wanted = {identity for question in questions for identity in question.gold_ids}
    if isinstance(passages, PassageStore):
        places = {identity: passages.find(identity) for identity in wanted}
        return {identity: passages[at] for identity, at in places.items() if at is not None}
    return {passage.id: passage for passage in passages if passage.id in wanted}


# Each rollout of a group makes its own environment; the files are read once for all of them.
@lru_cache(maxsize=4)
def _load(files: Files, test_frac: float, seen: Fingerprint) -> Dataset:
    problems = Problems()
    corpus = files.corpus or next((p for p in files.questions if _has_own_corpus(p)), None)
    pool = Pool()
    every: list[list[Question]] = []
    for paths in (files.questions, files.test_questions):
        read = read_question_set(paths, problems)
        every.append([pool.take(one) if corpus is None else one for one in read])
    train, test = (add_aliases(read, problems) for read in every)
    num_before = problems.count
    passages = tuple(pool.passages) if corpus is None else load_corpus(corpus, problems)
    questions, notes = find_gold([*train, *test], passages)
    gold = gold_passages(questions, passages)
    if passages and problems.count == num_before:
        _check_gold(questions, gold, corpus or files.questions[0], problems)
    train, test = questions[: len(train)], questions[len(train) :]
    if files.test_questions:
        _check_disjoint(train, test, problems)
    problems.ensure_none()
    own = {TRAIN: tuple(train), TEST: tuple(test)}
    parts = own if files.test_questions else divide(train, test_frac)
    key = hashlib.sha256(repr((files, seen)).encode("utf-8", "surrogatepass"))
    where = ", ".join(map(str, (*files.questions, *files.test_questions)))
    return Dataset(
        questions=parts,
        passages=passages,
        key=f"corpus-{key.hexdigest()[:16]}",
        gold=gold,
        notes=(
            *problems.notes,
            *notes,
            *tell_contradictions([*train, *test]),
            *tell_unknown(questions, where),
            *(() if files.test_questions else tell_unsaid(train)),
        ),
        has_corpus=bool(passages),
    )


def read_question_set(paths: Sequence[Path], problems: Problems) -> Iterator[Question]:
    """Yield the questions of all files and folders, in order; ids are unique over all of them."""
    places: dict[str, str] = {}
    files = [(path, file) for path in paths for file in find_question_files(path, problems)]
    stems = Counter(_stem(file.path) for _, file in files)
    for path, file in files:
        name = _stem(file.path)
        if stems[name] > 1:
            name = f"{file.path.resolve().parent.name}/{name}"
        if os.path.isdir(path) and (judged := find_judgement_files(path)):
            yield from _read_queries(file, judged, problems, name, places)
        else:
            yield from read_questions(file.path, problems, name, places, split=file.split)


def add_aliases(questions: Sequence[Question], problems: Problems) -> list[Question]:
    """The questions with the further names of their answers, if a file beside them has some."""
    folders = {path: Path(path).parent for path in {one.path for one in questions if one.answer_id}}
    names: dict[Path, dict[str, tuple[str, ...]]] = {}
    for folder in set(folders.values()):
        if file := find_alias_file(folder):
            wanted = {q.answer_id for q in questions if folders.get(q.path) == folder}
            names[folder] = read_aliases(file, wanted, problems)
    if not names:
        return list(questions)
    return [
        replace(one, answers=tuple(dict.fromkeys((*one.answers, *more))))
        if one.answers and (more := names.get(folders.get(one.path, Path()), {}).get(one.answer_id))
        else one
        for one in questions
    ]


def _read_queries(
    file: QuestionFile,
    judged: dict[str, Path],
    problems: Problems,
    name: str,
    places: dict[str, str],
) -> Iterator[Question]:
    """The queries of a BEIR folder: what is judged relevant is gold, and the judgements split."""
    gold: dict[str, list[str]] = {}
    splits: dict[str, str] = {}
    for split, path in judged.items():
        for query, passages in read_judgements(path, problems).items():
            gold[query] = [passage for passage, score in passages.items() if score > 0]
            splits[query] = split
    rows = (_as_question(row, gold) for row in read_rows(file.path, problems))
    # Queries that nobody judged tell nothing.
    kept = (row for row in rows if not isinstance(row.value, dict) or row.value["supporting_ids"])
    for question in read_questions(file.path, problems, name, places, rows=kept):
        yield replace(question, split=splits.get(question.id, ""))


def _as_question(row: Row, gold: dict[str, list[str]]) -> Row:
    if not isinstance(row.value, dict):
        return row
    identity = row.value.get("_id", row.value.get("id"))
    added = {"question": row.value.get("text"), "supporting_ids": gold.get(str(identity), [])}
    return row._replace(value=row.value | added)


def divide(questions: Sequence[Question], test_frac: float) -> dict[str, tuple[Question, ...]]:
    """The questions of each split: as their data set says, else by a hash of their ids.

    A data set that has no test questions of its own (those of many are secret) lends those of its
    validation split. One that puts all questions into a single split is divided by the hash.
    """
    said = {question.split for question in questions} - {""}
    if len(said) < 2:
        train, test = split_questions(questions, test_frac)
        return {TRAIN: train, TEST: test}
    as_said = {VALIDATION: TEST} if TEST not in said else {}
    parts: dict[str, list[Question]] = {TRAIN: [], VALIDATION: [], TEST: []}
    for question in questions:
        split = question.split or TRAIN
        parts[as_said.get(split, split)].append(question)
    return {split: tuple(own) for split, own in parts.items() if own or split in (TRAIN, TEST)}


def tell_unsaid(questions: Sequence[Question]) -> list[str]:
    """A sentence about questions of a split by another name than ours, which `divide` trains on."""
    unsaid = [question for question in questions if not question.split]
    if not unsaid or len({question.split for question in questions} - {""}) < 2:
        return []
    first = unsaid[0]
    return [
        f"{len(unsaid):,} of {len(questions):,} questions are in a split that is neither train, "
        f"dev, validation nor test (first {first.path}:{first.line}); they are trained on"
    ]


def tell_contradictions(questions: Sequence[Question]) -> list[str]:
    """A sentence about questions that stand in the data twice, with other answers."""
    first: dict[str, Question] = {}
    twice = []
    for question in questions:
        known = first.setdefault(_plain(question.question), question)
        if {*map(_plain, known.answers)} != {*map(_plain, question.answers)}:
            twice.append((known, question))
    if not twice:
        return []
    one, other = twice[0]
    return [
        f"rows that repeat an earlier question with other answers: {len(twice):,} (first "
        f"{other.path}:{other.line}, as in {one.path}:{one.line}); a row takes only its own "
        "answers as right"
    ]


def split_questions(
    questions: Sequence[Question], test_frac: float
) -> tuple[tuple[Question, ...], tuple[Question, ...]]:
    """Split questions into (train, test) by a hash of their ids.

    Questions with the same text are in the same split. With 0 < test_frac < 1 and at least two
    different questions, neither split is empty.
    """
    leaders: dict[str, str] = {}
    points = {
        question.id: _hash_point(leaders.setdefault(_plain(question.question), question.id))
        for question in questions
    }
    threshold = test_frac
    if questions and 0 < test_frac < 1:
        lowest, highest = min(points.values()), max(points.values())
        if lowest == highest:
            threshold = 0.0
        elif lowest >= test_frac:
            threshold = min(point for point in points.values() if point > lowest)
        elif highest < test_frac:
            threshold = highest
    train = tuple(q for q in questions if points[q.id] >= threshold)
    test = tuple(q for q in questions if points[q.id] < threshold)
    return train, test


def _hash_point(identity: str) -> float:
    """A number in [0, 1) that depends on the id alone."""
    digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:6]) / 2**48


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _stem(path: Path) -> str:
    return path.name.split(".")[0]


def _as_paths(paths: Paths) -> tuple[Path, ...]:
    items = [paths] if isinstance(paths, str | Path) else paths
    return tuple(Path(os.path.expanduser(item)) for item in items)


def _has_own_corpus(path: Path) -> bool:
    """Whether a folder of questions also holds a corpus."""
    file = find_corpus_file(path) if os.path.isdir(path) else None
    return file is not None and file != path


def _check_gold(
    questions: Sequence[Question], gold: Mapping[str, Passage], corpus: Path, problems: Problems
) -> None:
    """Note the ids of gold passages that a row names and no passage has."""
    for question in questions:
        unknown = [i for i in question.gold_ids if i not in gold and not i.startswith(ABSENT)]
        if unknown:
            reason = f"supporting_ids {show_value(unknown)} name no passage of {corpus}"
            problems.add(Path(question.path), question.line, reason)


def _check_disjoint(
    train: Sequence[Question], test: Sequence[Question], problems: Problems
) -> None:
    places = {_plain(q.question): f"{q.path}:{q.line}" for q in train}
    for question in test:
        if place := places.get(_plain(question.question)):
            reason = f"this test question is also a training question ({place})"
            problems.add(Path(question.path), question.line, reason)
