"""Trials: one subject called once per case, in several ways, and what must be the same in all.

Owns the checks that are the same for every kind: a call never raises, gives the same answer
whenever it is made and by which thread, and leaves its input as it was. A kind says in a `Trial`
how it is made and called once; its criteria are made of these checks.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from searchrl.calls.deadline import Raised as NotReturned
from searchrl.calls.deadline import call_together, call_with_deadline
from searchrl.plugins.registry import describe_error
from searchrl.testing.criteria import TIMEOUT_S, Check, NotApplicable, Problem
from searchrl.testing.kit.subject import Subject
from searchrl.testing.kit.surroundings import Effect, other_surroundings


@dataclass(frozen=True, slots=True)
class Trial:
    """How objects of a kind are made and called once. Its functions belong to modules.

    `cases(subject)` is what to call it with, each under the words that name it in a finding.
    `ask(made, case)` is the answer as plain data: what compares by value and survives pickle.
    `place(subject, case)` is where to look if an answer is wrong; the line that returns it if None.
    """

    cases: Callable[[Subject], Cases]
    ask: Callable[[Any, Any], object]
    make: Callable[[Subject], Any] = Subject.make
    place: Callable[[Subject, Any], object] | None = None

    def find_place(self, subject: Subject, case: Any) -> object:
        """Where the plugin gives the answer to a case."""
        if self.place is not None:
            return self.place(subject, case)
        made, case = self.make(subject), copy.deepcopy(case)
        return subject.returned_at(lambda: self.ask(made, case))

    def answers(self, subject: Subject, cases: Cases, made: Any = None) -> Answers:
        """The answer to each case, one after the other; of a new object if none is given."""
        made = self.make(subject) if made is None else made
        return {name: _answer(self, made, copy.deepcopy(case)) for name, case in cases.items()}


Cases = Mapping[str, Any]
Answers = dict[str, object]
Judge = Callable[[Any, Any], str]
"""What is wrong with the answer to a case, or ""."""


class Way(StrEnum):
    """A way to ask once more; as text it stands in the finding."""

    AGAIN = "asked again"
    LATER = "asked after other cases"
    ANEW = "in another instance"
    ELSEWHEN = "with another seed, time, folder and language"
    TOGETHER = "asked while other threads ask"
    BESIDE = "while another instance is played beside it"


def unchanged(trial: Trial, *ways: Way) -> Check:
    """The check that an answer is the same in all ways: a problem for the first case where not.

    Also that no file is left in the current folder and no connection opened `ELSEWHEN`.
    """

    def check(subject: Subject) -> Iterator[Problem]:
        cases, made = trial.cases(subject), trial.make(subject)
        expected = trial.answers(subject, cases, made)
        _ensure_any(expected)
        for way in ways:
            effects: list[Effect] = []
            if way is Way.ELSEWHEN:
                expected = _answers_at(subject, trial, cases, 1)[0]
                found, effects = _answers_at(subject, trial, cases, 2)
            elif way is Way.TOGETHER:
                found = _answers_together(subject, trial, cases)
            elif way is Way.LATER:
                found = trial.answers(subject, dict([*cases.items()][::-1]))
            else:
                found = trial.answers(subject, cases, made if way is Way.AGAIN else None)
            for name, case in cases.items():
                if what := find_difference(name, expected[name], found[name], way):
                    yield Problem(what, trial.find_place(subject, case))
                    return
            for what, place in effects:
                fix = "write no file and open no connection: compute the answer from the case alone"
                first, *_ = cases.values()
                yield Problem(f"it {what}", place or trial.find_place(subject, first), fix)

    return check


def called_by_threads(trial: Trial) -> Check:
    """The check that answers are the same if several threads ask at once.

    What is registered with `concurrent=False` need not bear it.
    """
    asks = unchanged(trial, Way.TOGETHER)

    def check(subject: Subject) -> Iterator[Problem]:
        if not subject.entry.is_concurrent:
            raise NotApplicable("with concurrent=False it gets one call at a time")
        yield from asks(subject)

    return check


def unmutated(trial: Trial) -> Check:
    """The check that a call leaves its case as it was."""

    def check(subject: Subject) -> Iterator[Problem]:
        made = trial.make(subject)
        for name, case in trial.cases(subject).items():
            given = copy.deepcopy(case)
            if not isinstance(_answer(trial, made, given), Raised) and given != case:
                what = f"{name}{_difference(case, given)[0]} is another one afterwards"
                yield Problem(what, trial.find_place(subject, case))

    return check


def judged(trial: Trial, *, most: int = 1, raises: bool = False) -> Callable[[Judge], Check]:
    """Make a check of a function that says of a case and its answer what is wrong, or "".

    The first `most` wrong answers are problems; with `raises`, so is every call that raises. If
    that is no problem here and all calls raise, there is nothing to judge: their error goes on.
    """

    def wrap(judge: Judge) -> Check:
        def check(subject: Subject) -> Iterator[Problem]:
            cases, found = trial.cases(subject), 0
            answers = trial.answers(subject, cases)
            if not raises:
                _ensure_any(answers)
            for name, case in cases.items():
                answer = answers[name]
                if isinstance(answer, Raised):
                    if raises:
                        yield Problem(f"{name}: it raised {answer}", answer.error)
                elif found < most and (what := judge(case, answer)):
                    found += 1
                    yield Problem(f"{name}: {what}", trial.find_place(subject, case))

        return check

    return wrap


def raises_nothing(trial: Trial) -> Check:
    """The check that no call raises."""
    return judged(trial, raises=True)(lambda case, answer: "")


def find_difference(name: str, expected: object, found: object, way: Way) -> str:
    """Say how two answers to a case differ, of which the second was asked for in a way; or ""."""
    if expected == found:
        return ""
    part, before, after = _difference(expected, found)
    return f"{name}{part} is {_say(after)} {way}, and {_say(before)} otherwise"


def _ensure_any(answers: Answers) -> None:
    """Raise the error of the first case if every call raises: there is nothing to look at."""
    errors = [answer.error for answer in answers.values() if isinstance(answer, Raised)]
    if errors and len(errors) == len(answers) and errors[0] is not None:
        raise errors[0]


@dataclass(frozen=True, slots=True)
class Raised:
    """An answer that is an error. Two of one type are equal; pickle leaves the error behind."""

    kind: str
    text: str = field(compare=False)
    error: BaseException | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[Any, ...]:
        return Raised, (self.kind, self.text)


def _answers_together(subject: Subject, trial: Trial, cases: Cases) -> Answers:
    """The answer of one object to each case, while other threads ask it for the others."""
    made = trial.make(subject)
    calls = [
        (functools.partial(_answer, trial, made, copy.deepcopy(case)), name)
        for name, case in cases.items()
    ]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # threads meet in the middle of a line
    try:
        outcomes = call_together(calls, timeout_s=TIMEOUT_S / 3)
    finally:
        sys.setswitchinterval(before)
    answers: Answers = {}
    for name, outcome in zip(cases, outcomes, strict=True):
        if isinstance(outcome, NotReturned):
            raise outcome.error
        answers[name] = outcome.value
    return answers


def _answer(trial: Trial, made: Any, case: Any) -> object:
    try:
        return trial.ask(made, case)
    except (Exception, SystemExit) as error:
        return Raised(type(error).__name__, describe_error(error), error)


def _answers_at(
    subject: Subject, trial: Trial, cases: Cases, number: int
) -> tuple[Answers, list[Effect]]:
    """The answers in surroundings of a number, and the effects on the outside meanwhile."""
    ask = functools.partial(trial.answers, subject, cases)
    language = ("C", "de_DE.UTF-8")[number % 2]
    with other_surroundings(seed=number, clock=number * 1.0e9, language=language) as effects:
        answers = call_with_deadline(ask, timeout_s=TIMEOUT_S / 3, owner="the plugin")
    return answers, effects


def _difference(before: object, after: object) -> tuple[str, object, object]:
    """Which named part of two answers differs ("" for the whole), and the part of each."""
    if dataclasses.is_dataclass(before) and type(before) is type(after):
        before, after = (
            {f.name: getattr(one, f.name) for f in dataclasses.fields(before)}
            for one in (before, after)
        )
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in dict.fromkeys((*before, *after)):
            if before.get(name) != after.get(name):
                part, old, new = _difference(before.get(name), after.get(name))
                return f": {name}{part}", old, new
    return "", before, after


def _say(answer: object) -> str:
    return f"{str(answer) if isinstance(answer, Raised) else repr(answer):.200}"
