"""Numbered criteria of plugins, and their results.

The criteria are in `testing.kinds`, their texts in `assets/criteria.toml`.
"""

from __future__ import annotations

import math
import numbers
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

_TABLE = tomllib.loads(
    Path(__file__).resolve().parents[1].joinpath("assets", "criteria.toml").read_text("utf-8")
)
MAX_PROBLEMS = 3
"""Problems of one criterion that are reported; more would say the same."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault: what is wrong, where, and how to fix it ("": as the criterion says).

    `at` is an exception (its deepest line in the plugin's file or package), a function, class or
    object (the line of its definition), a pair (file, line), or None (the line that registers it).
    """

    what: str
    at: object = None
    fix: str = ""


class NotApplicable(Exception):
    """Raised inside a criterion that does not concern this subject; the text says why."""


Check = Callable[[Any], Iterator[Problem]]


@dataclass(frozen=True, slots=True)
class Criterion:
    """A duty of every plugin of a kind. `number` never changes meaning (`E3`).

    It is not applicable if one of the criteria that it `needs` does not hold. `if_raised` fixes
    what raises, where `fix` does not say, and `if_asking` what asks a server.
    """

    number: str
    title: str
    why: str
    check: Check
    fix: str = ""
    needs: tuple[str, ...] = ()
    if_raised: str = ""
    if_asking: str = ""


class Status(StrEnum):
    """The outcome of a criterion."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_APPLICABLE = "not applicable"
    NOT_CHECKED = "not checked"
    """It needs settings that were not given."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault, its place, and its remedy. An unknown `file` is "", an unknown `line` is 0."""

    what: str
    fix: str
    file: str
    line: int

    @property
    def where(self) -> str:
        """`file:line`, or as much of it as is known."""
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Result:
    """One criterion's outcome; `note` says why it did not apply."""

    number: str
    title: str
    why: str
    status: Status
    findings: tuple[Finding, ...] = ()
    note: str = ""

    @classmethod
    def of(
        cls, one: Criterion, *findings: Finding, note: str = "", is_checked: bool = True
    ) -> Result:
        """The result of findings; with a `note`, it did not apply or was not checked."""
        passed = Status.NOT_APPLICABLE if note else Status.PASSED
        status = Status.FAILED if findings else passed if is_checked else Status.NOT_CHECKED
        return cls(one.number, one.title, one.why, status, findings, note)


@dataclass(frozen=True, slots=True)
class Report:
    """Every criterion's outcome for one registered name."""

    kind: str
    name: str
    plugin: str
    file: str
    line: int
    results: tuple[Result, ...]

    @property
    def is_good(self) -> bool:
        """True if nothing failed."""
        return not self.failed

    @property
    def is_checked(self) -> bool:
        """True if nothing was left out because settings are missing."""
        return all(result.status is not Status.NOT_CHECKED for result in self.results)

    @property
    def failed(self) -> tuple[Result, ...]:
        """The criteria that do not hold."""
        return tuple(r for r in self.results if r.status is Status.FAILED)


def criterion(number: str) -> Callable[[Check], Criterion]:
    """Make a criterion of a generator function that yields a `Problem` per fault."""
    row = _TABLE[number]
    needs = tuple(row.get("needs", "").split())
    return lambda check: Criterion(number, check=check, **(row | {"needs": needs}))


def find_missing(made: object, *methods: str) -> Iterator[Problem]:
    """A problem for the first of these methods that what a factory makes does not have."""
    for name in methods:
        if not callable(getattr(made, name, None)):
            what = f"the factory makes a {type(made).__name__} without a method {name}"
            yield Problem(what, type(made))
            return


def is_real(value: object) -> bool:
    """True for a finite real number."""
    return isinstance(value, numbers.Real) and math.isfinite(value)
