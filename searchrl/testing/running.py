"""Runs criteria over a subject: results with file and line, each fault reported once."""

from __future__ import annotations

import inspect
import itertools
import re
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
"""Words of the errors of a call to a server."""

_CATCH = "make this line work in the case that the finding names, or catch the error there"


class _Outcome(NamedTuple):
    result: Result
    is_hanging: bool = False
    is_ended: bool = False
    """True if an error ended the criterion, which did not look for it."""

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
    for number, (one, outcome) in enumerate(zip(criteria, outcomes, strict=True)):
        result = outcome.result
        if outcome.is_ended:  # another may report the error: one that looks for it, else the first
            same = [n for n, o in enumerate(outcomes) if n != number and outcome.places <= o.places]
            looking = [n for n in same if not outcomes[n].is_ended or n < number]
            looking.sort(key=lambda n: outcomes[n].is_ended)
            if looking:
                note = f"{criteria[looking[0]].number} does not hold"
                result = Result.of(one, note=note)
        results.append(result)
    return tuple(results)


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
        inner = [(path, int(at)) for path, at in frames if _is_of_plugin(path, file)]
        stack = "" if inner else f"; it hangs here:\n{error.where}"
        fix = "return in bounded time, whatever the input; give calls to the outside a time-out"
        what = f"it did not finish within {timeout_s:g} s{stack}"
        problems.append(Problem(what, inner[-1] if inner else None, fix))
    except (Exception, SystemExit) as error:
        is_ended = not problems
        where = "".join(f" {note}" for note in getattr(error, "__notes__", ()))
        problems.append(Problem(f"it raised {describe_error(error)}{where}", error))
    findings: dict[Finding, None] = {}  # several cases may show the same fault in the same words
    for problem in problems:
        is_raised = isinstance(problem.at, BaseException)
        fix = problem.fix or (is_raised and one.if_raised) or one.fix or _CATCH
        if one.if_asking and _ASKS.search(problem.what):
            fix = one.if_asking
        findings[Finding(problem.what, fix, *find_place(problem.at, file, line))] = None
    return _Outcome(Result.of(one, *findings), is_hanging, is_ended)


def find_place(at: object, file: str, line: int) -> tuple[str, int]:
    """(file, line) of what `Problem.at` may be; (`file`, `line`) if it has no place of its own."""
    if at is None:
        return file, line
    if isinstance(at, tuple):
        return at
    if isinstance(at, BaseException):
        frames = [(f.filename, f.lineno or 0) for f in traceback.extract_tb(at.__traceback__)]
        return [(file, line), *(frame for frame in frames if _is_of_plugin(frame[0], file))][-1]
    target: Any = at
    if not (inspect.isroutine(target) or inspect.isclass(target)):
        target = type(target)
    target = inspect.unwrap(target)
    try:
        return inspect.getsourcefile(target) or file, inspect.getsourcelines(target)[1]
    except (OSError, TypeError):  # built in C, or made at run time
        return file, line


def _is_of_plugin(path: str, file: str) -> bool:
    """True for the plugin's file, and for others of the package it lies in."""
    if path == file or not file:
        return path == file
    folder = Path(file).parent
    return (folder / "__init__.py").is_file() and Path(path).is_relative_to(folder)
