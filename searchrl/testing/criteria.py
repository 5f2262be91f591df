"""Numbered criteria: what a plugin must do, and what is said when it does not.

Owns the vocabulary of `searchrl check` and of the contract suites: a `Criterion` is a generator
function over a `Subject` that yields a `Problem` per fault; `run_criteria` makes `Result`s of them.
A criterion never raises: what a plugin's code raises in it, or hangs in, is a finding with the line
in the plugin's file. The criteria themselves are in `testing.kinds`, in the modules of their kind.
"""

from __future__ import annotations

import functools
import inspect
import math
import numbers
import re
import tomllib
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from searchrl.calls.deadline import DeadlineExceeded, call_with_deadline
from searchrl.plugins.registry import describe_error
from searchrl.plugins.remedies import find_remedy

TABLE = Path(__file__).resolve().parents[1] / "assets" / "criteria.toml"
"""The texts of every criterion."""

TIMEOUT_S = 60.0
"""Seconds that one criterion may take."""

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


_CATCH = "make this line work in the case that the finding names, or catch the error there"


class NotApplicable(Exception):
    """Raised inside a criterion that does not concern this subject; the text says why."""


Check = Callable[[Any], Iterator[Problem]]


@dataclass(frozen=True, slots=True)
class Criterion:
    """One thing that every plugin of a kind must do. `number` never changes meaning (`E3`).

    `fix` says how to fix what it finds. If one of the criteria that it `needs` does not hold, its
    own outcome would mean nothing, and it is not applicable. `methods` are those of the plugin that
    it looks at: an error of theirs is reported here and nowhere else.
    """

    number: str
    title: str
    why: str
    check: Check
    fix: str = ""
    needs: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    if_raised: str = ""
    """How to fix what raises, where neither the error nor `fix` says it."""

    def remedy(self, problem: Problem) -> str:
        """How to fix a problem: as it says itself, as the error says, or as the criterion does."""
        if problem.fix or not isinstance(problem.at, BaseException):
            return problem.fix or self.fix
        return find_remedy(problem.at) or self.if_raised or self.fix or _CATCH

    def result(self, *findings: Finding, note: str = "") -> Result:
        """The result of what was found; with a `note`, it did not apply."""
        passed = Status.NOT_APPLICABLE if note else Status.PASSED
        status = Status.FAILED if findings else passed
        return Result(self.number, self.title, self.why, status, findings, note)


class Status(StrEnum):
    """How a criterion came out."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, where, and how to fix it. An unknown `file` is "", an unknown `line` is 0."""

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


@dataclass(frozen=True, slots=True)
class Report:
    """Every criterion's outcome for one registered name."""

    kind: str
    name: str
    plugin: str
    file: str
    line: int
    results: tuple[Result, ...]
    warnings: tuple[str, ...] = ()
    """What is no fault of the plugin alone, such as a name that is taken."""

    @property
    def is_good(self) -> bool:
        """Whether nothing failed."""
        return not self.failed

    @property
    def failed(self) -> tuple[Result, ...]:
        """The criteria that do not hold."""
        return tuple(r for r in self.results if r.status is Status.FAILED)


def criterion(number: str) -> Callable[[Check], Criterion]:
    """Make a criterion of a generator function that yields a `Problem` per fault.

    Its texts, and which criteria it needs, are those of `number` in `assets/criteria.toml`.
    """
    row: dict[str, Any] = dict(_read_table()[number])
    row |= {key: tuple(row.get(key, "").split()) for key in ("needs", "methods")}
    return lambda check: Criterion(number, check=check, **row)


@functools.cache
def _read_table() -> dict[str, dict[str, str]]:
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))


def criteria_in(namespace: Mapping[str, object]) -> tuple[Criterion, ...]:
    """The criteria that a module defines, in the order of their numbers."""
    found = [value for value in namespace.values() if isinstance(value, Criterion)]
    return tuple(sorted(found, key=lambda one: int(one.number[1:])))


def run_criteria(
    criteria: Sequence[Criterion],
    subject: object,
    *,
    file: str,
    line: int,
    timeout_s: float = TIMEOUT_S,
    done: Sequence[Outcome] = (),
    keep: Callable[[Sequence[Outcome]], None] | None = None,
) -> tuple[Result, ...]:
    """Check each criterion on its own; never raises for what the subject does.

    One that does not finish ends the check: each of the others would hang as long. An error of the
    plugin is reported once, by the criterion of the method that raised it, or else by one that
    looks for it. Another criterion that ended at the same line is not applicable.

    Args:
        file, line: the plugin's file and where it registers the subject.
        timeout_s: seconds that one criterion may take.
        done: how the first criteria came out, if that is known.
        keep: told of all outcomes so far after each criterion.
    """
    outcomes = list(done)
    for one in criteria[len(outcomes) :]:
        hanging = next((o.result.number for o in outcomes if o.is_hanging), "")
        failed = {o.result.number for o in outcomes if o.result.status is Status.FAILED}
        missing = next((number for number in one.needs if number in failed), "")
        if hanging:
            outcomes.append(Outcome(one.result(note=f"not checked: {hanging} did not finish")))
        elif missing:
            outcomes.append(Outcome(one.result(note=f"{missing} does not hold")))
        else:
            outcomes.append(_run(one, subject, file, line, timeout_s))
        if keep is not None:
            keep(outcomes)
    reported = [_reported_by(number, criteria, outcomes) for number in range(len(criteria))]
    return tuple(
        one.result(note=f"{number} does not hold") if number else outcome.result
        for one, outcome, number in zip(criteria, outcomes, reported, strict=True)
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    """A result, whether the criterion hangs, and where the error came from that ended it, if any.

    The place of an error that came from no line of the plugin is ("", 0).
    """

    result: Result
    is_hanging: bool = False
    ended_at: tuple[str, int] | None = None
    raised_in: tuple[str, ...] = ()
    """If all findings are one error: the functions of the plugin that it came through, the deepest
    first."""


def _reported_by(number: int, criteria: Sequence[Criterion], outcomes: Sequence[Outcome]) -> str:
    """The number of the criterion that reports the error one ran into; "" if it does so itself."""
    own, one = criteria[number], outcomes[number]
    owned = (name for name in one.raised_in if any(name in c.methods for c in criteria))
    method = next(owned, "")
    if method in own.methods:
        return ""
    for other, outcome in zip(criteria, outcomes, strict=True):
        if method in other.methods and _places(one) <= _places(outcome):
            return other.number
    if one.ended_at is None:
        return ""
    # A criterion that looks for a fault says more than one that was ended by it.
    others = [n for n, outcome in enumerate(outcomes) if outcome.ended_at is None]
    for n in (*others, *range(number)):
        found = _places(outcomes[n])
        if n != number and found and (one.ended_at in found or one.ended_at == ("", 0)):
            return _reported_by(n, criteria, outcomes) or criteria[n].number
    return ""


def _places(outcome: Outcome) -> set[tuple[str, int]]:
    return {(finding.file, finding.line) for finding in outcome.result.findings}


def _run(one: Criterion, subject: object, file: str, line: int, timeout_s: float) -> Outcome:
    problems: list[Problem] = []
    ended_at = None
    is_hanging = False

    def collect() -> None:
        for problem in one.check(subject):
            problems.append(problem)
            if len(problems) >= MAX_PROBLEMS:
                return

    try:
        call_with_deadline(collect, timeout_s=timeout_s, owner=f"criterion {one.number}")
    except NotApplicable as reason:
        if not problems:
            return Outcome(one.result(note=str(reason)))
    except DeadlineExceeded as error:
        is_hanging = True
        place = _find_hanging(error.where, file)
        stack = "" if place else f"; it hangs here:\n{error.where}"
        fix = "return in bounded time, whatever the input; give calls to the outside a time-out"
        problems.append(Problem(f"it did not finish within {timeout_s:g} s{stack}", place, fix))
    except (Exception, SystemExit) as error:
        ended_at = find_place(error, file, 0)
        ended_at = ended_at if ended_at[1] else ("", 0)
        where = "".join(f" {note}" for note in getattr(error, "__notes__", ()))
        problems.append(Problem(f"it raised {describe_error(error)}{where}", error))
        ended_at = None if len(problems) > 1 else ended_at
    # Several cases may show the same fault in the same words.
    findings = dict.fromkeys(
        Finding(p.what, one.remedy(p), *find_place(p.at, file, line)) for p in problems
    )
    errors = [p.at for p in problems if isinstance(p.at, BaseException)]
    raised_in = _functions_of(errors[0], file) if len(errors) == len(problems) > 0 else ()
    return Outcome(one.result(*findings), is_hanging, ended_at, raised_in)


def _functions_of(error: BaseException, file: str) -> tuple[str, ...]:
    frames = traceback.extract_tb(error.__traceback__)
    return tuple(frame.name for frame in frames[::-1] if _is_of_plugin(frame.filename, file))


def _find_hanging(stack: str, file: str) -> tuple[str, int] | None:
    """The deepest line of the plugin in a printed stack."""
    frames = re.findall(r'^  File "(.*)", line (\d+)', stack, re.MULTILINE)
    own = [(path, int(number)) for path, number in frames if _is_of_plugin(path, file)]
    return own[-1] if own else None


def is_real(value: object) -> bool:
    """Whether a value is a finite real number."""
    return isinstance(value, numbers.Real) and math.isfinite(value)


def find_place(at: object, file: str, line: int) -> tuple[str, int]:
    """(file, line) of what `Problem.at` may be; (`file`, `line`) if it has no place of its own."""
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
