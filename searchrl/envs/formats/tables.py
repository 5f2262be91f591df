"""CSV and TSV as rows: the first line names the columns.

Owns delimiters, cells that hold lists, and the layout of DPR's question files, which have no such
line. Tables are quoted as `csv` and pandas quote them; DPR's passages (`id`, `text`, `title`) are
such a table. Files are opened by `rows`.
"""

from __future__ import annotations

import ast
import csv
import io
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from searchrl.envs.formats.problems import Problems
from searchrl.envs.formats.row import Row
from searchrl.errors import show_value

TABLE_SUFFIXES = (".csv", ".tsv")

_PROSE = frozenset({"id", "_id", "title", "text", "contents", "question"})
"""Columns whose cells are always text, even if one looks like a list."""
_OPEN = (
    "a cell begins with a quotation mark and takes in rows that follow; put the cell in quotes and "
    'write each mark inside it twice (""), as `csv` and pandas do'
)
_MAX_CELL = 1 << 27
"""Characters of the longest cell; the limit of `csv` is 131,072."""


def read_table(stream: BinaryIO, path: Path, problems: Problems) -> Iterator[Row]:
    """The rows of a table, each with its first line; an empty cell is a value that is missing.

    Names of columns are read in lower case.

    A cell that begins with `[` or `{` and is JSON, or a list as Python writes it, is that value.
    A cell whose quotes take in rows that follow is noted: these rows would be lost in it.
    """
    csv.field_size_limit(max(csv.field_size_limit(), _MAX_CELL))
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
    line = 1
    try:
        first = text.readline()
        delimiter = "\t" if "\t" in first else ";" if ";" in first and "," not in first else ","
        lines = _Lines(first, text)
        reader = csv.reader(lines, delimiter=delimiter)
        first_cells = [cell.strip() for cell in next(reader, [])]
        names = [cell.lower() for cell in first_cells]
        questions = _dpr_question(first_cells)
        if questions is not None:
            yield Row(1, questions)
            names = list(questions)
        elif problem := _find_header_problem(names):
            problems.add(path, 1, problem)
            return
        line = reader.line_num + 1
        for cells in reader:
            if any(cells):
                if lines.are_over or (delimiter == "\t" and any(map(_holds_rows, cells))):
                    problems.add(path, line, _OPEN)
                elif len(cells) == len(names):
                    yield Row(line, _as_object(names, cells))
                else:
                    problems.add(path, line, f"has {len(cells)} cells under {len(names)} columns")
            line = reader.line_num + 1
    except UnicodeDecodeError:
        problems.add(path, line, "not UTF-8 text; save the file as UTF-8; the rest was not read")
    except csv.Error as error:
        problems.add(path, line, f"not a table: {error}; the rest was not read")
    finally:
        text.detach()  # the stream belongs to whoever opened it


class _Lines:
    """The lines of a table for `csv`. A row that it gives after the last line has open quotes."""

    def __init__(self, first: str, rest: io.TextIOWrapper) -> None:
        self._lines = itertools.chain([first], rest)
        self.are_over = False

    def __iter__(self) -> Iterator[str]:
        yield from self._lines
        self.are_over = True


def _holds_rows(cell: str) -> bool:
    """Whether a quoted cell of a TSV holds what parts cells and what parts rows."""
    return "\t" in cell and "\n" in cell


def _as_object(names: Sequence[str], cells: Sequence[str]) -> dict[str, Any]:
    return {
        name: _read_cell(name, cell) if cell.strip() else None
        for name, cell in zip(names, cells, strict=True)
        if name
    }


def _read_cell(name: str, cell: str) -> Any:
    stripped = cell.strip()
    if name in _PROSE or stripped[:1] not in ("[", "{"):
        return cell
    try:
        return json.loads(stripped)
    except (ValueError, RecursionError):
        found = _read_python_list(stripped)
        return cell if found is None else found


def _read_python_list(text: str) -> list[str] | None:
    """A list of texts as `repr` writes it, as pandas and DPR have them; None if it is none."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    is_list = isinstance(value, list) and all(isinstance(item, str) for item in value)
    return value if is_list else None


def _dpr_question(cells: Sequence[str]) -> dict[str, Any] | None:
    """The first line of a question file of DPR: a question and a list of answers, no names."""
    if len(cells) != 2 or not cells[1].startswith("["):
        return None
    answers = _read_python_list(cells[1])
    return None if not answers else {"question": cells[0], "answers": answers}


def _find_header_problem(names: Sequence[str]) -> str:
    named = [name for name in names if name]
    if not named:
        return "names no columns; expected their names on the first line"
    if len(set(named)) < len(named):
        twice = next(name for name in named if named.count(name) > 1)
        return f"names the column {show_value(twice)} twice"
    return ""
