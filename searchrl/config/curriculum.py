"""Curricula: a task's weight, difficulty or reward as stages that begin at steps.

`{0: 1.0, 30: 0.5}` is 1.0 for the first 30 steps and 0.5 from step 31 on. Pure functions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

from searchrl.errors import show_value

KEYS = ("weight", "difficulty", "reward")
"""Keys of a task that can have stages."""

Stages = tuple[tuple[int, Any], ...]
"""After how many steps each stage begins, ascending from 0, and its value."""


def stages_of(value: Any) -> Stages:
    """The stages of a weight, difficulty or reward; one if it never changes."""
    return tuple(sorted(value.items())) if isinstance(value, Mapping) else ((0, value),)


def stage_at(stages: Stages, done: int) -> int:
    """The number of the stage, from 0, that holds for the next step after `done` steps."""
    return max(0, bisect_right([begin for begin, _ in stages], done) - 1)


def checked_stages(value: Any, key: str) -> Any:
    """Return a value with stages as it is. Raises ValueError if its keys are no steps."""
    if key == "difficulty" and value is not None and not isinstance(value, Mapping):
        raise ValueError(
            "expected {0: easy, 30: hard}; a difficulty that never changes is "
            f"env.difficulty: {value}"
        )
    if isinstance(value, list):
        raise ValueError(f"expected stages that begin at steps, {{0: …, 30: …}}, for {key}")
    steps = [str(step) for step in value] if isinstance(value, Mapping) else ["0"]
    for step in steps:
        if not (step.isascii() and step.isdecimal()):
            raise ValueError(f"{show_value(step)} is no step; expected {{0: …, 30: …}}")
    if "0" not in steps:
        raise ValueError(f"there is no {key} for step 0; expected {{0: …, 30: …}}")
    return value


def alone(task: Mapping[str, Any]) -> dict[str, Any]:
    """A task for a run in which others are missing: no weight, and the last of its difficulties."""
    settings = {key: value for key, value in task.items() if key not in ("weight", "difficulty")}
    if levels := task.get("difficulty"):
        settings["env"] = {**settings["env"], "difficulty": levels[max(levels, key=int)]}
    return settings
