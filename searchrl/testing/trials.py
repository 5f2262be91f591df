"""Trials: one subject called once per case, in several ways that must give the same answers."""

from __future__ import annotations

import copy
import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from searchrl.plugins.registry import describe_error
from searchrl.testing.criteria import Check, NotApplicable, Problem
from searchrl.testing.kit.subject import Subject
from searchrl.testing.kit.surroundings import elsewhen
from searchrl.tool_calls import Raised, Returned, call_together

_TOGETHER_S = 20.0
"""Seconds that calls by several threads may take."""

Cases = Mapping[str, Any]
Answers = dict[str, object]
Judge = Callable[[Any, Any], str]
"""Says what is wrong with the answer to a case, or ""."""


@dataclass(frozen=True, slots=True)
class Trial:
    """The making and calling of objects of a kind.

    `cases(subject)` are the arguments, each under the words that name it in a finding.
    `ask(made, case)` is the answer as plain data that compares by value. `place(subject, case)` is
    the place to look at if an answer is wrong; the line that returns it if None.
    """

    cases: Callable[[Subject], Cases]
    ask: Callable[[Any, Any], object]
    make: Callable[[Subject], Any] = Subject.make
    place: Callable[[Subject, Any], object] | None = None

    def find_place(self, subject: Subject, case: Any) -> object:
        """The place where the plugin gives the answer to a case."""
        if self.place is not None:
            return self.place(subject, case)
        made, case = self.make(subject), copy.deepcopy(case)
        return subject.returned_at(lambda: self.ask(made, case))

    def answer(self, made: Any, case: Any) -> object:
        """The answer to a copy of a case, or what was `Crashed`."""
        try:
            return self.ask(made, copy.deepcopy(case))
        except (Exception, SystemExit) as error:
            return Crashed(type(error).__name__, error)

    def answers(self, made: Any, cases: Cases) -> Answers:
        """The answer to each case, one after the other."""
        return {name: self.answer(made, case) for name, case in cases.items()}


@dataclass(frozen=True, slots=True)
class Crashed:
    """An answer that is an error. Two of one type are equal."""

    kind: str
    error: BaseException = field(compare=False)

    def __str__(self) -> str:
        return describe_error(self.error)


class Way(StrEnum):
    """A way to ask once more; as text it stands in the finding."""

    AGAIN = "asked again"
    LATER = "asked after other cases"
    ANEW = "in another instance"
    ELSEWHEN = "at another time, in another folder, without network"
    TOGETHER = "asked while other threads ask"


def unchanged(trial: Trial, *ways: Way) -> Check:
    """The check that an answer is the same in all ways: a problem for the first case where not.

    Also that no file is left in the current folder `ELSEWHEN`. What is registered with
    `concurrent=False` need not bear to be asked `TOGETHER`.
    """

    def check(subject: Subject) -> Iterator[Problem]:
        if Way.TOGETHER in ways and not subject.entry.is_concurrent:
            raise NotApplicable("with concurrent=False it gets one call at a time")
        cases, made = trial.cases(subject), trial.make(subject)
        expected = trial.answers(made, cases)
        _ensure_any(expected)
        for way in ways:
            files: list[str] = []
            again = made if way is Way.AGAIN else trial.make(subject)
            order = [*cases.items()][:: -1 if way is Way.LATER else 1]
            if way is Way.TOGETHER:
                answers = _answer_together(trial, again, cases)
            else:
                with elsewhen() if way is Way.ELSEWHEN else nullcontext(files) as files:
                    answers = trial.answers(again, dict(order))
            for name, case in cases.items():
                if what := find_difference(name, expected[name], answers[name], way):
                    yield Problem(what, trial.find_place(subject, case))
                    return
            if files:
                fix = "write no file: compute the answer from the case alone"
                at = trial.find_place(subject, next(iter(cases.values())))
                yield Problem(f"it writes {', '.join(files)} in the current folder", at, fix)

    return check


def judged(trial: Trial, *, most: int = 1, raises: bool = False) -> Callable[[Judge], Check]:
    """Make a check of a function that says of a case and its answer what is wrong, or "".

    The first `most` wrong answers are problems; with `raises`, so is every call that raises. If
    that is no problem here and all calls raise, there is nothing to judge: their error goes on.
    """

    def wrap(judge: Judge) -> Check:
        def check(subject: Subject) -> Iterator[Problem]:
            cases, num_wrong = trial.cases(subject), 0
            answers = trial.answers(trial.make(subject), cases)
            if not raises:
                _ensure_any(answers)
            for name, case in cases.items():
                answer = answers[name]
                if isinstance(answer, Crashed):
                    if raises:
                        yield Problem(f"{name}: it raised {answer}", answer.error)
                elif num_wrong < most and (what := judge(case, answer)):
                    num_wrong += 1
                    yield Problem(f"{name}: {what}", trial.find_place(subject, case))

        return check

    return wrap


def find_difference(name: str, expected: object, answer: object, way: str) -> str:
    """Say how two answers to a case differ, of which the second was asked for in a way; or ""."""
    if expected == answer:
        return ""
    pair: tuple[Any, Any] = (expected, answer)
    if dataclasses.is_dataclass(expected) and type(expected) is type(answer):
        names = [f.name for f in dataclasses.fields(expected)]
        before, after = ({n: getattr(one, n) for n in names} for one in pair)
        pair = before, after
    if isinstance(pair[0], Mapping) and isinstance(pair[1], Mapping):
        # Only the first part that differs is shown.
        for key in dict.fromkeys((*pair[0], *pair[1])):
            if pair[0].get(key) != pair[1].get(key):
                name, pair = f"{name}: {key}", (pair[0].get(key), pair[1].get(key))
                break
    shown = [f"{one if isinstance(one, Crashed) else repr(one)!s:.200}" for one in pair]
    return f"{name} is {shown[1]} {way}, and {shown[0]} otherwise"


def _ensure_any(answers: Answers) -> None:
    """Raise the error of the first case if every call raises: there is nothing to look at."""
    errors = [answer.error for answer in answers.values() if isinstance(answer, Crashed)]
    if errors and len(errors) == len(answers):
        raise errors[0]


def _answer_together(trial: Trial, made: Any, cases: Cases) -> Answers:
    """The answer of one object to each case, while other threads ask it for the others."""
    calls = [(functools.partial(trial.answer, made, case), name) for name, case in cases.items()]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # threads meet in the middle of a line
    try:
        outcomes = call_together(calls, timeout_s=_TOGETHER_S)
    finally:
        sys.setswitchinterval(before)
    if hung := next((o for o in outcomes if isinstance(o, Raised)), None):
        raise hung.error
    return {
        name: o.value for name, o in zip(cases, outcomes, strict=True) if isinstance(o, Returned)
    }
