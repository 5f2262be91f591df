"""Alarms of the reward: groups that teach nothing, one value for everything, a proxy that wins.

They read what training is told to raise, and whether held-out tasks say the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from searchrl.alarms.curves import START, WINDOW, above, labels, mean, of_task, percent, streak
from searchrl.alarms.update import Share, Steps
from searchrl.contracts.history import History, Point
from searchrl.contracts.watching import Alert

Several = Annotated[int, Field(ge=2)]

_EXACT = "em"
"""The component that held-out tasks are judged by."""


@dataclass(frozen=True, kw_only=True)
class DeadGroups:
    """Sounds when no group has had two different rewards for many steps.

    It is silent where every rollout had one reward all the time: `constant_reward` says that.

    Args:
        steps: how many steps in a row.
    """

    steps: Steps = 10

    def check(self, history: History) -> Alert | None:
        """Look at the last steps."""
        bad = streak(history.curve("dead_groups"), above(1, or_equal=True), self.steps)
        if not bad or find_constant(history, self.steps):
            return None
        now = history.curve("reward", last=self.steps)
        reward = f" (mean reward {mean(now):.2f})" if now else ""
        return Alert(
            f"all rollouts of a group had the same reward, in every group of the last {len(bad)} "
            f"steps{reward}",
            bad[0].step,
            "a group is compared with itself, so equal rewards give no gradient",
            (
                "if the rewards are low, take easier tasks, a cold start, or f1 instead of em",
                "if they are high, take harder tasks, or --algorithm dapo",
            ),
            "notice",
        )


@dataclass(frozen=True, kw_only=True)
class ConstantReward:
    """Sounds when all rollouts of many steps had one and the same reward.

    Args:
        steps: how many steps in a row.
    """

    steps: Steps = 10

    def check(self, history: History) -> Alert | None:
        """Look at the last steps."""
        same = find_constant(history, self.steps)
        if not same:
            return None
        return Alert(
            f"every rollout of the last {len(same)} steps had the reward {same[-1].value:g}",
            same[0].step,
            "a reward that is always the same tells good from bad nowhere",
            (
                "read some rollouts: is a component at fault, or earned by everything?",
                "if all tasks are solved, take harder ones; otherwise add a component (em, f1)",
            ),
        )


@dataclass(frozen=True, kw_only=True)
class OneComponent:
    """Sounds when one component carries the reward while held-out exact match stands still.

    Args:
        min_gain: what the reward must have risen by, in weights of the whole expression.
        min_share: share of that rise that the component has.
        evals: how many short evaluations must show it.
    """

    min_gain: Share = 0.1
    min_share: Share = 0.8
    evals: Several = 3

    def check(self, history: History) -> Alert | None:
        """Compare what training gained with what short evaluations gained, for every task."""
        for label in labels(history):
            weights = history.weights.get(label.removesuffix("/"), {})
            held_out = history.curve(f"{label}{_EXACT}", "during")
            if len(held_out) < self.evals:
                continue
            bound = held_out[0].value if held_out[0].high is None else held_out[0].high
            if any(not point.value <= bound for point in held_out[1:]):  # it does not stand still
                continue
            curves = {name: history.curve(f"{label}{name}") for name in weights}
            gains = {
                name: weight * (mean(curve[-WINDOW:]) - mean(curve[:START]))
                for (name, weight), curve in zip(weights.items(), curves.values(), strict=True)
                if weight and len(curve) >= 2 * WINDOW
            }
            rise = sum(gains.values())
            name = max(gains, key=lambda one: gains[one], default="")
            size = sum(abs(weight) for weight in weights.values())
            if not name or name == _EXACT or rise < self.min_gain * size:
                continue
            if gains[name] >= self.min_share * rise:
                return Alert(
                    f"the reward{of_task(label)} rose by {rise:.2f}, {percent(gains[name] / rise)} "
                    f"of it from '{name}', while held-out em stood still ({held_out[0].value:.2f} "
                    f"at step {held_out[0].step}, {held_out[-1].value:.2f} at step "
                    f"{held_out[-1].step})",
                    held_out[0].step,
                    f"the policy learns to please '{name}' and not to answer",
                    (
                        f"lower the weight of '{name}' in the reward, such as 0.2*{name}",
                        f"read some rollouts that '{name}' scores high: what earns it?",
                    ),
                )
        return None


def find_constant(history: History, steps: int) -> list[Point]:
    """The last points of the reward if at least `steps` are the same and no group tells them apart.

    The mean of a step may stay the same by chance; then some group is not dead.
    """
    curve = history.curve("reward")
    if not curve:
        return []
    value = curve[-1].value
    dead = {point.step: point.value for point in history.curve("dead_groups")}

    def is_same(point: Point) -> bool:
        return point.value == value and dead.get(point.step, 1.0) >= 1

    return streak(curve, is_same, steps)
