"""A whole data set from its files: questions of each split, passages, gold passages, and notes."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path

from searchrl.core.episode import Passage
from searchrl.data.cells import read_id
from searchrl.data.evidence import fold
from searchrl.data.folders import (
    find_corpus,
    find_judgements,
    find_question_files,
    read_judgements,
)
from searchrl.data.gold import ABSENT, Pool, find_gold, tell_unknown
from searchrl.data.passages import iter_corpus
from searchrl.data.problems import BadRow, Problems, Row
from searchrl.data.questions import QUESTION_SHAPES, Question, parse_question
from searchrl.data.rows import parse_rows
from searchrl.errors import show_value
from searchrl.retrieval.progress import tracked

TRAIN, VALIDATION, TEST = "train", "validation", "test"

Paths = str | Path | Sequence[str | Path]


@dataclass(frozen=True, slots=True)
class Dataset:
    """Questions of each split, passages (may be empty) and gold ones by id.

    `key` names the passages; `notes` are sentences that a user should read.
    """

    questions: dict[str, tuple[Question, ...]]
    passages: Sequence[Passage]
    key: str
    gold: Mapping[str, Passage]
    notes: tuple[str, ...] = ()


def load_dataset(
    questions: Paths,
    corpus: str | Path | None = None,
    test_questions: Paths | None = None,
    test_frac: float = 0.2,
    *,
    is_audited: bool = False,
) -> Dataset:
    """Read and check all files. Without `corpus` it is what lies beside or in the questions.

    An audit finds lacking gold passages and copied questions itself: they are no errors there.
    """
    given = (
        [paths] if isinstance(paths, str | Path) else paths or ()
        for paths in (questions, test_questions, corpus)
    )
    files = [tuple(Path(os.path.expanduser(item)) for item in items) for items in given]
    every = _fingerprint([path for paths in files for path in paths])
    return _load(*files, test_frac, every, is_audited)


# Each rollout of a group makes its own environment; the files are read once for all of them.
@lru_cache(maxsize=4)
def _load(
    train_paths: tuple[Path, ...],
    test_paths: tuple[Path, ...],
    corpora: tuple[Path, ...],
    test_frac: float,
    fingerprint: tuple[tuple[str, int, int], ...],
    is_audited: bool,
) -> Dataset:
    problems = Problems()
    folders = (path for path in train_paths if os.path.isdir(path))
    inner = (path for path in folders if find_corpus(path) not in (None, path))
    corpus = next(iter((*corpora, *inner)), None)
    read = [read_questions(paths, problems) for paths in (train_paths, test_paths)]
    (train, test), passages, notes = read_gold(read, corpus, problems)
    questions = [*train, *test]
    wanted = {i for question in questions for i in question.gold_ids}
    gold = {passage.id: passage for passage in passages if passage.id in wanted}
    for one in questions if passages and not problems.found and not is_audited else ():
        if unknown := [i for i in one.gold_ids if i not in gold and not i.startswith(ABSENT)]:
            where = corpus or train_paths[0]
            reason = f"supporting_ids {show_value(unknown)} name no passage of {where}"
            problems.add(Path(one.path), one.line, reason)
    trained = {fold(one.question): f"{one.path}:{one.line}" for one in train}
    for one in () if is_audited else test:
        if place := trained.get(fold(one.question)):
            reason = f"this test question is also a training question ({place})"
            problems.add(Path(one.path), one.line, reason)
    problems.ensure_none()
    marks = repr((train_paths, test_paths, corpora, fingerprint)).encode("utf-8", "surrogatepass")
    splits = {TRAIN: tuple(train), TEST: tuple(test)}
    unknown = tell_unknown(questions, ", ".join(map(str, train_paths + test_paths)))
    return Dataset(
        questions=splits if test_paths else _divide(train, test_frac),
        passages=passages,
        key=f"corpus-{hashlib.sha256(marks).hexdigest()[:16]}",
        gold=gold,
        notes=(*problems.notes, *notes, *unknown),
    )


def read_gold(
    files: Sequence[Iterable[Question]], corpus: Path | None, problems: Problems
) -> tuple[list[list[Question]], Sequence[Passage], list[str]]:
    """The questions of each of `files` with the ids of their gold passages, passages, and notes.

    Without a corpus, the paragraphs that come with the questions are one.
    """
    pool = Pool()
    read = [[one if corpus else pool.take(one) for one in questions] for questions in files]
    passages = load_corpus(corpus, problems) if corpus else tuple(pool.passages)
    resolved, notes = find_gold([one for questions in read for one in questions], passages)
    rest = iter(resolved)
    return [list(islice(rest, len(questions))) for questions in read], passages, notes


def read_questions(
    paths: Sequence[Path],
    problems: Problems,
    keep: Callable[[Row, str], bool] = lambda row, split: True,
) -> Iterator[Question]:
    """Yield the questions of all files and folders, in order; ids are unique over all of them.

    The gold passages of a query of a BEIR folder are those that are judged relevant, its split is
    that of the judgements; queries that nobody judged are left out. `keep` chooses rows.
    """
    places: dict[str, str] = {}
    files = [(path, file) for path in paths for file in find_question_files(path, problems)]
    stems = Counter(file.path.name.split(".")[0] for _, file in files)
    # The split and the relevant passages of each judged query of a BEIR folder.
    judged = {
        folder: {
            query: (split, [passage for passage, score in passages.items() if score > 0])
            for split, file in find_judgements(folder).items()
            for query, passages in read_judgements(file, problems).items()
        }
        for folder in filter(os.path.isdir, paths)
    }
    for path, file in files:
        name = file.path.name.split(".")[0]
        if stems[name] > 1:
            name = f"{file.path.resolve().parent.name}/{name}"
        rows: Iterator[Row] = (row for row in file.rows(problems) if keep(row, file.split))
        known = judged.get(path)
        if known:
            rows = _judged_rows(rows, known)
        parse = partial(parse_question, path=file.path, name=name, split=file.split)
        expected = f"question; expected rows {QUESTION_SHAPES}"
        made = parse_rows(file.path, problems, parse, expected, places=places, rows=rows)
        if known:
            made = (replace(one, split=known[one.id][0]) for one in made)
        yield from made


def _judged_rows(rows: Iterator[Row], judged: Mapping[str, tuple[str, list[str]]]) -> Iterator[Row]:
    """The queries that are judged, as questions whose gold passages are the relevant ones."""
    for row in rows:
        with contextlib.suppress(BadRow):  # nobody judged a row without a usable id
            _, gold = judged.get(read_id(row.value) or "", ("", []))
            if gold:
                named = {"question": row.value.get("text"), "supporting_ids": gold}
                yield Row(row.number, {**row.value, **named})


def load_corpus(path: Path, problems: Problems) -> tuple[Passage, ...]:
    """The passages of a file or folder, with ids that are unique."""
    return tuple(tracked(iter_corpus(path, problems, places={}), f"reading {path.name}"))


def _divide(questions: Sequence[Question], test_frac: float) -> dict[str, tuple[Question, ...]]:
    """The questions of each split: their own (validation may be the test), or by a hash of ids."""
    names = {question.split for question in questions} - {""}
    if len(names) < 2:
        train, test = split_questions(questions, test_frac)
        return {TRAIN: train, TEST: test}
    renamed = {VALIDATION: TEST} if TEST not in names else {}
    parts: dict[str, list[Question]] = {TRAIN: [], VALIDATION: [], TEST: []}
    for question in questions:
        split = question.split or TRAIN
        parts[renamed.get(split, split)].append(question)
    return {split: tuple(part) for split, part in parts.items() if part or split in (TRAIN, TEST)}


def split_questions(
    questions: Sequence[Question], test_frac: float
) -> tuple[tuple[Question, ...], tuple[Question, ...]]:
    """Split questions into (train, test) by a hash of their ids."""
    leaders: dict[str, str] = {}
    points: dict[str, float] = {}
    for question in questions:
        leader = leaders.setdefault(fold(question.question), question.id)
        digest = hashlib.sha256(leader.encode("utf-8", "surrogatepass")).digest()
        points[question.id] = int.from_bytes(digest[:6]) / 2**48
    threshold, ordered = test_frac, sorted(set(points.values()))
    if ordered and 0 < test_frac < 1:
        threshold = min(max(test_frac, ordered[1]), ordered[-1]) if ordered[1:] else 0.0
    train = tuple(q for q in questions if points[q.id] >= threshold)
    return train, tuple(q for q in questions if points[q.id] < threshold)


def _fingerprint(paths: Sequence[Path]) -> tuple[tuple[str, int, int], ...]:
    """Path, time and size of every file, and of every file in a folder but the hidden ones."""
    every = [p.rglob("[!.]*") if os.path.isdir(p) else [p] for p in paths]
    files = sorted(file for one in every for file in one if os.path.isfile(file))
    return tuple((str(f.resolve()), f.stat().st_mtime_ns, f.stat().st_size) for f in files)
