"""How far a training run has come, and how much it has to do.

Owns what a checkpoint holds beside weights and optimiser, and the count of episodes that a bar is
drawn from. Caller: `train`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field, FiniteFloat, NonNegativeInt

from searchrl.engine.metrics.evaluation import count_episodes
from searchrl.engine.metrics.metrics import Metrics
from searchrl.envs.splits import VALIDATION
from searchrl.programs.alarms import Rollback
from searchrl.programs.observer import Row, Work
from searchrl.programs.setup.session import Session
from searchrl.run_folder.shapes import MetricShape, Shape


@dataclass(slots=True)
class Progress:
    """How far a run has come: what its checkpoints hold beside weights and optimiser.

    `best` is the step with the best reward on validation tasks so far; `evaluated` the last step
    after which that was looked at.
    """

    step: int = 0
    before: Metrics | None = None
    best: dict[str, Any] | None = None
    evaluated: int = 0
    watched: int = 0
    rollbacks: list[Rollback] = field(default_factory=list)


class _Best(Shape):
    step: NonNegativeInt
    reward: MetricShape


class _Rollback(Shape):
    step: NonNegativeInt
    to: NonNegativeInt
    alarm: str
    lr_scale: FiniteFloat


class ProgressShape(Shape, extra="forbid"):
    """`Progress` as `state.json` has it."""

    step: NonNegativeInt
    before: dict[str, MetricShape] | None = None
    best: _Best | None = None
    evaluated: NonNegativeInt = 0
    watched: NonNegativeInt = 0
    rollbacks: list[_Rollback] = Field(default_factory=list)


def work_of(session: Session, done: int, rows: Sequence[Row] = ()) -> Work:
    """What the run has to do; `done` steps of it, with these rows of metrics, are behind it."""
    config, worlds, settings = session.config, session.worlds, session.config.eval
    held_out = count_episodes(worlds, settings, settings.split, settings.num_tasks)
    validated = [world for world in worlds if world.can_validate]
    during = count_episodes(validated, settings, VALIDATION, settings.num_tasks_during)
    return Work(
        steps=config.max_steps,
        per_step=config.rollout.prompts_per_step * config.rollout.group_size,
        before=held_out,
        during=during,
        every=settings.every if validated else 0,
        after=held_out,
        done=done,
        rows=rows,
    )
