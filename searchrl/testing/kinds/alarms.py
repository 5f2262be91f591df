"""Criteria of alarms: L1 to L8, over made-up metric histories.

Owns what an alarm must do: it takes whatever a run measured, says in words what is wrong, is a pure
function of the history, is silent on a run that learns, and is quick.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from searchrl.contracts import Alarm, find_alert_problem
from searchrl.core.alert import Alert
from searchrl.core.history import History
from searchrl.testing.criteria import Problem, criterion
from searchrl.testing.kinds.trials import (
    Trial,
    Way,
    judged,
    raises_nothing,
    unchanged,
    unmutated,
)
from searchrl.testing.kit.histories import healthy_history, sample_histories
from searchrl.testing.kit.subject import Subject

MAX_LOOK_S = 0.02
"""Seconds that a look at a thousand steps may take: 13 alarms then cost a quarter of a second of
a step, which lasts from seconds to minutes."""

_STEPS = 1000
_HEALTHY = 60


def _ask(alarm: Any, history: History) -> object:
    return alarm.check(history)


def _histories(subject: Subject) -> dict[str, History]:
    return sample_histories()


ASKED = Trial(_histories, _ask)


@criterion("L1")
def _is_made(subject: Subject) -> Iterator[Problem]:
    alarm: Any = subject.make()
    if not callable(getattr(alarm, "check", None)):
        what = f"the factory makes a {type(alarm).__name__} without a method check"
        yield Problem(what, type(alarm))


_never_raises = criterion("L2")(raises_nothing(ASKED))


def _alert_problem(history: History, answer: Any) -> str:
    problem = find_alert_problem(answer, history.step)
    return problem and f"it returned {problem}"


_says_it_in_words = criterion("L3")(judged(ASKED)(_alert_problem))
_is_repeatable = criterion("L4")(unchanged(ASKED, Way.AGAIN, Way.LATER, Way.ANEW))
_is_pure = criterion("L5")(unchanged(ASKED, Way.ELSEWHEN))
_does_not_mutate = criterion("L6")(unmutated(ASKED))


@criterion("L7")
def _is_silent(subject: Subject) -> Iterator[Problem]:
    alarm: Alarm = subject.make()
    for upto in range(1, _HEALTHY + 1):
        alert = alarm.check(healthy_history(_HEALTHY, upto))
        if isinstance(alert, Alert):
            what = f"at step {upto} of a run that learns it says: {alert.what}"
            yield Problem(what, type(alarm).check)
            return


@criterion("L8")
def _is_quick(subject: Subject) -> Iterator[Problem]:
    alarm: Alarm = subject.make()
    history = healthy_history(_STEPS)
    took = min(_time(alarm, history) for _ in range(3))
    if took > MAX_LOOK_S:
        what = f"a look at {_STEPS} steps takes {1000 * took:.0f} ms; at most {1000 * MAX_LOOK_S:g}"
        yield Problem(what, type(alarm).check)


def _time(alarm: Alarm, history: History) -> float:
    begun = time.perf_counter()
    alarm.check(history)
    return time.perf_counter() - begun
