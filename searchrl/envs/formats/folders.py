"""What lies in a folder of data: the files of questions, of the corpus, and the judgements.

Owns the layouts: BEIR (`queries.jsonl`, `corpus.jsonl`, `qrels/SPLIT.tsv`), `questions.jsonl`
beside `corpus.jsonl`, and what `save_to_disk` writes. Every file may be gzipped. Says where rows
are, and reads none but judgements. Called by `dataset` and `passages`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from searchrl.envs.formats.arrow import find_splits, is_arrow_folder
from searchrl.envs.formats.problems import Problems
from searchrl.envs.formats.rows import ROW_SUFFIXES, open_bytes
from searchrl.envs.formats.tables import read_table
from searchrl.envs.formats.text_folder import TEXT_SUFFIXES
from searchrl.errors import show_value

_SPLITS = {"train": "train", "dev": "validation", "validation": "validation", "test": "test"}
"""Names of splits in data sets, and ours."""

Judgements = dict[str, dict[str, int]]
"""Query id -> passage id -> how relevant it is; 0 is not relevant."""


class QuestionFile(NamedTuple):
    """A file (or Arrow folder) of questions, and the split that it says they belong to."""

    path: Path
    split: str = ""


def find_question_files(path: Path, problems: Problems) -> list[QuestionFile]:
    """The files of questions of a path: itself, those of its splits, or those in a folder."""
    if splits := find_splits(path, problems):
        return [QuestionFile(folder, _SPLITS.get(name, "")) for name, folder in splits.items()]
    if not os.path.isdir(path) or is_arrow_folder(path):
        return [QuestionFile(path)]
    named = _files_called(path, "questions") or _files_called(path, "queries")
    others = sorted(f for f in _files_called(path, "queries_*") if f not in named)
    if named:
        return [QuestionFile(file) for file in (*named[:1], *others)]
    by_split = [
        QuestionFile(file[0], ours)
        for name, ours in _SPLITS.items()
        if (file := _files_called(path, name))
    ]
    return by_split or [QuestionFile(path)]


def find_corpus_file(path: Path) -> Path | None:
    """The file (or Arrow folder) of a corpus of rows; None if it is one of texts, or not there."""
    if is_arrow_folder(path):
        return path
    if os.path.isdir(path):
        return next(iter(_files_called(path, "corpus")), None)
    is_text = path.suffix.lower() in TEXT_SUFFIXES
    return path if os.path.isfile(path) and not is_text else None


def find_judgement_files(path: Path) -> dict[str, Path]:
    """The judgements of a BEIR folder: the file of each of our splits; {} if it has none."""
    found: dict[str, Path] = {}
    for name, ours in _SPLITS.items():
        for file in _files_called(path / "qrels", name):
            found.setdefault(ours, file)
    return found


def read_judgements(path: Path, problems: Problems) -> Judgements:
    """The judgements of one file: a table `query-id`, `corpus-id`, `score`, or TREC's four columns.

    What cannot be read is noted.
    """
    judged: Judgements = {}
    with open_bytes(path, problems, "a table of judgements (.tsv)") as stream:
        if stream is None:
            return judged
        first = stream.readline()
        stream.seek(0)
        if b"query" in first.lower():
            for row in read_table(stream, path, problems):
                said = [row.value.get(key) for key in ("query-id", "corpus-id", "score")]
                _judge(judged, path, row.line, said, problems)
        else:
            for line, raw in enumerate(stream, 1):
                cells: list[str | None] = [*raw.decode("utf-8", "replace").split()]
                if cells:
                    # TREC: query, iteration, document, relevance.
                    said = [cells[0], *cells[2:]] if len(cells) == 4 else cells
                    _judge(judged, path, line, said, problems)
    return judged


def _judge(
    judged: Judgements, path: Path, line: int, said: list[str | None], problems: Problems
) -> None:
    try:
        query, passage, score = said
        if query is None or passage is None or score is None:
            raise ValueError
        judged.setdefault(query.strip(), {})[passage.strip()] = round(float(score))
    except (ValueError, OverflowError):
        problems.add(path, line, f"expected query-id, corpus-id and score, got {show_value(said)}")


def _files_called(folder: Path, name: str) -> list[Path]:
    """Files of rows in a folder by their name without endings, plain ones before packed ones."""
    found = [file for end in ROW_SUFFIXES for file in sorted(folder.glob(f"{name}{end}"))]
    return found + [file for end in ROW_SUFFIXES for file in sorted(folder.glob(f"{name}{end}.gz"))]
