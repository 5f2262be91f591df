"""Generalised advantage estimation (Schulman et al., arXiv 1506.02438) over turns or tokens.

    delta_i = r_i + gamma V_{i+1} - V_i        A_i = delta_i + gamma lambda A_{i+1}

A point is a turn, or a token that the model wrote. What the environment writes between two points
takes no time and earns nothing: V_{i+1} is that of the next point, after the observation. At the
end of an episode nothing follows (0); at a cut, what the critic expects of what was seen last, or
nothing, where the limit is part of the task.
Plain Python floats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from searchrl.algorithms import Column, StepScores

_DELTA = 1e-8
"""Added to the standard deviation of a step's advantages."""
_RESOLUTION = 1e-5
"""Advantages that differ by less than this share of the largest value or reward are equal: values
are sums in 32 bits."""


def gae(values: Sequence[float], rewards: Sequence[float], gamma: float, lam: float) -> list[float]:
    """Return the advantage of every point.

    Args:
        values: of every point, and one more of what follows the last one if the episode was cut.
        rewards: of every point.
        gamma: discount per point.
        lam: 1 is the return minus the value; 0 looks one point ahead.

    >>> gae([0.5, 0.25], [0.0, 1.0], 1.0, 1.0)
    [0.5, 0.75]
    >>> gae([0.5, 0.25, 0.5], [0.0, 0.0], 1.0, 0.0)  # cut
    [-0.25, 0.25]
    """
    following = values[len(rewards)] if len(values) > len(rewards) else 0.0
    advantage, found = 0.0, []
    for value, reward in zip(reversed(values[: len(rewards)]), reversed(rewards), strict=True):
        advantage = reward + gamma * following - value + gamma * lam * advantage
        following = value
        found.append(advantage)
    return found[::-1]


@dataclass(frozen=True, slots=True)
class Estimator:
    """The advantages and the targets of a step.

    `kl_coef`: what a nat of log-prob over the reference's costs, as part of the reward; 0: nothing.
    `whitens`: advantages get mean 0 and deviation 1 over the tokens that are trained. `bootstraps`:
    at a cut the value of what was seen last follows.
    """

    gamma: float = 1.0
    lam: float = 0.95
    per_token: bool = False
    kl_coef: float = 0.0
    whitens: bool = True
    bootstraps: bool = True

    def advantages(self, step: StepScores) -> list[Column]:
        """One per turn or per token of every rollout; 0 of an unscored one."""
        found = self._estimate(step)
        if not self.whitens:
            return self._columns(found, step)
        scored = [
            (advantage, size)
            for own, its, is_scored in zip(found, self._sizes(step), step.is_scored, strict=True)
            if is_scored
            for advantage, size in zip(own, its, strict=True)
        ]
        num_tokens = sum(size for _, size in scored)
        if not num_tokens:
            return self._columns(found, step)
        known = [*(own.values for own in step.values or ()), *self._rewards(step)]
        known.append([one for one in step.end_values or () if one is not None])
        largest = max(abs(one) for own in known for one in own)
        advantages = [advantage for advantage, _ in scored]
        if max(advantages) - min(advantages) <= _RESOLUTION * largest:
            return self._columns([[0.0] * len(own) for own in found], step)
        mean = math.fsum(a * size for a, size in scored) / num_tokens
        std = math.sqrt(math.fsum(size * (a - mean) ** 2 for a, size in scored) / num_tokens)
        white = [[(a - mean) / (std + _DELTA) for a in own] for own in found]
        return self._columns(white, step)

    def columns(self, step: StepScores) -> dict[str, Sequence[Column]]:
        """Targets of the values, advantage plus value, and the values before the step."""
        values = step.values or ()
        pairs = zip(self._estimate(step), values, strict=True)
        targets = [
            Column([a + v for a, v in zip(own, its.values, strict=True)], self._per)
            for own, its in pairs
        ]
        return {"target": targets, "old_value": values}

    @property
    def _per(self) -> str:
        return "token" if self.per_token else "turn"

    def _columns(self, found: list[list[float]], step: StepScores) -> list[Column]:
        pairs = zip(found, step.is_scored, strict=True)
        return [
            Column(own if is_scored else [0.0] * len(own), self._per) for own, is_scored in pairs
        ]

    def _estimate(self, step: StepScores) -> list[list[float]]:
        found = []
        rows = zip(step.values or (), step.end_values or (), self._rewards(step), strict=True)
        for values, end, rewards in rows:
            known = [*values.values, *([] if end is None or not self.bootstraps else [end])]
            found.append(gae(known, rewards, self.gamma, self.lam))
        return found

    def _sizes(self, step: StepScores) -> list[Sequence[int]]:
        """The trained tokens of every point."""
        return [[1] * sum(sizes) if self.per_token else sizes for sizes in step.turn_sizes]

    def _rewards(self, step: StepScores) -> list[list[float]]:
        """Rewards of every point: the score of its turn at its last token, less the KL."""
        found = []
        kls = step.token_kl or [Column([0.0] * sum(sizes), "token") for sizes in step.turn_sizes]
        rows = zip(step.turn_rewards or (), step.turn_sizes, kls, strict=True)
        for rewards, sizes, kl in rows:
            points: list[float] = []
            for reward, nats in zip(rewards, kl.over(sizes), strict=True):
                costs = [self.kl_coef * one for one in nats]
                if self.per_token:
                    points += [-cost for cost in costs]
                    points[-1] += reward
                else:
                    points.append(reward - math.fsum(costs))
            found.append(points)
        return found
