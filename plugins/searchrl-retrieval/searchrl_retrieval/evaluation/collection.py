"""Collections with judged passages: BEIR folders, and data sets whose questions name their gold.

Files are found and read by the core (`searchrl.data`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from searchrl import DataError, show_value, suggest_path
from searchrl.contracts import Passage
from searchrl.data import (
    Problems,
    Row,
    find_corpus,
    find_judgements,
    load_corpus,
    read_gold,
    read_judgements,
    read_questions,
)

TEST = "test"
"""The split of a BEIR folder if nobody says."""

_OUR_NAMES = {"dev": "validation"}
"""Splits that the core calls by another name."""

_LAYOUTS = (
    "a BEIR folder (corpus.jsonl, queries.jsonl, qrels/test.tsv), a folder of questions with gold "
    "passages (corpus.jsonl, questions.jsonl with supporting_ids), or an original file of "
    "HotpotQA, 2WikiMultihopQA or MuSiQue; each file also as .gz"
)


@dataclass(frozen=True, eq=False)
class Judged:
    """One question, and grades of passages: above 0 is relevant. It is equal to itself alone."""

    id: str
    text: str
    qrels: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Collection:
    """Passages, and questions with judged ones; `notes` on what was left out.

    `has_hops`: the relevant passages of a question are needed together.
    """

    path: Path
    split: str
    passages: Sequence[Passage]
    questions: tuple[Judged, ...]
    has_hops: bool
    notes: tuple[str, ...] = ()

    @property
    def qrels(self) -> dict[str, Mapping[str, int]]:
        """The judgements by the id of the question."""
        return {one.id: one.qrels for one in self.questions}


def read_collection(path: Path, split: str = "") -> Collection:
    """Read a folder or a file; `DataError` if it cannot be used.

    `split` is, for a BEIR folder, the name of the file in `qrels` (`test`). Else it is the name of
    the file of questions, or the end of a question's `source` after a slash; all without it.
    """
    if not path.exists():
        raise DataError(f"there is nothing at '{path}'; expected {_LAYOUTS}.{suggest_path(path)}")
    problems = Problems()
    is_beir = path.is_dir() and bool(find_judgements(path))
    if is_beir:
        split = split or TEST
        passages, questions, notes = _read_beir(path, split, problems)
    else:
        passages, questions, notes = _read_gold(path, split, problems)
    problems.ensure_none()
    if not questions:
        raise DataError(f"'{path}' has no judged questions" + f" of split '{split}'" * bool(split))
    relevant = {name for one in questions for name in one.qrels}
    if missing := len(relevant - find_passages(passages, relevant).keys()):
        notes.append(
            f"judged passages that are not in the corpus, so nothing finds them: {missing}"
        )
    return Collection(path, split, passages, questions, not is_beir, (*problems.notes, *notes))


def find_passages(passages: Sequence[Passage], ids: Iterable[str]) -> dict[str, Passage]:
    """The passages of these ids, as far as there are any."""
    wanted = set(ids)
    return {passage.id: passage for passage in passages if passage.id in wanted}


_Read = tuple[Sequence[Passage], tuple[Judged, ...], list[str]]
"""Passages, questions, and what was left out."""


def _read_beir(path: Path, split: str, problems: Problems) -> _Read:
    """A BEIR folder. Published collections lack the text of some queries (NFCorpus, for one)."""
    splits = find_judgements(path)
    wanted = _OUR_NAMES.get(split, split)
    if wanted not in splits:
        known = ", ".join(sorted(splits))
        raise DataError(f"'{path}' has no qrels/{split}.tsv; its splits: {known}")
    if not find_corpus(path):
        raise DataError(f"'{path}' has no corpus; expected {_LAYOUTS}")
    read = read_judgements(splits[wanted], problems)
    texts = {query.id: query.question for query in read_questions([path], problems)}
    questions = tuple(
        Judged(name, texts[name], judged) for name, judged in read.items() if name in texts
    )
    if read and not questions:
        first = show_value(next(iter(read)))
        problems.add(splits[wanted], 0, f"judges {first}, which is no query; nor is another")
    left_out = len(read) - len(questions)
    text = "judged queries without a text or a relevant passage, left out: "
    notes = [f"{text}{left_out}"] if left_out else []
    return load_corpus(path, problems), questions, notes


def _read_gold(path: Path, split: str, problems: Problems) -> _Read:
    """A data set that says which passages answer a question."""
    corpus = path if path.is_dir() and find_corpus(path) else None
    read = read_questions([path], problems, partial(_is_of, split))
    (questions,), passages, notes = read_gold([read], corpus, problems)
    judgeable = [one for one in questions if one.gold_ids]
    if left_out := len(questions) - len(judgeable):
        notes.append(f"questions without a known gold passage, left out: {left_out}")
    judged = (Judged(one.id, one.question, dict.fromkeys(one.gold_ids, 1)) for one in judgeable)
    return passages, tuple(judged), notes


def _is_of(split: str, row: Row, split_of_file: str) -> bool:
    """True if a question is of a split: by the name of its file, or by the end of its source."""
    names = {split_of_file, str(row.value.get("source") or "").rpartition("/")[2]}
    return not split or bool({split, _OUR_NAMES.get(split, split)} & names)
