"""Rows from files: the one reader behind questions, corpora, handbooks and demonstrations.

Packed files, JSON, JSONL and tables; nothing is read into memory as a whole.
"""

from __future__ import annotations

import bz2
import codecs
import contextlib
import csv
import gzip
import io
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from searchrl.data.arrow import is_loadable, load_splits, read_columns, to_rows
from searchrl.data.cells import is_numbers, parse_json, unpack
from searchrl.data.problems import BadRow, Problems, Row
from searchrl.errors import show_value, suggest_path

ROW_SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".arrow")
FILE_KINDS = ".jsonl, .json, .csv or .tsv (each also as .gz, .bz2 or .xz), .parquet or .arrow"

_PACKED: dict[bytes, Callable[[Path], Any]] = {
    rb"\x1f\x8b": gzip.open,
    rb"BZh[1-9]1AY&": bz2.open,
    rb"\xfd7zXZ": lzma.open,
}
"""Beginnings of packed files, whatever they are called."""
_FOREIGN = {
    rb"\(\xb5/\xfd": "is packed with Zstandard; unpack it first: unzstd {name}",
    rb"PK\x03\x04": "is an Excel sheet or a zip archive; save the sheet as CSV, or unpack it",
    rb"PAR1\x15": "is Parquet; name it {name}.parquet",
    rb"\xff\xfe|\xfe\xff|\0\0\xfe\xff": "is UTF-16 or UTF-32 text; save it as UTF-8",
}
"""Beginnings of files that are not read, and the remedy; texts may begin with `PAR1`, too."""
_FAULTS = (OSError, EOFError, zlib.error, lzma.LZMAError, UnicodeDecodeError, csv.Error, BadRow)

_PROSE = frozenset({"title", "text", "contents", "question"})
"""Columns whose cells are always text, even if one looks like a number or a list."""
_MISSING = frozenset({"", "nan", "NaN", "NaT", "<NA>"})
"""Cells of other columns in which pandas wrote that there is no value."""
_HEAD = 1024
"""Rows of a table that say whether a column holds whole numbers which pandas wrote as 1874.0."""
_WHOLE = re.compile(r"(-?\d+)\.0")

Made = TypeVar("Made")


def parse_rows(
    path: Path,
    problems: Problems,
    parse: Callable[[Row], Made],
    expected: str,
    *,
    places: dict[str, str] | None = None,
    rows: Iterator[Row] | None = None,
) -> Iterator[Made]:
    """Yield the rows of a file as `parse` makes them; note those that it refuses with `BadRow`.

    `expected` names a row and its shapes for a file without any: `question; expected rows {…}`.
    `places` are those where each `id` was used so far, if ids must be unique. `rows` are those of
    `path` if they were read already.
    """
    is_empty, num_before = True, len(problems.found)
    for row in read_rows(path, problems) if rows is None else rows:
        try:
            made = parse(row)
            if places is not None:
                name: str = cast(Any, made).id
                if name in places:
                    raise BadRow(f"duplicate id {show_value(name)}, first used at {places[name]}")
                places[name] = f"{path}:{row.number}"
        except BadRow as reason:
            problems.add(path, row.number, str(reason))
            continue
        is_empty = False
        yield made
    if is_empty and len(problems.found) == num_before:
        problems.add(path, 0, f"holds no {expected}")


def read_rows(path: Path, problems: Problems) -> Iterator[Row]:
    """Yield the rows of a file (`FILE_KINDS`), of a `save_to_disk` folder or of a Hub id."""
    number = 0
    try:
        for number, value in _read(path, problems):
            if isinstance(value, dict):
                yield Row(number, value)
            else:
                problems.add(path, number, f"expected an object, got {show_value(value)}")
    except _FAULTS as error:
        problems.add(path, 0, _explain(error, path, number, f"a file of rows ({FILE_KINDS})"))


def read_text(path: Path, problems: Problems, expected: str) -> str | None:
    """The text of a file, unpacked; None if it cannot be read, which is noted.

    `expected` names the kind of file: `a handbook (.md or .json)`.
    """
    try:
        with _open(path) as stream:
            return stream.read().decode("utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        problems.add(path, line, _explain(error, path, 0, expected))
    except _FAULTS as error:
        problems.add(path, 0, _explain(error, path, 0, expected))
    return None


def _read(path: Path, problems: Problems) -> Iterator[tuple[int, Any]]:
    """The values of a file, each with its line, or its number where rows have no lines."""
    suffixes = {suffix.lower() for suffix in path.suffixes[-2:]}
    if is_loadable(path):
        values = (row for part in load_splits(path).values() for row in to_rows(part))
        yield from enumerate(values, 1)
    elif suffixes & {".parquet", ".arrow"} and os.path.isfile(path):
        yield from enumerate(read_columns(path), 1)
    else:
        with _open(path) as stream:
            head = stream.peek(1 << 16).lstrip()[:1]
            if suffixes & {".csv", ".tsv"}:
                yield from _read_table(stream, path, problems)
            elif head == b"[":
                yield from _read_json(stream, "item")
            elif head == b"{" and ".json" in suffixes:  # one object on many lines, or one on each
                yield from _read_json(stream, "")
            else:
                yield from _read_lines(stream, path, problems)


def _open(path: Path) -> io.BufferedReader:
    """The bytes of a file, unpacked and behind its byte order mark."""
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise BadRow("is a pipe or a device, which may never end")
    with path.open("rb") as file:
        head = file.read(8)
    unpack = next((way for mark, way in _PACKED.items() if re.match(mark, head)), None)
    if told := next((words for mark, words in _FOREIGN.items() if re.match(mark, head)), ""):
        raise BadRow(told.format(name=path.name))
    stream = io.BufferedReader(unpack(path)) if unpack else path.open("rb")
    if stream.peek(3).startswith(codecs.BOM_UTF8):
        stream.read(3)
    return stream


def _explain(error: Exception, path: Path, number: int, expected: str) -> str:
    rest = f" after row {number}; the rest was not read" if number else ""
    if isinstance(error, BadRow):
        return f"{error}{rest}"
    if isinstance(error, FileNotFoundError):
        return f"no such file; expected {expected}.{suggest_path(path)}"
    if isinstance(error, IsADirectoryError):
        return f"is a folder; expected {expected}"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 text{rest}; save the file as UTF-8"
    if isinstance(error, csv.Error):
        return f'not a table ({error}){rest}; a cell with quotes is written "so ""quoted"" here"'
    if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
        return f"cannot be read: {error.strerror or error}{rest}"
    return f"is a damaged archive ({error}){rest}; fetch it again"


def _read_lines(stream: BinaryIO, path: Path, problems: Problems) -> Iterator[tuple[int, Any]]:
    """JSONL: one value on a line. A line that holds none is noted."""
    for line, raw in enumerate(stream, 1):
        if not raw.strip():
            continue
        try:
            yield line, parse_json(raw.decode("utf-8"))
        except UnicodeDecodeError as error:
            problems.add(path, line, f"not UTF-8 text (byte {error.start + 1} of the line)")
        except BadRow as error:
            if line == 1 and raw[:1] not in b"{[" and re.search(rb"[,\t]", raw):
                told = "looks like a table; name it FILE.csv, or FILE.tsv, and it is read as one"
                raise BadRow(told) from None
            problems.add(path, line, str(error))


def _read_json(stream: BinaryIO, prefix: str) -> Iterator[tuple[int, Any]]:
    """The values at `prefix` of a JSON file, piece by piece."""
    import ijson

    values = ijson.items(stream, prefix, use_float=True, multiple_values=not prefix)
    try:
        yield from enumerate(values, 1)
    except (ijson.JSONError, ValueError, OverflowError) as error:
        told = str(error)
        if "premature EOF" in told:
            raise BadRow("the file is cut short; fetch it again: the text ends") from error
        if re.search(r"\bNaN\b|-Infinity|\bInfinity\b", told):
            raise BadRow("holds NaN or Infinity, which JSON lacks; write null") from error
        raise BadRow(f"not JSON ({told.partition(chr(10))[0]})") from error


def _read_table(stream: BinaryIO, path: Path, problems: Problems) -> Iterator[tuple[int, Any]]:
    """The rows of a CSV or TSV; the first line names the columns, an empty cell is missing.

    Whole numbers of a column with gaps are floats in pandas; where all cells are, they are read as
    what they were.
    """
    csv.field_size_limit(1 << 27)  # the limit of `csv` is 131,072 characters
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
    first = text.readline()
    mark = "\t" if "\t" in first else ";" if ";" in first and "," not in first else ","
    # Quotes that take in the rows behind them are an error only if `strict`.
    reader = csv.reader(chain([first], text), delimiter=mark, strict=True)
    cells = [cell.strip() for cell in next(reader, [])]
    names = [cell.lower() for cell in cells]
    if len(cells) == 2 and isinstance(answers := unpack(cells[1]), list):
        names = ["question", "answers"]
        yield 1, {"question": cells[0], "answers": answers}
    named = [name for name in names if name]
    if len(set(named)) < max(1, len(named)):
        raise BadRow(f"must name each column once on its first line, got {show_value(cells)}")
    rows = _read_cells(reader, names, path, problems)
    head = list(islice(rows, _HEAD))
    whole = {
        name
        for name in set(names) - _PROSE
        if (column := [row[name] for _, row in head if row.get(name)])
        and all(map(_WHOLE.fullmatch, column))
    }
    for line, row in chain(head, rows):
        for name in whole & row.keys():
            if number := _WHOLE.fullmatch(row[name] or ""):
                row[name] = number[1]
            elif row[name]:
                told = f"'{name}' is {show_value(row[name])} and a whole number in all rows above"
                problems.add(path, line, f"{told}; write numbers as 1874, not as 1874.0")
        yield line, {name: _read_cell(name, cell) for name, cell in row.items()}


def _read_cell(name: str, cell: str | None) -> Any:
    with contextlib.suppress(BadRow):  # whoever reads the key says what is wrong
        value = cell if name in ("id", "_id", *_PROSE) else unpack(cell)
        return cell if is_numbers(value) else value
    return cell


def _read_cells(
    reader: Any, names: Sequence[str], path: Path, problems: Problems
) -> Iterator[tuple[int, dict[str, Any]]]:
    line = reader.line_num + 1
    missing = {name: {""} if name in _PROSE else _MISSING for name in names}
    for cells in reader:
        if any(cells) and len(cells) != len(names):
            problems.add(path, line, f"has {len(cells)} cells under {len(names)} columns")
        elif any(cells):
            pairs = zip(names, cells, strict=True)
            yield line, {k: None if v.strip() in missing[k] else v for k, v in pairs if k}
        line = reader.line_num + 1
