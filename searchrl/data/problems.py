"""A row of a data file, and the problems of rows and files: one error for the first five."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from searchrl.errors import DataError

_MOST, _MOST_ROWS = 5, 1000
"""Different problems, or rows with one, after which nothing more is read."""


class Row(NamedTuple):
    """One row of a data file.

    `number` is its line in JSONL, CSV and TSV; in other files rows are counted from 1.
    """

    number: int
    value: Mapping[str, Any]


class BadRow(Exception):
    """Why a row, or the rest of a file, cannot be used."""


class Problem(NamedTuple):
    """One fault: its file, its row (0: the whole file), and the reason."""

    path: Path
    number: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.number}: {self.reason}".replace(":0: ", ": ", not self.number)


@dataclass(slots=True)
class Problems:
    """The problems of data that are read; `notes` are sentences about data that can be used.

    `found` has the first row of each file with a reason, `counts` how many rows have it.
    """

    found: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    counts: Counter[tuple[Path, str]] = field(default_factory=Counter)

    def add(self, path: Path, number: int, reason: str) -> None:
        """Note one problem; at the fifth, nothing more is read."""
        self.counts[path, reason] += 1
        if self.counts[path, reason] == 1:
            self.found.append(Problem(path, number, reason))
        if len(self.found) == _MOST or self.counts.total() == _MOST_ROWS:
            self.ensure_none()

    def ensure_none(self) -> None:
        """Raise one `DataError` with all problems, if there are any."""
        if self.found:
            more = "" if len(self.found) < _MOST else f", of which the first {_MOST} are"
            lines = ""
            for problem in self.found:
                others = self.counts[problem.path, problem.reason] - 1
                lines += f"\n  {problem}" + f" (and {others:,} more like it)" * bool(others)
            raise DataError(f"Nothing was started: the data have faults{more}:{lines}")


def ensure_encodable(key: str, text: str) -> str:
    """Return `text`; raise `BadRow` if it holds half of a surrogate pair, as JSON can escape it."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        half = ascii(text[error.start])
        raise BadRow(f"'{key}' holds half of a surrogate pair, {half}: no Unicode text") from None
    return text
