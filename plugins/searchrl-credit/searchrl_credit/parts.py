"""Parts that several algorithms share: normalised numbers, and groups as trees."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any

from searchrl.algorithms import Column, StepScores

DELTA = 1e-6
"""Added to a standard deviation, as in GRPO."""


def normalise(values: Sequence[float], *, divides: bool = True) -> list[float]:
    """Return (x - mean) / (std + DELTA), or x - mean; exactly 0 where all are equal."""
    if len(set(values)) < 2:
        return [0.0] * len(values)
    mean = fmean(values)
    scale = pstdev(values) + DELTA if divides else 1.0
    return [(one - mean) / scale for one in values]


def within(
    keys: Iterable[Any], values: Sequence[float], normal: Callable[..., list[float]] = normalise
) -> list[float]:
    """Normalise the values of each key among themselves."""
    members: dict[Any, list[int]] = {}
    for place, key in enumerate(keys):
        members.setdefault(key, []).append(place)
    made = [0.0] * len(values)
    for places in members.values():
        for place, one in zip(places, normal([values[p] for p in places]), strict=True):
            made[place] = one
    return made


def discounted(earned: Sequence[float], gamma: float) -> list[float]:
    """Return the sum of what each turn and those behind it earned, discounted by gamma a turn."""
    later, sums = 0.0, list[float]()
    for one in reversed(earned):
        later = one + gamma * later
        sums.append(later)
    return sums[::-1]


class Forest:
    """The rollouts of a step as trees: a rollout is a leaf, and may continue another one."""

    def __init__(self, rollouts: Sequence[Any]) -> None:
        self.by_id = {one.trajectory.rollout_id: one for one in rollouts}
        self._children: dict[str, list[Any]] = {}
        for one in rollouts:
            if one.trajectory.num_kept:
                self._children.setdefault(one.trajectory.parent, []).append(one)

    def sampler(self, rollout: Any, turn: int = 0) -> str:
        """The rollout that sampled a turn of an episode, by its name; of turn 0: the tree's."""
        while rollout.trajectory.num_kept > turn:
            rollout = self.by_id[rollout.trajectory.parent]
        return str(rollout.trajectory.rollout_id)

    def below(self, rollout: Any, turn: int = -1) -> list[Any]:
        """The leaves whose path holds turn number `turn` of a rollout's own; -1: all from there."""
        place = rollout.trajectory.num_kept + turn
        found = [rollout]
        for child in self._children.get(rollout.trajectory.rollout_id, ()):
            if child.trajectory.num_kept > place:
                found += self.below(child)
        return found


def over_leaves(step: StepScores, values: Mapping[str, float]) -> list[list[float | None]]:
    """Return, for each turn, the mean of the values of the leaves whose path holds it, or None.

    `values` are those of scored rollouts, by their names.
    """
    forest, rows = Forest(step.rollouts), list[list[float | None]]()
    for rollout in step.rollouts:
        below = [forest.below(rollout, turn.index) for turn in rollout.trajectory.turns]
        named = [[one.trajectory.rollout_id for one in leaves] for leaves in below]
        known = [[values[name] for name in names if name in values] for names in named]
        rows.append([fmean(own) if own else None for own in known])
    return rows


def to_columns(rows: Iterable[Iterable[float | None]]) -> list[Column]:
    """The advantages of turns: 0 for one without a value."""
    return [Column([value or 0.0 for value in row]) for row in rows]


def scored(step: StepScores) -> tuple[list[Any], list[str], list[float]]:
    """The scored rollouts of a step, their groups and rewards."""
    rows = zip(step.rollouts, step.group_ids, step.rewards, step.is_scored, strict=True)
    kept = [(one, group, reward) for one, group, reward, is_scored in rows if is_scored]
    if any(not math.isfinite(reward) for *_, reward in kept):
        raise ValueError("a scored rollout has a reward that is not finite")
    return [one for one, *_ in kept], [group for _, group, _ in kept], [r for *_, r in kept]
