"""What a program tells its observer: plan, phases, steps, evaluations, episodes, the end.

Owns the `Observer` interface and the silent one. Programs call it and never print. The CLI's
console is one implementation; a notebook may have another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from searchrl.config import RunConfig
from searchrl.engine.episodes.metrics import Metrics
from searchrl.engine.episodes.rollout import Rollout


class Observer(Protocol):
    """Receives the events of a program, in order.

    Metrics are read by name: one that was not measured is absent.
    """

    def plan(self, config: RunConfig, facts: Mapping[str, Any]) -> None:
        """The resolved plan, before anything runs. `facts` are ready to print."""
        return

    def note(self, text: str) -> None:
        """One line a user should see."""
        return

    def phase(self, name: str, done: int, total: int) -> None:
        """Progress of a phase (`evaluate before`, `sample`, `update`, …)."""
        return

    def step(self, step: int, max_steps: int, metrics: Metrics) -> None:
        """One finished training step."""
        return

    def evaluation(self, label: str, step: int, metrics: Metrics) -> None:
        """One finished evaluation (`before`, `during`, `after`)."""
        return

    def episodes(self, label: str, rollouts: Sequence[Rollout]) -> None:
        """All episodes of the evaluations `before` and `after`: the same tasks in one order."""
        return

    def done(self, run_dir: Path, summary: Mapping[str, Any]) -> None:
        """The end, with where everything is."""
        return


class SilentObserver(Observer):
    """Ignores every event. Subclasses override what they want to hear."""
