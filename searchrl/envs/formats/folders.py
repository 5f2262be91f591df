"""What lies in a folder of data: files of questions, of the corpus, judgements, names of answers.

Owns the layouts: BEIR (`queries.jsonl`, `corpus.jsonl`, `qrels/SPLIT.tsv`), `questions.jsonl`
beside `corpus.jsonl`, 2WikiMultihopQA's `id_aliases.json`, and what `save_to_disk` writes. Every
file may be gzipped. Says where rows are, and reads none but judgements and names of answers. Called
by `dataset` and `passages`.
"""

from __future__ import annotations

import os
from collections.abc import Set
from pathlib import Path
from typing import NamedTuple

from searchrl.envs.formats.arrow import find_splits, is_arrow_folder
from searchrl.envs.formats.problems import Problems
from searchrl.envs.formats.row import BadRow, Row, ensure_encodable, ensure_object
from searchrl.envs.formats.rows import ROW_SUFFIXES, open_bytes, read_rows
from searchrl.envs.formats.tables import read_table
from searchrl.envs.formats.text_folder import TEXT_SUFFIXES
from searchrl.errors import show_value

_SPLITS = {"train": "train", "dev": "validation", "validation": "validation", "test": "test"}
"""Names of splits in data sets, and ours."""

_ALIASES = '{"Q_id": id, "aliases": [text, …], "demonyms": [text, …]}'

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
        if query is None or passage is None or score is None or not float(score).is_integer():
            raise ValueError
        judged.setdefault(query.strip(), {})[passage.strip()] = int(float(score))
    except ValueError:
        expected = "query-id, corpus-id and score (a whole number)"
        problems.add(path, line, f"expected {expected}, got {show_value(said)}")


def find_alias_file(folder: Path) -> Path | None:
    """The file of a folder with further names of the answers in it; None if there is none."""
    # A path that is too long for the system is no folder; globbing there would raise.
    files = _files_called(folder, "id_aliases") if os.path.isdir(folder) else []
    return next(iter(files), None)


def read_aliases(path: Path, wanted: Set[str], problems: Problems) -> dict[str, tuple[str, ...]]:
    """The further names of the answers with these ids, of which some may have none.

    2WikiMultihopQA's evaluation (2wikimultihop_evaluate_v1.1.py) counts `aliases` and `demonyms` as
    right. What cannot be read is noted.
    """
    found: dict[str, tuple[str, ...]] = {}
    for row in read_rows(path, problems):
        try:
            identity, names = _read_names(row)
        except BadRow as reason:
            problems.add(path, row.line, str(reason))
            continue
        if identity in wanted:
            found[identity] = names
    return found


def _read_names(row: Row) -> tuple[str, tuple[str, ...]]:
    value = ensure_object(row.value, f"such as {_ALIASES}")
    identity = value.get("Q_id")
    lists = [value.get(key) or [] for key in ("aliases", "demonyms")]
    are_texts = all(isinstance(x, list) and all(isinstance(y, str) for y in x) for x in lists)
    if not isinstance(identity, str) or not are_texts:
        raise BadRow(f"expected {_ALIASES}, got {show_value(dict(value))}")
    names = [name.strip() for one in lists for name in one if name.strip()]
    return identity, tuple(ensure_encodable("aliases", name) for name in names)


def _files_called(folder: Path, name: str) -> list[Path]:
    """Files of rows in a folder by their name without endings, plain ones before packed ones."""
    found = [file for end in ROW_SUFFIXES for file in sorted(folder.glob(f"{name}{end}"))]
    return found + [file for end in ROW_SUFFIXES for file in sorted(folder.glob(f"{name}{end}.gz"))]
