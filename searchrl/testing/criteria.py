"""Numbered criteria: what a plugin is held to, and what is said when it does not hold.

Owns the vocabulary of `searchrl check` and of the contract suites: a `Criterion` is a generator
function over a subject that yields a `Problem` per fault; `run_criteria` makes a `Report` of them.
A criterion never raises: what foreign code raises in it, or hangs in, is a finding with the line
in the plugin's file. The criteria themselves are in the module of their kind (`testing.envs`, …).
"""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, TypeVar

from searchrl.plugins.deadline import DeadlineExceeded, call_with_deadline
from searchrl.plugins.registry import describe_error

S = TypeVar("S")

TIMEOUT_S = 60.0
"""Seconds that one criterion may take."""

MAX_PROBLEMS = 3
"""Problems of one criterion that are reported; the rest would say the same."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault. `what` is wrong, how to `mend` it, and `at`: where.

    `at` is an exception (its deepest line in the plugin's file or package), a function, class or
    object (the line of its definition), a pair (file, line), or None (the line that registers it).
    """

    what: str
    mend: str
    at: object = None


class NotApplicable(Exception):
    """Raised inside a criterion that does not concern this subject; the text says why."""


Check = Callable[[S], Iterator[Problem]]


@dataclass(frozen=True, slots=True)
class Criterion(Generic[S]):
    """One thing that every plugin of a kind must do. `number` never changes meaning (`E3`)."""

    number: str
    title: str
    why: str
    check: Check[S]


class Status(StrEnum):
    """How a criterion came out."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, where, and how to mend it. `file` is "" and `line` 0 where nobody knows."""

    what: str
    mend: str
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
        """Whether nothing failed."""
        return all(result.status is not Status.FAILED for result in self.results)

    @property
    def failed(self) -> tuple[Result, ...]:
        """The criteria that do not hold."""
        return tuple(r for r in self.results if r.status is Status.FAILED)


def criterion(number: str, title: str, why: str) -> Callable[[Check[S]], Criterion[S]]:
    """Make a criterion of a generator function that yields a `Problem` per fault.

    Args:
        number: a letter for the kind and a number, such as `E3`.
        title: what holds when it holds, in a few words.
        why: what goes wrong in a run when it does not.
    """

    def wrap(check: Check[S]) -> Criterion[S]:
        return Criterion(number, title, why, check)

    return wrap


def run_criteria(
    criteria: Sequence[Criterion[S]],
    subject: S,
    *,
    file: str,
    line: int,
    timeout_s: float = TIMEOUT_S,
) -> tuple[Result, ...]:
    """Hold a subject to criteria, each on its own; never raises for what the subject does.

    After one that does not finish, the others are not begun: each would hang as long.

    Args:
        file, line: the plugin's file and where it registers the subject.
    """
    results: list[Result] = []
    hanging = ""
    for one in criteria:
        if hanging:
            note = f"not checked, for {hanging} did not finish"
            skipped = Result(one.number, one.title, one.why, Status.NOT_APPLICABLE, note=note)
            results.append(skipped)
            continue
        result, is_hanging = _run(one, subject, file, line, timeout_s)
        results.append(result)
        hanging = one.number if is_hanging else ""
    return tuple(results)


def _run(
    one: Criterion[S], subject: S, file: str, line: int, timeout_s: float
) -> tuple[Result, bool]:
    """The outcome of one criterion, and whether it hangs."""
    problems: list[Problem] = []
    is_hanging = False

    def collect() -> None:
        for problem in one.check(subject):
            problems.append(problem)
            if len(problems) >= MAX_PROBLEMS:
                return

    note = ""
    status = Status.PASSED
    try:
        call_with_deadline(collect, timeout_s=timeout_s, owner=f"criterion {one.number}")
    except NotApplicable as reason:
        status, note = Status.NOT_APPLICABLE, str(reason)
    except DeadlineExceeded as error:
        is_hanging = True
        place = _find_hanging(error.where, file)
        stack = "" if place else f"; it hangs here:\n{error.where}"
        problems.append(
            Problem(
                f"it did not finish within {timeout_s:g} s{stack}",
                "return in bounded time, whatever the input; give calls to the outside a time-out",
                place,
            )
        )
    except (Exception, SystemExit) as error:
        problems.append(
            Problem(
                f"it raised {describe_error(error)}",
                "mend what raises at this line, or catch it there",
                error,
            )
        )
    if problems:
        status = Status.FAILED
    # Several cases may show the same fault in the same words.
    findings = dict.fromkeys(
        Finding(p.what, p.mend, *find_place(p.at, file, line)) for p in problems
    )
    result = Result(one.number, one.title, one.why, status, tuple(findings), note)
    return result, is_hanging


def _find_hanging(stack: str, file: str) -> tuple[str, int] | None:
    """The deepest line of the plugin in a printed stack."""
    frames = re.findall(r'^  File "(.*)", line (\d+)', stack, re.MULTILINE)
    own = [(path, int(number)) for path, number in frames if _is_of_plugin(path, file)]
    return own[-1] if own else None


def find_place(at: object, file: str, line: int) -> tuple[str, int]:
    """(file, line) of what `Problem.at` may be; else what is given."""
    if at is None:
        return file, line
    if isinstance(at, tuple):
        return str(at[0]), int(at[1])
    if isinstance(at, BaseException):
        frames = [(f.filename, f.lineno or 0) for f in traceback.extract_tb(at.__traceback__)]
        own = [frame for frame in frames if _is_of_plugin(frame[0], file)]
        return own[-1] if own else (file, line)
    target: Any = at
    if not (inspect.isroutine(target) or inspect.isclass(target)):
        target = type(target)
    target = inspect.unwrap(target)
    try:
        found = inspect.getsourcefile(target) or file
        return found, inspect.getsourcelines(target)[1]
    except (OSError, TypeError):  # built in C, or made at run time
        return file, line


def _is_of_plugin(path: str, file: str) -> bool:
    """Whether a file is the plugin's: its own, or another of the package it lies in."""
    if path == file or not file:
        return path == file
    folder = Path(file).parent
    return (folder / "__init__.py").is_file() and Path(path).is_relative_to(folder)
