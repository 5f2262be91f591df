"""Corpus rows: every layout of a passage we read, and every reason we refuse one.

Owns what the keys of a row mean, and the corpus of one path: rows, or texts. Files, formats and
lines are read by `rows`, folders of text files by `text_folder`. Called by `dataset`, by
`regulations.handbook_file` and by what builds an index of a corpus.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from searchrl.core.episode import Passage
from searchrl.envs.formats.folders import find_corpus_file
from searchrl.envs.formats.problems import Problems
from searchrl.envs.formats.questions import read_id
from searchrl.envs.formats.row import BadRow, Row, ensure_encodable, ensure_object
from searchrl.envs.formats.rows import FILE_KINDS, parse_rows, read_rows
from searchrl.envs.formats.text_folder import TEXT_SUFFIXES, read_text_file, read_text_folder
from searchrl.errors import show_value, suggest_path

CORPUS_SHAPES = (
    '{"id", "contents": "Title\\ntext"}, {"_id", "title", "text"} or {"id", "title", "text"}'
)
CORPUS_HELP = (
    f"a folder of {'/'.join(TEXT_SUFFIXES)} files, or a file ({FILE_KINDS}) of rows {CORPUS_SHAPES}"
)

_MAX_TITLE = 200
"""Characters of a first line that can be a title."""


def iter_corpus(
    path: Path, problems: Problems, places: dict[str, str] | None = None
) -> Iterator[Passage]:
    """Yield the passages of a corpus: a file of rows, a text file, or a folder of either.

    Rows are read as they are needed, so a corpus of any size fits; those that cannot be used are
    noted. `places` is as for `parse_rows`: without it, ids are not compared. Rows whose title and
    text are empty are left out, and a note says so: published test collections have them (FiQA of
    BEIR, for one).
    """
    file = find_corpus_file(path)
    if file is not None:
        expected = f"passage; expected rows {CORPUS_SHAPES}"
        rows = _leave_out_blank(read_rows(file, problems), file, problems)
        yield from parse_rows(file, problems, parse_passage, expected, places=places, rows=rows)
    elif os.path.isdir(path):
        yield from read_text_folder(path, problems)
    elif path.suffix.lower() in TEXT_SUFFIXES and os.path.isfile(path):
        yield from read_text_file(path, path.name, problems)
    else:
        near = suggest_path(path)
        problems.add(path, 0, f"no such corpus; expected {CORPUS_HELP}.{near}")


def parse_passage(row: Row) -> Passage:
    """The passage of a row of any layout.

    Raises:
        BadRow: something is missing or of the wrong kind; says what was expected.
    """
    value = ensure_object(row.value, f"such as {CORPUS_SHAPES}")
    identity = read_id(value)
    if identity is None:
        raise BadRow(f"has no 'id'; expected {CORPUS_SHAPES}")
    if value.get("text") is None and value.get("contents") is not None:
        title, text = _split_contents(_ensure_text(value, "contents"))
    else:
        title, text = _ensure_text(value, "title"), _ensure_text(value, "text")
        if value.get("text") is None and not title:
            raise BadRow(f"has neither 'text' nor 'contents'; expected {CORPUS_SHAPES}")
    if not text and not title:
        raise BadRow("the passage is empty: no title and no text")
    return Passage(id=identity, text=text, title=title)


def _leave_out_blank(rows: Iterator[Row], file: Path, problems: Problems) -> Iterator[Row]:
    count = 0
    for row in rows:
        if _is_blank(row.value):
            count += 1
        else:
            yield row
    if count:
        problems.notes.append(
            f"{count:,} passage{'s' * (count > 1)} of {file} without title and text: left out"
        )


def _is_blank(value: Any) -> bool:
    """Whether a row has the keys of a passage, and neither title nor text."""
    if not isinstance(value, Mapping) or value.keys().isdisjoint(("text", "contents")):
        return False
    parts = (value.get(key) or "" for key in ("title", "text", "contents"))
    return all(isinstance(part, str) and not part.strip() for part in parts)


def _ensure_text(value: Mapping[str, Any], key: str) -> str:
    text = value.get(key)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise BadRow(f"'{key}' must be text, got {show_value(text)}")
    return ensure_encodable(key, text.strip())


def _split_contents(contents: str) -> tuple[str, str]:
    """Title and text of `Title\\ntext`, as FlashRAG and Search-R1 have it, with or without quotes.

    A text of one line has no title, and neither has one that begins with a sentence.
    """
    first, newline, rest = contents.strip().partition("\n")
    title = first.strip()
    is_quoted = len(title) > 1 and title[0] == title[-1] == '"'
    is_sentence = len(title) > _MAX_TITLE or title.endswith((".", "。"))
    if not is_quoted and (not newline or not rest.strip() or is_sentence):
        return "", contents.strip()
    return (title[1:-1].strip() if is_quoted else title), rest.strip()
