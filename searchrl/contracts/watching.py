"""Contracts of what watches a run: metrics, trackers, alarms and the alerts of these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Literal, NotRequired, Protocol

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from searchrl.contracts.history import History


class Metric(TypedDict):
    """A value, its 95 % interval and the number of observations behind it.

    A metric without sampling error (a learning rate, a time, a loss) has no `low` and no `high`.
    A metric that was not measured is absent.
    """

    value: float
    low: NotRequired[float]
    high: NotRequired[float]
    n: int


class Paired(TypedDict):
    """A figure of one policy minus that of another, on the same `n` tasks, with its 95 % interval.

    `p` is that of the two-sided test named by `test`. `low` and `high` are absent if too few tasks
    differ for an interval; the test still holds.
    """

    value: float
    low: NotRequired[float]
    high: NotRequired[float]
    n: int
    p: float
    test: str


Severity = Literal["notice", "warning", "critical"]
"""Notice: what follows is time without effect. Warning: somebody should look. Critical: what is
trained from here on is worth nothing."""

AlarmAction = Literal["warn", "stop", "rollback"]
"""Warn: the run says so and goes on. Stop: it keeps a checkpoint, says how to continue and ends.
Rollback: it returns to the best checkpoint and goes on with a lower learning rate."""


Sentence = Annotated[str, Field(pattern=r"\S")]
"""A text that says something."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One alarm in words. `action` is what the alarm asks for; a configuration may say otherwise.

    `what` and `why` are sentences for a person. `since` is the first step of the trouble.
    `tries` are the two things to try first, the better one first.
    """

    what: Sentence
    since: Annotated[int, Field(ge=0, strict=True)]
    why: Sentence
    tries: tuple[Sentence, Sentence]
    severity: Severity = "warning"
    action: AlarmAction = "warn"


class Tracker(Protocol):
    """Receives metrics."""

    def log(self, step: int, metrics: Mapping[str, Metric], phase: str) -> None:
        """Record the metrics of one step. `phase` is `train` or `eval`."""

    def close(self) -> None:
        """Flush and release; called once."""


class Alarm(Protocol):
    """Watches a run for one kind of trouble.

    It must be a pure function of the history: a resumed run calls it for the last steps again.
    It must be quick: it is called after every step.
    """

    def check(self, history: History) -> Alert | None:
        """Return what is wrong now, or None. While it stays wrong, the alarm sounds only once."""


def find_alert_problem(value: object, step: int) -> str:
    """Say why a run of `step` steps cannot use what an alarm returned, or "" if it can.

    An alarm returns None if nothing is wrong.
    """
    if value is None:
        return ""
    if not isinstance(value, Alert):
        return f"{type(value).__name__}; expected an Alert, or None"
    try:
        TypeAdapter(Alert).validate_python(asdict(value))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        return f"an Alert with {place}={first['input']!r}; {first['msg']}"
    if value.since > step:
        return f"an Alert since step {value.since}; expected a step from 0 to {step}"
    return ""
