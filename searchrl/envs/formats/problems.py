"""What is wrong with data files: collected from all rows of all files, for one error.

Owns the collection and the text of the error. Only the first problems are kept, the others are
counted, so that a file of 20 million bad rows needs no more memory than one of five. Every reader
of this room notes what it finds here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from searchrl.errors import DataError

_MAX_SHOWN = 5
"""Bad rows, and bad files, that an error lists; the others are counted."""


class Problem(NamedTuple):
    """One thing that is wrong: in which file, at which line (0: the file as a whole), and what."""

    path: str
    line: int
    reason: str

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else self.path
        return f"{place}: {self.reason}"


@dataclass(slots=True)
class Problems:
    """Collects what is wrong with the data, so that one error can name all of it.

    Rows of one file with the same fault are one problem, at the first of them; `count` counts the
    rows. `notes` are sentences that a user should read about data that can be used.
    """

    notes: list[str] = field(default_factory=list)
    count: int = 0
    _found: dict[tuple[str, str], Problem] = field(default_factory=dict)
    _paths: set[str] = field(default_factory=set)
    _rest: dict[str, None] = field(default_factory=dict)
    _rows: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, path: Path, line: int, reason: str) -> None:
        """Note one problem; reading goes on."""
        problem = Problem(str(path), line, reason)
        key = problem.path, reason
        self.count += 1
        self._paths.add(problem.path)
        num_alike = sum(bool(shown.line) == bool(line) for shown in self._found.values())
        if key in self._found or num_alike < _MAX_SHOWN:
            self._found.setdefault(key, problem)
            self._rows[key] += 1
        else:
            self._rest.setdefault(problem.path)

    @property
    def found(self) -> list[Problem]:
        """The first problems, of rows and of files."""
        return list(self._found.values())

    def is_about(self, path: Path) -> bool:
        """Whether something is wrong with a file or one of its rows."""
        return str(path) in self._paths

    def ensure_none(self) -> None:
        """Raise one `DataError` if there is any problem: the first ones, and how many more."""
        if not self.count:
            return
        num_rest = self.count - self._rows.total()
        num = len(self._found) + num_rest
        lines = []
        for key, problem in self._found.items():
            more = self._rows[key] - 1
            lines.append(f"  {problem}" + f" (and {more:,} more of this file)" * bool(more))
        if num_rest:
            where = ", ".join([*list(self._rest)[:_MAX_SHOWN], "…"][: len(self._rest)])
            lines.append(f"  … and {num_rest:,} more in {where}")
        text = "\n".join(lines)
        count = f"{num:,} problem{'s' * (num > 1)}"
        raise DataError(f"The data cannot be used: {count}. Nothing was started.\n{text}")
