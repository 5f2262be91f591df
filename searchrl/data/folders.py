"""Folders of data: files of questions, of the corpus, judgements.

The layouts are BEIR (`queries.jsonl`, `corpus.jsonl`, `qrels/SPLIT.tsv`), `questions.jsonl` beside
`corpus.jsonl`, and the splits that `datasets` has.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from searchrl.data.arrow import is_loadable, load_splits, to_rows
from searchrl.data.problems import BadRow, Problems, Row
from searchrl.data.rows import ROW_SUFFIXES, read_rows, read_text
from searchrl.data.text_folder import TEXT_SUFFIXES
from searchrl.errors import show_value

_SPLITS = {"train": "train", "dev": "validation", "validation": "validation", "test": "test"}
"""Names of splits in data sets, and ours."""
_HEAD = re.compile(r"(?:query|q|topic)(?:[-_ ]?(?:id|no))?", re.IGNORECASE)
"""Names of the first column of judgements."""


class QuestionFile(NamedTuple):
    """A file of questions, or a split that `datasets` loaded, and the split that it is of ours."""

    path: Path
    split: str = ""
    loaded: Any = None

    def rows(self, problems: Problems) -> Iterator[Row]:
        """The rows; see `read_rows`."""
        if self.loaded is None:
            return read_rows(self.path, problems)
        return (Row(number, value) for number, value in enumerate(to_rows(self.loaded), 1))


def find_question_files(path: Path, problems: Problems) -> list[QuestionFile]:
    """The files of questions of a path: itself, those of its splits, or those in a folder."""
    if is_loadable(path):
        try:
            parts = load_splits(path)
        except BadRow as reason:
            problems.add(path, 0, str(reason))
            return []
        return [
            QuestionFile(path / str(name), _SPLITS.get(str(name), ""), part)
            for name, part in parts.items()
        ]
    if not os.path.isdir(path):
        return [QuestionFile(path)]
    if named := _files_called(path, "questions") or _files_called(path, "queries"):
        return [QuestionFile(file) for file in (named[0], *_files_called(path, "queries_*"))]
    by_split = [
        QuestionFile(file[0], ours)
        for name, ours in _SPLITS.items()
        if (file := _files_called(path, name))
    ]
    return by_split or [QuestionFile(path)]


def find_corpus(path: Path) -> Path | None:
    """The file of a corpus of rows, or what `datasets` reads; None for texts, or nothing."""
    if is_loadable(path):
        return path
    if os.path.isdir(path):
        return next(iter(_files_called(path, "corpus")), None)
    is_text = path.suffix.lower() in TEXT_SUFFIXES
    return path if os.path.isfile(path) and not is_text else None


def find_judgements(path: Path) -> dict[str, Path]:
    """The judgements of a BEIR folder: the file of each of our splits; {} if it has none."""
    files: dict[str, Path] = {}
    for name, ours in _SPLITS.items():
        for file in _files_called(path / "qrels", name):
            files.setdefault(ours, file)
    return files


def read_judgements(path: Path, problems: Problems) -> dict[str, dict[str, int]]:
    """Query id -> passage id -> its relevance; 0 and below are not relevant.

    The file has the columns `query-id`, `corpus-id` and `score`, or the four of TREC.
    """
    judged: dict[str, dict[str, int]] = {}
    text = read_text(path, problems, "a table of judgements (.tsv)") or ""
    for line, words in enumerate(text.split("\n"), 1):
        words = words.strip(" \r")
        cells = re.split(r" *\t *", words) if "\t" in words else re.split(" +", words)
        if not words.strip():
            continue
        try:
            # TREC: query, iteration, document, relevance.
            query, passage, score = [cells[0], *cells[2:]] if len(cells) == 4 else cells
            if line == 1 and score.isalpha() and _HEAD.fullmatch(query):
                continue
            if not float(score).is_integer():
                raise ValueError
            judged.setdefault(query, {})[passage] = int(float(score))
        except ValueError:
            told = f"expected query-id, corpus-id and score, got {show_value(cells)}"
            problems.add(path, line, told)
    return judged


def _files_called(folder: Path, name: str) -> list[Path]:
    """Files of rows in a folder by their name without endings, plain ones before packed ones."""
    ends = [f"{end}{pack}" for pack in ("", ".gz") for end in ROW_SUFFIXES]
    return [file for end in ends for file in sorted(folder.glob(f"{name}{end}"))]
