"""The curriculum of a run: which stage of each task's weight, difficulty and reward is in force.

A pure function of the steps that are done: a stage that begins at 30 holds from step 31 on. The
stages of a reward are picked by its schedule (`rewards.expression`); here they are only told.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from searchrl.config.curriculum import KEYS, stage_at, stages_of
from searchrl.config.tree import describe_stages
from searchrl.engine.rollout.world import TaskWorld


class Curriculum:
    """The schedules of all tasks of a run. Without any, every weight is what the task says."""

    def __init__(self, worlds: Sequence[TaskWorld]) -> None:
        self.worlds = worlds
        self._schedules = [
            (task, key, stages)
            for key in KEYS
            for task, world in enumerate(worlds)
            if len(stages := stages_of(getattr(world.config, key))) > 1
        ]

    def weights(self, done: int) -> list[float]:
        """The weight of each task after so many steps."""
        stages = (stages_of(world.config.weight) for world in self.worlds)
        return [float(one[stage_at(one, done)][1]) for one in stages]

    def difficulty(self, task: int, done: int) -> Any:
        """The difficulty of a task after so many steps; None where it is the last, or the only."""
        world = self.worlds[task]
        stages = stages_of(world.config.difficulty)
        difficulty = stages[stage_at(stages, done)][1]
        return None if world.levels.get(difficulty) is world else difficulty

    def begins(self, done: int) -> list[str]:
        """Stages that begin with the next step, in words."""
        return [
            f"step {done + 1}: tasks.{task}.{key} is {stages[stage_at(stages, done)][1]} from here "
            "on"
            for task, key, stages in self._schedules
            if done and any(begin == done for begin, _ in stages)
        ]

    def figures(self, done: int) -> list[tuple[int, str, float]]:
        """Task, name and figure after so many steps: the weight, or the stage counted from 1."""
        changes = []
        for task, key, stages in self._schedules:
            at = stage_at(stages, done)
            is_weight = key == "weight"
            name = key if is_weight else f"{key}_stage"
            changes.append((task, name, float(stages[at][1]) if is_weight else float(at + 1)))
        return changes

    def __str__(self) -> str:
        return "; ".join(describe_stages([world.config for world in self.worlds]))
