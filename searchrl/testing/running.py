"""Runs criteria over a subject, and turns what they say or raise into results with file and line.

A criterion never raises, and a fault is reported once.
"""

from __future__ import annotations

import inspect
import itertools
import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from searchrl.plugins.registry import describe_error
from searchrl.testing.criteria import (
    MAX_PROBLEMS,
    Criterion,
    Finding,
    NotApplicable,
    Problem,
    Result,
)
from searchrl.testing.kit.subject import NeedsSettings
from searchrl.tool_calls import DeadlineExceeded, call_with_deadline

TIMEOUT_S = 60.0
"""Seconds that one criterion may take."""

_ASKS = re.compile(r"without network|Connect\w*Error|URLError|Timeout\w*|gaierror")
"""What a call of a server ends with, in words."""

_CATCH = "make this line work in the case that the finding names, or catch the error there"


@dataclass(frozen=True, slots=True)
class _Outcome:
    result: Result
    is_hanging: bool = False
    is_ended: bool = False
    """Whether an error ended the criterion, which did not look for it."""

    @property
    def places(self) -> set[tuple[str, int]]:
        return {(finding.file, finding.line) for finding in self.result.findings}


def run_criteria(
    criteria: Sequence[Criterion],
    subject: object,
    *,
    file: str,
    line: int,
    timeout_s: float = TIMEOUT_S,
) -> tuple[Result, ...]:
    """Check each criterion on its own; never raises for what the subject does.

    One that does not finish ends the check: each of the others would hang as long. `file` and
    `line` are where the plugin registers the subject, `timeout_s` the seconds of one criterion.
    """
    outcomes: list[_Outcome] = []
    failed: set[str] = set()
    hanging = ""
    for one in criteria:
        note = hanging or next((f"{n} does not hold" for n in one.needs if n in failed), "")
        if note:
            outcomes.append(_Outcome(Result.of(one, note=note)))
            continue
        outcomes.append(_run(one, subject, file, line, timeout_s))
        if outcomes[-1].is_hanging:
            hanging = f"not checked: {one.number} did not finish"
        if outcomes[-1].result.findings:
            failed.add(one.number)
    results = []
    for number, one in enumerate(criteria):
        reporter = _find_reporter(number, criteria, outcomes)
        note = f"{reporter} does not hold"
        results.append(Result.of(one, note=note) if reporter else outcomes[number].result)
    return tuple(results)


def _find_reporter(number: int, criteria: Sequence[Criterion], outcomes: Sequence[_Outcome]) -> str:
    """The other criterion that reports the error that ended one; "" if there is none.

    One that looks for it, or else the first.
    """
    if not outcomes[number].is_ended:
        return ""
    places = outcomes[number].places
    same = [n for n, other in enumerate(outcomes) if n != number and places <= other.places]
    looking = [n for n in same if not outcomes[n].is_ended] or [n for n in same if n < number]
    return criteria[looking[0]].number if looking else ""


def _run(one: Criterion, subject: object, file: str, line: int, timeout_s: float) -> _Outcome:
    problems: list[Problem] = []
    is_hanging = is_ended = False

    def collect() -> None:
        problems.extend(itertools.islice(one.check(subject), MAX_PROBLEMS))

    try:
        call_with_deadline(collect, timeout_s=timeout_s, owner=f"criterion {one.number}")
    except (NotApplicable, NeedsSettings) as reason:
        if not problems:
            is_checked = isinstance(reason, NotApplicable)
            return _Outcome(Result.of(one, note=str(reason), is_checked=is_checked))
    except DeadlineExceeded as error:
        is_hanging = True
        frames = re.findall(r'^  File "(.*)", line (\d+)', error.where, re.MULTILINE)
        own = [(path, int(at)) for path, at in frames if _is_of_plugin(path, file)]
        stack = "" if own else f"; it hangs here:\n{error.where}"
        fix = "return in bounded time, whatever the input; give calls to the outside a time-out"
        what = f"it did not finish within {timeout_s:g} s{stack}"
        problems.append(Problem(what, own[-1] if own else None, fix))
    except (Exception, SystemExit) as error:
        is_ended = not problems
        where = "".join(f" {note}" for note in getattr(error, "__notes__", ()))
        problems.append(Problem(f"it raised {describe_error(error)}{where}", error))
    # Several cases may show the same fault in the same words.
    findings = dict.fromkeys(
        Finding(p.what, _remedy(one, p), *find_place(p.at, file, line)) for p in problems
    )
    return _Outcome(Result.of(one, *findings), is_hanging, is_ended)


def _remedy(one: Criterion, problem: Problem) -> str:
    """How to fix a problem: as it says itself, or as the criterion does."""
    if one.if_asking and _ASKS.search(problem.what):
        return one.if_asking
    is_raised = isinstance(problem.at, BaseException)
    return problem.fix or (is_raised and one.if_raised) or one.fix or _CATCH


def find_place(at: object, file: str, line: int) -> tuple[str, int]:
    """(file, line) of what `Problem.at` may be; (`file`, `line`) if it has no place of its own."""
    if at is None:
        return file, line
    if isinstance(at, tuple):
        return at
    if isinstance(at, BaseException):
        frames = [(f.filename, f.lineno or 0) for f in traceback.extract_tb(at.__traceback__)]
        own = [frame for frame in frames if _is_of_plugin(frame[0], file)]
        return own[-1] if own else (file, line)
    target: Any = at
    if not (inspect.isroutine(target) or inspect.isclass(target)):
        target = type(target)
    target = inspect.unwrap(target)
    try:
        return inspect.getsourcefile(target) or file, inspect.getsourcelines(target)[1]
    except (OSError, TypeError):  # built in C, or made at run time
        return file, line


def _is_of_plugin(path: str, file: str) -> bool:
    """Whether a file is the plugin's: its own, or another of the package it lies in."""
    if path == file or not file:
        return path == file
    folder = Path(file).parent
    return (folder / "__init__.py").is_file() and Path(path).is_relative_to(folder)
