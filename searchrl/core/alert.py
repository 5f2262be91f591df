"""An alert: what went wrong, since when, why it matters, what to try and what to do.

Owns the words of one alert and nothing else. An alarm (`contracts.Alarm`) returns one;
`alarms.watch` writes it to the run folder and `train` acts on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """Severity of an alert."""

    NOTICE = "notice"
    """Nothing is broken, but what follows is time without effect."""
    WARNING = "warning"
    """The run may still come to something; somebody should look."""
    CRITICAL = "critical"
    """Training from here on is worth nothing."""


class AlarmAction(StrEnum):
    """Reaction of a run to an alarm."""

    WARN = "warn"
    """It says so and goes on."""
    STOP = "stop"
    """It keeps a checkpoint, says how to continue and ends."""
    ROLLBACK = "rollback"
    """It returns to the best checkpoint and goes on with a lower learning rate."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One alarm in words. `action` is what the alarm asks for; a configuration may say otherwise.

    `what` and `why` are sentences for a person. `since` is the first step of the trouble.
    `tries` are the two things to try first, the better one first.
    """

    what: str
    since: int
    why: str
    tries: tuple[str, str]
    severity: Severity = Severity.WARNING
    action: AlarmAction = AlarmAction.WARN
