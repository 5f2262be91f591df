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
    """Nothing is broken, but further training has no effect."""
    WARNING = "warning"
    """The run may still succeed; somebody should look."""
    CRITICAL = "critical"
    """Training from here on is worth nothing."""


class AlarmAction(StrEnum):
    """Reaction of a run to an alarm."""

    WARN = "warn"
    """Report it and go on."""
    STOP = "stop"
    """Keep a checkpoint, say how to continue, and end."""
    ROLLBACK = "rollback"
    """Return to the best checkpoint and go on with a lower learning rate."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One alarm in words. `action` is the alarm's default; a configuration may set another.

    `what` and `why` are sentences for a person. `since` is the first step of the trouble.
    `tries` are the two things to try first, the better one first.
    """

    what: str
    since: int
    why: str
    tries: tuple[str, str]
    severity: Severity = Severity.WARNING
    action: AlarmAction = AlarmAction.WARN
