"""The observer of a program, which tells it everything and never prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from searchrl.config import RunConfig
from searchrl.engine.metrics.metrics import Metrics

Row = Mapping[str, Any]
"""A line of a file of the run folder."""


class Observer:
    """Receives the events of a program, in order, and is silent: subclasses show them.

    Metrics are read by name: one that was not measured is absent.
    """

    def begin(self, steps: int, done: int = 0, rows: Sequence[Row] = ()) -> None:
        """The number of steps, before the first phase.

        `done` are those that a resumed run has behind it, `rows` what `metrics.jsonl` has of them.
        """

    def plan(self, config: RunConfig, facts: Mapping[str, Any]) -> None:
        """The resolved plan, before anything runs. `facts` are ready to print."""

    def note(self, text: str) -> None:
        """One line a user should see."""

    def warn(self, text: str) -> None:
        """A reason why the run is hopeless or its figures worthless, before it begins."""
        self.note(f"warning: {text}")

    def last_words(self, text: str) -> None:
        """The last line that a user sees after an early end: the way to go on."""
        self.note(text)

    def alarm(self, row: Mapping[str, Any]) -> None:
        """An alarm that begins to sound: a row of alarms.jsonl."""
        self.note(f"alarm {row['alarm']} since step {row['since']}: {row['what']}, {row['why']}")

    def phase(self, name: str, done: int, total: int) -> None:
        """Progress of a phase (`evaluate before`, `sample`, `update`, …)."""

    def step(self, step: int, max_steps: int, metrics: Metrics) -> None:
        """One finished training step."""

    def evaluation(self, label: str, step: int, metrics: Metrics) -> None:
        """One finished evaluation (`before`, `during`, `after`)."""

    def compare(self, before: Iterable[Row], after: Iterable[Row]) -> None:
        """At the end, the rows of both evaluations in `rollouts/`; none where they are not kept."""

    def done(self, run_dir: Path, summary: Mapping[str, Any]) -> None:
        """The end, with where everything is."""
