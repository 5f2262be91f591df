"""Criteria of alarms: L1 to L7, over made-up metric histories."""

from __future__ import annotations

from collections.abc import Iterator

from searchrl.contracts.history import History
from searchrl.contracts.watching import Alarm, Alert, find_alert_problem
from searchrl.testing.criteria import Problem, criterion, find_missing
from searchrl.testing.kit.histories import HEALTHY_STEPS, healthy_history, sample_histories
from searchrl.testing.kit.subject import Subject
from searchrl.testing.trials import Trial, Way, judged, unchanged

ASKED = Trial(lambda subject: sample_histories(), lambda alarm, history: alarm.check(history))


@criterion("L1")
def _is_made(subject: Subject) -> Iterator[Problem]:
    yield from find_missing(subject.make(), "check")


@criterion("L3")
@judged(ASKED)
def _says_it_in_words(history: History, answer: object) -> str:
    problem = find_alert_problem(answer, history.step)
    return problem and f"it returned {problem}"


_never_raises = criterion("L2")(judged(ASKED, raises=True)(lambda history, answer: ""))
_is_pure = criterion("L4")(unchanged(ASKED, Way.AGAIN, Way.LATER, Way.ANEW, Way.ELSEWHEN))


@criterion("L7")
def _is_silent(subject: Subject) -> Iterator[Problem]:
    alarm: Alarm = subject.make()
    for upto in range(1, HEALTHY_STEPS + 1):
        alert = alarm.check(healthy_history(upto))
        if isinstance(alert, Alert):
            what = f"at step {upto} of a run that learns it says: {alert.what}"
            yield Problem(what, type(alarm).check)
            return
