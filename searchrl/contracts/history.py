"""The metric history of a run: every metric as a curve over steps.

Owns what alarms see: points of a curve, the settings of the run, the tasks and the weights of their
reward. It judges nothing. `alarms.watch` fills it while a run goes on and from a folder's
metrics.jsonl; authors of alarms fill it in their tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Point(NamedTuple):
    """The value of a metric at a step. `low` and `high` are its 95 % interval, or None."""

    step: int
    value: float
    low: float | None = None
    high: float | None = None
    n: int = 1
    """Observations behind it."""


@dataclass(slots=True)
class History:
    """Measurements of a run so far, oldest first.

    A metric that was not measured at a step has no point there.

    Args:
        settings: the configuration as plain values: `settings["optim"]["lr"]`. `model.dtype` is
            the one in use, never `auto`.
        tasks: names of the tasks of a mixture in metrics (`regulations/em`); empty for one task.
        weights: the present weight of each component in the reward of a task, by the task's name,
            "" for one task.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    tasks: tuple[str, ...] = ()
    weights: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    step: int = 0
    """The step finished last."""
    _steps: dict[str, list[int]] = field(default_factory=dict)
    _curves: dict[str, dict[str, list[Point]]] = field(default_factory=dict)

    def add(self, step: int, phase: str, metrics: Mapping[str, Mapping[str, Any]]) -> None:
        """Take in the metrics of a training step or of an evaluation.

        `phase` is `train`, `during`, `before` or `after`, as in metrics.jsonl.
        """
        self.step = max(self.step, step)
        self._steps.setdefault(phase, []).append(step)
        curves = self._curves.setdefault(phase, {})
        for name, metric in metrics.items():
            low, high = metric.get("low"), metric.get("high")
            point = Point(step, float(metric["value"]), low, high, int(metric.get("n", 1)))
            curves.setdefault(name, []).append(point)

    def clear(self) -> None:
        """Forget all curves, as after a rollback."""
        self._steps.clear()
        self._curves.clear()

    def steps(self, phase: str = "train", last: int = 0) -> list[int]:
        """The steps of a phase; with `last`, the newest so many."""
        return self._steps.get(phase, [])[-last:]

    def curve(self, name: str, phase: str = "train", last: int = 0) -> list[Point]:
        """The points of a metric; with `last`, the newest so many. Empty if there is none."""
        return self._curves.get(phase, {}).get(name, [])[-last:]

    def names(self, start: str = "", phase: str = "train") -> list[str]:
        """The metrics whose names begin with `start`, in the order in which they came."""
        return [name for name in self._curves.get(phase, {}) if name.startswith(start)]

    def at(self, step: int, name: str, phase: str = "train") -> float | None:
        """The value of a metric at a step, or None if it was not measured there."""
        for point in reversed(self._curves.get(phase, {}).get(name, [])):
            if point.step <= step:
                return point.value if point.step == step else None
        return None

    def setting(self, key: str) -> Any:
        """The value of a key such as `optim.lr`; None if the configuration does not have it."""
        value: Any = self.settings
        for part in key.split("."):
            if not isinstance(value, Mapping) or part not in value:
                return None
            value = value[part]
        return value
