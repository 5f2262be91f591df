"""A whole data set from its files: questions of each split, passages, gold passages, and notes.

Owns how questions and corpus come together: which corpus is meant, which question is in which
split, that unchanged files are read once, and that a large corpus is kept on disk, in the user's
cache folder, by the path, size and time of its file.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

from searchrl.core.episode import Passage
from searchrl.data.arrow import tell_folder
from searchrl.data.folders import (
    find_alias_file,
    find_corpus,
    find_judgements,
    find_question_files,
    read_aliases,
    read_judgements,
)
from searchrl.data.gold import ABSENT, Pool, find_gold, tell_unknown
from searchrl.data.passages import iter_corpus
from searchrl.data.problems import Problems, Row
from searchrl.data.questions import QUESTION_SHAPES, Question, parse_question
from searchrl.data.rows import parse_rows
from searchrl.errors import ConfigError, DataError, show_value
from searchrl.retrieval.passages import PassageStore, has_passages, open_passages, write_passages
from searchrl.retrieval.progress import tracked

TRAIN, VALIDATION, TEST = "train", "validation", "test"

LARGE_BYTES = 32 << 20
"""Size of a file of rows from which on its passages are kept on disk."""

Paths = str | Path | Sequence[str | Path]
Fingerprint = tuple[tuple[str, int, int], ...]
"""Path, time and size of files: changes when one does."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """What the files hold.

    `questions` are those of each split, `key` names the passages, `gold` are those that some
    question needs, by their ids, and `notes` are sentences that a user should read: what is not
    known of the gold passages, and why. `passages` are empty if none were given.
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
) -> Dataset:
    """Read and check all files. Without `corpus` it is what lies beside or in the questions.

    Unchanged files are read once.

    Raises:
        DataError: rows that cannot be used: the first ones.
    """

    def expand(paths: Paths | None) -> tuple[Path, ...]:
        items = [paths] if isinstance(paths, str | Path) else paths or ()
        return tuple(Path(os.path.expanduser(item)) for item in items)

    files = (expand(questions), expand(test_questions), expand(corpus))
    asked = files[0] + files[1]
    beside = [find_alias_file(folder) for path in asked for folder in (path, path.parent)]
    marks = _fingerprint([*asked, *files[2], *filter(None, beside)])
    return _load(*files, test_frac, marks)


# Each rollout of a group makes its own environment; the files are read once for all of them.
@lru_cache(maxsize=4)
def _load(
    asked: tuple[Path, ...],
    asked_for_test: tuple[Path, ...],
    corpora: tuple[Path, ...],
    test_frac: float,
    seen: Fingerprint,
) -> Dataset:
    problems, pool = Problems(), Pool()
    folders = (path for path in asked if os.path.isdir(path))
    own = (path for path in folders if find_corpus(path) not in (None, path))
    corpus = next(iter((*corpora, *own)), None)
    every: list[list[Question]] = []
    for paths in (asked, asked_for_test):
        read = read_questions(paths, problems)
        every.append([pool.take(one) if corpus is None else one for one in read])
    train, test = (_add_aliases(read, problems) for read in every)
    is_sound = not problems.found
    passages = tuple(pool.passages) if corpus is None else load_corpus(corpus, problems)
    questions, notes = find_gold([*train, *test], passages)
    gold = find_passages(passages, {i for question in questions for i in question.gold_ids})
    train, test = questions[: len(train)], questions[len(train) :]
    if passages and is_sound:
        for one in questions:
            unknown = [i for i in one.gold_ids if i not in gold and not i.startswith(ABSENT)]
            if unknown:
                where = corpus or asked[0]
                reason = f"supporting_ids {show_value(unknown)} name no passage of {where}"
                problems.add(Path(one.path), one.line, reason)
    trained = {_plain(one.question): f"{one.path}:{one.line}" for one in train}
    for one in test:
        if place := trained.get(_plain(one.question)):
            reason = f"this test question is also a training question ({place})"
            problems.add(Path(one.path), one.line, reason)
    problems.ensure_none()
    parts = {TRAIN: tuple(train), TEST: tuple(test)}
    marks = repr((asked, asked_for_test, corpora, seen)).encode("utf-8", "surrogatepass")
    every_path = asked + asked_for_test
    return Dataset(
        questions=parts if asked_for_test else divide(train, test_frac),
        passages=passages,
        key=f"corpus-{hashlib.sha256(marks).hexdigest()[:16]}",
        gold=gold,
        notes=(
            *(note for path in every_path for note in tell_folder(path)),
            *problems.notes,
            *notes,
            *tell_contradictions(questions),
            *tell_unknown(questions, ", ".join(map(str, every_path))),
            *(() if asked_for_test else _tell_unsaid(train)),
        ),
    )


def read_questions(
    paths: Sequence[Path],
    problems: Problems,
    keep: Callable[[Row, str], bool] = lambda row, split: True,
) -> Iterator[Question]:
    """Yield the questions of all files and folders, in order; ids are unique over all of them.

    Of the queries of a BEIR folder, what is judged relevant is gold, and the judgements split;
    queries that nobody judged tell nothing and are left out. `keep` says whether a row of a split
    is wanted.
    """
    places: dict[str, str] = {}
    files = [(path, file) for path in paths for file in find_question_files(path, problems)]
    stems = Counter(_stem(file.path) for _, file in files)
    judged = {path: _read_folder(path, problems) for path in paths if os.path.isdir(path)}
    for path, file in files:
        name = _stem(file.path)
        if stems[name] > 1:
            name = f"{file.path.resolve().parent.name}/{name}"
        rows = (row for row in file.rows(problems) if keep(row, file.split))
        known = judged.get(path)
        if known:
            rows = (_as_question(row, known) for row in rows)
            rows = (row for row in rows if row.value["supporting_ids"])
        parse = partial(parse_question, path=file.path, name=name, split=file.split)
        expected = f"question; expected rows {QUESTION_SHAPES}"
        made = parse_rows(file.path, problems, parse, expected, places=places, rows=rows)
        if known:
            made = (replace(one, split=known[one.id][0]) for one in made)
        yield from made


def _read_folder(path: Path, problems: Problems) -> dict[str, tuple[str, list[str]]]:
    """The split and the relevant passages of each judged query of a BEIR folder; {} of others."""
    return {
        query: (split, [passage for passage, score in passages.items() if score > 0])
        for split, file in find_judgements(path).items()
        for query, passages in read_judgements(file, problems).items()
    }


def _as_question(row: Row, judged: Mapping[str, tuple[str, list[str]]]) -> Row:
    _, gold = judged.get(str(row.value.get("_id", row.value.get("id"))), ("", []))
    added = {"question": row.value.get("text"), "supporting_ids": gold}
    return row._replace(value={**row.value, **added})


def _add_aliases(questions: list[Question], problems: Problems) -> list[Question]:
    """The questions with the further names of their answers, if a file beside them has some."""
    wanted: dict[Path, set[str]] = {}
    for one in questions:
        if one.answer_id:
            wanted.setdefault(Path(one.path).parent, set()).add(one.answer_id)
    names = {
        folder: read_aliases(file, ids, problems)
        for folder, ids in wanted.items()
        if (file := find_alias_file(folder))
    }
    if not names:
        return questions

    def named(one: Question) -> Question:
        more = names.get(Path(one.path).parent, {}).get(one.answer_id, ())
        answers = tuple(dict.fromkeys((*one.answers, *more)))
        return replace(one, answers=answers) if one.answers and more else one

    return [named(one) for one in questions]


def load_corpus(path: Path, problems: Problems) -> Sequence[Passage]:
    """The passages of a file or folder: a tuple, or a `PassageStore` for a large file of rows.

    A folder that `write_passages` wrote is one, too.

    Raises:
        ConfigError: a large corpus cannot be kept on disk.
    """
    if has_passages(path):
        return open_passages(path)
    file = find_corpus(path)
    marks = _fingerprint([file] if file else [])
    if file is None or sum(size for _, _, size in marks) < LARGE_BYTES:
        return tuple(iter_corpus(path, problems, places={}))
    import platformdirs

    name = hashlib.sha256(repr(marks).encode("utf-8", "surrogatepass")).hexdigest()[:24]
    folder = platformdirs.user_cache_path("searchrl") / "corpora" / name
    building = folder.with_name(f"{folder.name}.{os.getpid()}")
    try:
        if has_passages(folder):
            return open_passages(folder)
        shutil.rmtree(building, ignore_errors=True)
        passages = tracked(iter_corpus(file, problems), f"reading {file.name}")
        try:
            write_passages(building, passages)
        except DataError as error:
            if not problems.found:
                problems.add(file, 0, str(error))
        problems.ensure_none()
        try:
            building.rename(folder)
        except OSError:  # another process was first
            if not has_passages(folder):
                raise
        return open_passages(folder)
    except OSError as error:
        raise ConfigError(
            f"{file}: a corpus of this size is kept in '{folder.parent}', and that failed: "
            f"{error.strerror or error}. Make room there, or set XDG_CACHE_HOME to another folder"
        ) from error
    finally:
        shutil.rmtree(building, ignore_errors=True)


def find_passages(passages: Sequence[Passage], ids: set[str]) -> dict[str, Passage]:
    """The passages of these ids, as far as there are any. A corpus on disk is not read through."""
    if isinstance(passages, PassageStore):
        places = {identity: passages.find(identity) for identity in ids}
        return {identity: passages[at] for identity, at in places.items() if at is not None}
    return {passage.id: passage for passage in passages if passage.id in ids}


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


def split_questions(
    questions: Sequence[Question], test_frac: float
) -> tuple[tuple[Question, ...], tuple[Question, ...]]:
    """Split questions into (train, test) by a hash of their ids.

    Questions with the same text are in the same split. With 0 < test_frac < 1 and at least two
    different questions, neither split is empty.
    """
    leaders: dict[str, str] = {}
    points: dict[str, float] = {}
    for question in questions:
        leader = leaders.setdefault(_plain(question.question), question.id)
        digest = hashlib.sha256(leader.encode("utf-8", "surrogatepass")).digest()
        points[question.id] = int.from_bytes(digest[:6]) / 2**48
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
    return train, tuple(q for q in questions if points[q.id] < threshold)


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


def _tell_unsaid(questions: Sequence[Question]) -> list[str]:
    """A sentence about questions of a split by another name than ours, which `divide` trains on."""
    unsaid = [question for question in questions if not question.split]
    if not unsaid or len({question.split for question in questions} - {""}) < 2:
        return []
    return [
        f"{len(unsaid):,} of {len(questions):,} questions are in a split that is neither train, "
        f"dev, validation nor test (first {unsaid[0].path}:{unsaid[0].line}); they are trained on"
    ]


def _fingerprint(paths: Sequence[Path]) -> Fingerprint:
    """Path, time and size of every file, and of every file in a folder but the hidden ones."""
    marks = []
    for path in paths:
        inside = sorted(path.rglob("[!.]*")) if os.path.isdir(path) else [path]
        for file in inside:
            if os.path.isfile(file):
                stat = file.stat()
                marks.append((str(file.resolve()), stat.st_mtime_ns, stat.st_size))
    return tuple(marks)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _stem(path: Path) -> str:
    return path.name.split(".")[0]
