"""Rows from files: the one reader behind questions, corpora, handbooks and demonstrations.

Owns the opening of files (gzip, byte order marks, what is no file at all) and the choice of the
format. Nothing is read into memory as a whole. What a row means is decided by the callers:
`questions`, `passages`, `handbook_file` and `programs.traces`; `text_folder` reads its text here.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar, cast

from searchrl.envs.formats.arrow import is_arrow_folder, read_arrow, read_parquet
from searchrl.envs.formats.json_rows import read_array_stream, read_lines, read_single_object
from searchrl.envs.formats.problems import Problems
from searchrl.envs.formats.row import BadRow, Row
from searchrl.envs.formats.tables import TABLE_SUFFIXES, read_table
from searchrl.errors import show_value, suggest_path

FILE_KINDS = ".jsonl, .json, .csv or .tsv (each also as .gz), .parquet or .arrow"

ROW_SUFFIXES = (".jsonl", ".json", *TABLE_SUFFIXES, ".parquet", ".arrow")
"""Files of rows, by their names without `.gz`."""

_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")
"""How files of UTF-16 and UTF-32 begin."""
_FOREIGN = {
    rb"\(\xb5/\xfd": "is packed with Zstandard; unpack it first: unzstd {name}",
    rb"BZh[1-9]1AY&": "is packed with bzip2; unpack it first: bunzip2 {name}",
    rb"\xfd7zXZ": "is packed with xz; unpack it first: unxz {name}",
    rb"PK\x03\x04": "is an Excel sheet or a zip archive; save the sheet as CSV, or unpack it",
    rb"PAR1\x15": "is Parquet; name it {name}.parquet",
}
"""How files begin that are not read, and what to do with them; texts may begin with `PAR1`, too."""
_HEAD = 1 << 16
"""Bytes from which the format is recognised."""


class Identified(Protocol):
    """Anything with an id."""

    @property
    def id(self) -> str:
        """The id from the row, or one made from the place of the row."""
        ...


Parsed = TypeVar("Parsed", bound=Identified)


def parse_rows(
    path: Path,
    problems: Problems,
    parse: Callable[[Row], Parsed],
    expected: str,
    *,
    places: dict[str, str] | None = None,
    rows: Iterator[Row] | None = None,
) -> Iterator[Parsed]:
    """Yield the rows of a file as `parse` reads them; note those that it refuses with `BadRow`.

    Args:
        path, problems: as for `read_rows`.
        parse: reads one row.
        expected: names a row and its shapes for a file without any: `question; expected rows {…}`.
        places: where each id was used so far, if ids must be unique; new ones are added.
        rows: the rows of `path` if they were read already.
    """
    is_empty = True
    for row in read_rows(path, problems) if rows is None else rows:
        try:
            made = parse(row)
            if places is not None:
                if made.id in places:
                    raise BadRow(
                        f"duplicate id {show_value(made.id)}, first used at {places[made.id]}"
                    )
                places[made.id] = f"{path}:{row.number}"
        except BadRow as reason:
            where = "" if row.item == 1 else f"item {row.item} of the line: "
            problems.add(path, row.line, f"{where}{reason}")
            continue
        is_empty = False
        yield made
    if is_empty and not problems.is_about(path):
        problems.add(path, 0, f"holds no {expected}")


def read_rows(path: Path, problems: Problems) -> Iterator[Row]:
    """Yield the rows of a file (`FILE_KINDS`), or of a folder that `save_to_disk` wrote.

    What cannot be read is noted. gzip is recognised by its content as well as its name. Lines count
    from 1; of Parquet and Arrow it is the number of the row.

    Raises:
        ConfigError: a Parquet or Arrow file, and pyarrow is not installed.
    """
    suffix = path.suffix.lower()
    if suffix == ".arrow" or is_arrow_folder(path):
        yield from read_arrow(path, problems)
        return
    if suffix == ".parquet" and os.path.isfile(path):
        yield from read_parquet(path, problems)
        return
    with open_bytes(path, problems, f"a file of rows ({FILE_KINDS})") as stream:
        if stream is None:
            return
        head = stream.read(_HEAD)
        start = len(_BYTE_ORDER_MARK) * head.startswith(_BYTE_ORDER_MARK)
        head = head[start:]
        stream.seek(start)
        if is_table(path):
            yield from read_table(stream, path, problems)
        elif head.lstrip()[:1] == b"[":
            yield from read_array_stream(stream, path, problems)
        elif _may_be_one_object(head) and (single := read_single_object(stream)) is not None:
            yield single
        elif _looks_like_table(head):
            name = "tsv" if b"\t" in head.partition(b"\n")[0] else "csv"
            problems.add(
                path, 0, f"looks like a table; name it FILE.{name}, and it is read as one: the "
                "first line names the columns"
            )  # fmt: skip
        else:
            stream.seek(start)
            yield from read_lines(stream, path, problems)


def is_table(path: Path) -> bool:
    """Whether a file is a table by its name."""
    return bool({suffix.lower() for suffix in path.suffixes[-2:]} & set(TABLE_SUFFIXES))


def read_text(path: Path, problems: Problems, expected: str) -> str | None:
    """The text of a file, unpacked if it is gzip; None if it cannot be read, which is noted.

    `expected` says what the file should have been: `a handbook (.md or .json)`.
    """
    data = None
    with open_bytes(path, problems, expected) as stream:
        if stream is not None:
            data = stream.read()
    if data is None:
        return None
    try:
        return data.removeprefix(_BYTE_ORDER_MARK).decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problems.add(path, line, "not UTF-8 text; save the file as UTF-8")
        return None


@contextmanager
def open_bytes(path: Path, problems: Problems, expected: str) -> Iterator[BinaryIO | None]:
    """The bytes of a file, unpacked if it is gzip; None if it cannot be read.

    What goes wrong while it is read in the context ends the context and is noted, too.
    """
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        problems.add(path, 0, f"is a pipe or a device, which may never end; expected {expected}")
        yield None
        return
    was_given = False
    try:
        with path.open("rb") as file:
            is_packed = path.suffix == ".gz" or file.read(2) == _GZIP_MAGIC
            file.seek(0)
            packed = gzip.GzipFile(fileobj=file) if is_packed else None
            stream = file if packed is None else io.BufferedReader(cast(io.RawIOBase, packed))
            with stream:
                head = stream.read(8)
                stream.seek(0)
                foreign = next((say for mark, say in _FOREIGN.items() if re.match(mark, head)), "")
                if head.startswith(_WIDE_MARKS):
                    foreign = "is UTF-16 or UTF-32 text; save it as UTF-8"
                if foreign:
                    problems.add(path, 0, foreign.format(name=path.name))
                was_given = True
                yield None if foreign else cast(BinaryIO, stream)
        return
    except FileNotFoundError:
        problems.add(path, 0, f"no such file; expected {expected}.{suggest_path(path)}")
    except IsADirectoryError:
        problems.add(path, 0, f"is a folder; expected {expected}")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        problems.add(path, 0, f"unreadable gzip ({error}); unpack it to see, or fetch it again")
    except OSError as error:
        problems.add(path, 0, f"cannot be read: {error.strerror or error}")
    if not was_given:
        yield None


def _may_be_one_object(head: bytes) -> bool:
    """Whether a file may be one object over several lines: its first line does not end it."""
    first, _, rest = head.lstrip().partition(b"\n")
    return bool(rest) and first.startswith(b"{") and not first.rstrip().endswith(b"}")


def _looks_like_table(head: bytes) -> bool:
    """Whether a file is a table of values between commas or tabs by its first lines."""
    lines = [line for line in head.split(b"\n") if line.strip()][:2]
    if len(lines) < 2 or any(map(_is_jsonlike, lines)):
        return False
    return any(all(mark in line for line in lines) for mark in (b",", b"\t"))


def _is_jsonlike(line: bytes) -> bool:
    """Whether a line is meant as JSON, broken or not."""
    if line.lstrip()[:1] in (b"{", b"["):
        return True
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
