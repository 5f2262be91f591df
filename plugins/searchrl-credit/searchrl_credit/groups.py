"""`gigpo` and `gdpo`: comparisons without branches, of turns and of reward components."""

from __future__ import annotations

from functools import partial
from statistics import pstdev
from typing import Annotated

from pydantic import Field

from searchrl.algorithms import Algorithm, Ask, Column, StepScores, ppo_clip_loss
from searchrl_credit.parts import DELTA, discounted, normalise, scored, within

Share = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[float, Field(ge=0)]


def make_gigpo(*, gamma: Share = 0.95, weight: Weight = 1.0, divides: bool = True) -> Algorithm:
    """GiGPO (arXiv 2505.10978): the episode's advantage, and that of each turn among its equals.

    Args:
        gamma: discount of a later turn's reward.
        weight: weight of the comparison of turns.
        divides: divide by the standard deviation, in both comparisons.
    """
    own = partial(step_group_advantages, gamma=gamma, weight=weight, divides=divides)
    return Algorithm("gigpo", own, ppo_clip_loss, asks=[Ask.TURN_REWARDS])


def step_group_advantages(
    step: StepScores, *, gamma: float, weight: float, divides: bool
) -> list[Column]:
    """Return, per turn, A_i + weight * A_it; turns of a group that saw the same are compared.

    Two turns saw the same if the prompt, or the observation, before them is equal, token by token.
    """
    normal = partial(normalise, divides=divides)
    rollouts, groups, rewards = scored(step)
    whole = within(groups, rewards, normal)
    earned = [
        own for own, is_in in zip(step.turn_rewards or (), step.is_scored, strict=True) if is_in
    ]
    seen, reached, sizes = [], list[float](), list[int]()
    for rollout, group, own in zip(rollouts, groups, earned, strict=True):
        trajectory = rollout.trajectory
        seen += [(group, trajectory.seen_before(turn)) for turn in trajectory.turns]
        reached += discounted(own, gamma)
        sizes.append(len(own))
    parts = iter(within(seen, reached, normal))
    made = iter(
        [one + weight * next(parts) for _ in range(size)]
        for one, size in zip(whole, sizes, strict=True)
    )
    return [
        Column(next(made) if is_in else [0.0] * len(turns))
        for is_in, turns in zip(step.is_scored, step.turn_sizes, strict=True)
    ]


def make_gdpo() -> Algorithm:
    """GDPO (arXiv 2601.05242): components are normalised in their groups, their sum in the step."""
    return Algorithm("gdpo", component_advantages, ppo_clip_loss)


def component_advantages(step: StepScores) -> list[float]:
    """Return one number per rollout, 0 for one that is not scored.

    A component that nobody could score is left out of its rollout's sum.
    """
    rollouts, groups, _ = scored(step)
    keys, values, owners = list[tuple[str, str]](), list[float](), list[tuple[int, float]]()
    for place, (rollout, group) in enumerate(zip(rollouts, groups, strict=True)):
        for name, part in rollout.components.items():
            keys.append((group, name))
            values.append(part.score)
            owners.append((place, part.weight))
    sums = [0.0] * len(rollouts)
    for (place, weight), one in zip(owners, within(keys, values), strict=True):
        sums[place] += weight * one
    # Their mean over the step is 0. What cancels is 0, too, and no rounding error: a dead group
    # stays one.
    sums = [round(one, 12) for one in sums]
    scale = pstdev(sums or [0.0]) + DELTA
    made = iter(sums)
    return [next(made) / scale if is_in else 0.0 for is_in in step.is_scored]
