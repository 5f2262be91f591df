"""The curriculum of a run: which stage of each task's weight, difficulty and reward is in force.

Owns when stages begin, counted in the steps that are done by then: one that begins at 30 holds from
step 31 on. A step is looked at once, before it is sampled; a stage that has begun never ends again
but for the next one. What decides is the training means of the last `WINDOW` steps, kept
here, so that `state` is all a resumed run needs: the prompts of every step, past ones too, are a
function of it. Callers: `train`, through its session, and `PromptStream`.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from searchrl.config.curriculum import (
    KEYS,
    WINDOW,
    Condition,
    Stage,
    describe_stages,
    due_stage,
    list_stages,
)
from searchrl.engine.episodes.playing import Rollout
from searchrl.engine.episodes.world import TaskWorld
from searchrl.errors import ConfigError, suggest

REWARD = "reward"
"""The metric that is no component: the combined reward."""

_Sums = dict[str, list[float]]
"""Of a step: `tasks.0.em` -> the sum of the scores and their number."""


@dataclass(slots=True)
class Schedule:
    """The stages of one key of one task.

    `begun` are the steps after which those but the first began. Without conditions all are known.
    """

    task: int
    key: str
    stages: tuple[Stage, ...]
    begun: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.waits:
            self.begun = [stage.from_step or 0 for stage in self.stages[1:]]

    @property
    def name(self) -> str:
        """The key as `--set` takes it."""
        return f"tasks.{self.task}.{self.key}"

    @property
    def waits(self) -> bool:
        """Whether a stage waits for a condition."""
        return any(stage.when is not None for stage in self.stages)

    def at(self, done: int) -> int:
        """The number of the stage, from 0, after so many steps."""
        return bisect_right(self.begun, done)

    def source(self, condition: Condition) -> str:
        """Whose mean a condition is about, as `tasks.0.em`."""
        task = self.task if condition.task is None else condition.task
        return f"tasks.{task}.{condition.name}"


class Curriculum:
    """The schedules of all tasks of a run. Without any, every weight is what the task says.

    Raises:
        ConfigError: if a condition is about a metric that its task does not have.
    """

    def __init__(self, worlds: Sequence[TaskWorld]) -> None:
        self.worlds = worlds
        self._weights = [
            Schedule(place, "weight", list_stages(world.config, "weight"))
            for place, world in enumerate(worlds)
        ]
        others = (
            Schedule(place, key, list_stages(world.config, key))
            for key in KEYS[1:]
            for place, world in enumerate(worlds)
        )
        every = (*self._weights, *others)
        self.schedules = [one for one in every if len(one.stages) > 1]
        self._levels = {one.task: one for one in self.schedules if one.key == "difficulty"}
        self._means: list[_Sums] = []
        self._sources = {
            schedule.source(stage.when)
            for schedule in self.schedules
            for stage in schedule.stages
            if stage.when is not None and self._is_known(schedule, stage.when)
        }

    def _is_known(self, schedule: Schedule, condition: Condition) -> bool:
        world = self.worlds[schedule.task if condition.task is None else condition.task]
        known = (REWARD, *world.scorer.names)
        if condition.name in known:
            return True
        hint = suggest(condition.name, known)
        raise ConfigError(
            f"{schedule.name}: the condition {condition} needs '{condition.name}', which env "
            f"'{world.name}' does not measure.{hint} A reward component is measured once it stands "
            "in tasks[].metrics"
        )

    def weights(self, done: int) -> list[float]:
        """The weight of each task after so many steps, if that was looked at or needs no look."""
        return [float(one.stages[one.at(done)].value) for one in self._weights]

    def level(self, task: int, done: int) -> TaskWorld | None:
        """The world that plays a task after so many steps, where its difficulty changes."""
        schedule = self._levels.get(task)
        if schedule is None:
            return None
        return self.worlds[task].levels[schedule.stages[schedule.at(done)].value]

    def look(self, done: int) -> list[str]:
        """Decide the stages after so many steps; returns what begins with the next, in words.

        To look again changes nothing.
        """
        begun = []
        for schedule in self.schedules:
            before = schedule.at(done - 1)
            because = "" if not schedule.waits else self._advance(schedule, done)
            self._apply(schedule)
            if done and schedule.at(done) > before:
                value = schedule.stages[schedule.at(done)].value
                begun.append(f"step {done + 1}: {schedule.name} is {value} from here on{because}")
        return begun

    def _apply(self, schedule: Schedule) -> None:
        """Let the scorer know which stages of a reward have begun."""
        if schedule.key == "reward" and schedule.waits:
            scorer = self.worlds[schedule.task].scorer
            scorer.schedule = scorer.schedule.begun(schedule.begun)

    def _advance(self, schedule: Schedule, done: int) -> str:
        """Begin every stage that is due; returns the mean that decided, in words.

        A stage whose step has come begins even if one before it still waits: that one is left out.
        """
        because = ""
        due = due_stage(schedule.stages, done)
        while len(schedule.begun) < len(schedule.stages) - 1:
            number = len(schedule.begun) + 1
            stage = schedule.stages[number]
            since = schedule.begun[-1] if schedule.begun else 0
            mean = self._mean(schedule.source(stage.when)) if stage.when else math.nan
            # Its own steps only: what was played before says nothing about this stage.
            holds = stage.when is not None and done - since >= WINDOW and stage.when.holds(mean)
            if not holds and number > due:
                break
            schedule.begun.append(done)
            because = f" ({stage.when}: {mean:.3g} in the last {WINDOW} steps)" if holds else ""
        return because

    def _mean(self, source: str) -> float:
        """The mean over the last steps; NaN, which no bound holds for, if nothing was scored."""
        sums = [step[source] for step in self._means if source in step]
        total, count = (math.fsum(column) for column in zip(*sums, strict=True)) if sums else (0, 0)
        return total / count if count else math.nan

    def take_in(self, rollouts: Sequence[Rollout]) -> None:
        """Add the rollouts of a finished step to the means."""
        sums: _Sums = {}
        for source in sorted(self._sources):
            _, place, name = source.split(".", 2)
            world = self.worlds[int(place)]
            # Those that metrics count: a rollout without a reward has none.
            own = [r.scored for r in rollouts if r.world is world and r.scored.reward is not None]
            found = [one.reward if name == REWARD else one.scores.get(name) for one in own]
            scored = [value for value in found if value is not None]
            if scored:
                sums[source] = [math.fsum(scored), float(len(scored))]
        if self._sources:
            self._means = [*self._means, sums][-WINDOW:]

    def figures(self, done: int) -> list[tuple[int, str, float]]:
        """What is sampled with after so many steps, as task, name and figure.

        Weights are themselves; the stages of the others are counted from 1.
        """
        found = []
        for schedule in self.schedules:
            at, task = schedule.at(done), schedule.task
            if schedule.key == "weight":
                found.append((task, "weight", float(schedule.stages[at].value)))
            else:
                found.append((task, f"{schedule.key}_stage", float(at + 1)))
        return found

    def __str__(self) -> str:
        return "; ".join(describe_stages([world.config for world in self.worlds]))

    @property
    def begun(self) -> dict[str, list[int]]:
        """The steps after which the stages but the first of each schedule began."""
        return {one.name: list(one.begun) for one in self.schedules}

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds; empty if no condition decides anything."""
        waiting = {one.name: list(one.begun) for one in self.schedules if one.waits}
        return {"begun": waiting, "means": self._means} if waiting else {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        for schedule in self.schedules:
            if schedule.waits:
                schedule.begun = list(state.get("begun", {}).get(schedule.name, ()))
                self._apply(schedule)
        self._means = [dict(sums) for sums in state.get("means", ())]
