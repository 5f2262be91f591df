"""What an alarm says: what went wrong, since when, why it matters, what to try and what to do.

Owns the words of one alert and nothing else. An alarm (`contracts.Alarm`) returns one;
`alarms.watch` writes it to the run folder and `train` acts on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["notice", "warning", "critical"]
"""Notice: what follows is time without effect. Warning: somebody should look. Critical: what is
trained from here on is worth nothing."""

AlarmAction = Literal["warn", "stop", "rollback"]
"""Warn: the run says so and goes on. Stop: it keeps a checkpoint, says how to continue and ends.
Rollback: it returns to the best checkpoint and goes on with a lower learning rate."""


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
    severity: Severity = "warning"
    action: AlarmAction = "warn"
