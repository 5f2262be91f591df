"""Corpus rows: every layout of a passage we read, and every reason we refuse one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from searchrl.core.episode import Passage
from searchrl.data.cells import read_id, refuse
from searchrl.data.folders import find_corpus
from searchrl.data.problems import BadRow, Problems, ensure_encodable
from searchrl.data.rows import FILE_KINDS, parse_rows
from searchrl.data.text_folder import TEXT_SUFFIXES, read_text_file, read_text_folder
from searchrl.errors import suggest_path

CORPUS_SHAPES = (
    '{"id", "contents": "Title\\ntext"}, {"_id", "title", "text"} or {"id", "title", "text"}'
)
CORPUS_HELP = (
    f"a folder of {'/'.join(TEXT_SUFFIXES)} files, or a file ({FILE_KINDS}) of rows {CORPUS_SHAPES}"
)


def iter_corpus(
    path: Path, problems: Problems, places: dict[str, str] | None = None
) -> Iterator[Passage]:
    """Yield the passages of a corpus: a file of rows, a text file, or a folder of either.

    Rows that cannot be used are noted, and those without title and text left out. `places` is as
    for `parse_rows`: without it, ids are not compared.
    """
    file = find_corpus(path)
    if file is None:
        if os.path.isdir(path):
            yield from read_text_folder(path, problems)
        elif path.suffix.lower() in TEXT_SUFFIXES and os.path.isfile(path):
            yield from read_text_file(path, path.name, problems)
        else:
            told = f"no such corpus; expected {CORPUS_HELP}.{suggest_path(path)}"
            problems.add(path, 0, told)
        return
    expected, num_blank = f"passage; expected rows {CORPUS_SHAPES}", 0
    for passage in parse_rows(
        file, problems, lambda row: parse_passage(row.value), expected, places=places
    ):
        if passage.title or passage.text:
            yield passage
        else:
            num_blank += 1
    if num_blank:
        problems.notes.append(f"passages of {file} without title and text, left out: {num_blank:,}")


def parse_passage(value: Mapping[str, Any]) -> Passage:
    """The passage of a row of any layout, or `BadRow`; title and text may both be empty."""
    identity = read_id(value)
    if identity is None:
        raise BadRow(f"has no 'id'; expected {CORPUS_SHAPES}")
    for key in ("title", "text", "contents"):
        if not isinstance(value.get(key), str | None):
            raise refuse(key, "text", value[key])
        ensure_encodable(key, value.get(key) or "")
    title, text, contents = (value.get(key) for key in ("title", "text", "contents"))
    if text is None and contents is not None:
        title, text = _split_contents(contents.strip())
    elif text is None and not title and "text" not in value:
        raise BadRow(f"has neither 'text' nor 'contents'; expected {CORPUS_SHAPES}")
    return Passage(id=identity, text=(text or "").strip(), title=(title or "").strip())


def _split_contents(contents: str) -> tuple[str, str]:
    """Title and text of `Title\\ntext`, as FlashRAG and Search-R1 have it, quoted or not."""
    first, _, rest = contents.partition("\n")
    title = first.strip()
    if len(title) > 1 and title[0] == title[-1] == '"':
        return title[1:-1].strip(), rest.strip()
    is_sentence = len(title) > 200 or title.endswith((".", "。"))
    return ("", contents) if is_sentence or not rest.strip() else (title, rest.strip())
