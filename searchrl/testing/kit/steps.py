"""Made-up optimiser steps and one micro-batch, on which algorithms are tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from searchrl.algorithms.record import Algorithm
from searchrl.config.sections import AlgorithmConfig
from searchrl.core.advantage import Column, Per, StepScores
from searchrl.core.group import TrainItem, WeightedScore
from searchrl.core.trajectory import Trajectory, TurnStop

if TYPE_CHECKING:
    from torch import Tensor


def make_step(rewards: str, groups: str, unscored: Sequence[int] = ()) -> StepScores:
    """A step as the packer describes it, from rewards and group ids between spaces.

    >>> make_step("1 0", "p p", unscored=[1]).is_scored
    [True, False]
    """
    values, group_ids = [float(word) for word in rewards.split()], groups.split()
    count = len(values)
    return StepScores(
        rewards=values,
        group_ids=group_ids,
        is_scored=[i not in unscored for i in range(count)],
        rollouts=[
            _make_rollout(f"r{i}", name, None if i in unscored else value, i)
            for i, (name, value) in enumerate(zip(group_ids, values, strict=True))
        ],
        values=[Column([0.25 * turn for turn in range(2 + i % 2)]) for i in range(count)],
        end_values=[0.25 * (2 + i % 2) if i % 3 == 2 else None for i in range(count)],
        token_kl=[Column([0.01] * (9 + i), Per.TOKEN) for i in range(count)],
        turn_rewards=[[0.0] * (1 + i % 2) + [one] for i, one in enumerate(values)],
    )


def _make_rollout(name: str, group_id: str, reward: float | None, number: int) -> TrainItem:
    """Two or three turns of 9 tokens and a few more; every third rollout was cut."""
    trajectory = Trajectory(name, group_id)
    trajectory.append_prompt([1, 2])
    for size in [8 + number - number % 2, *[1] * (1 + number % 2)]:
        trajectory.append_model([3] * size, [-1.0] * size, version=0, reason=TurnStop.EOS)
        trajectory.append_env([4])
    components = {} if reward is None else {"em": WeightedScore(1.0, reward)}
    return TrainItem(trajectory, reward, None, number % 3 == 2, components)


def _with_turns(step: StepScores) -> StepScores:
    rollouts = [
        replace(one, turn_scores=tuple(0.5 * (n % 2) for n in range(len(one.trajectory.turns))))
        for one in step.rollouts
        if isinstance(one, TrainItem)
    ]
    return replace(step, rollouts=rollouts)


DEAD_STEPS: Mapping[str, StepScores] = {
    "a group of equal rewards": make_step("1 1 1 1", "p p p p"),
    "equal rewards beside others": make_step("0 0 0 1 0 1", "p p p q q q"),
    "equal rewards that floats do not add up": make_step("0.1 0.1 0.1", "p p p"),
    "groups of one rollout": make_step("1 0 0.5", "p q r"),
    "a group with one scored rollout": make_step("1 0 0", "p p p", [1, 2]),
    "no scored rollout": make_step("0 0", "p p", [0, 1]),
    "no rollout": make_step("", ""),
}
"""Steps without contrast, each under the words that name it."""

STEPS: Mapping[str, StepScores] = {
    "two groups": make_step("1 0 0 1 0.2 0.9", "p p p q q q"),
    "mixed groups": make_step("1 0 0 1 0.5 0.25", "p q p q q p"),
    "groups of other sizes": make_step("1 0 0 1 0.5", "p p q q q"),
    "negative rewards": make_step("-1 -3 -2 0", "p p p p"),
    "large rewards": make_step("1e6 0 3e6 0", "p p q q"),
    "an unscored rollout": make_step("1 0 0 0.5", "p p p p", [2]),
    "process scores": _with_turns(make_step("1 0 0 1", "p p q q")),
}
"""Steps with something to compare."""


def reorder(step: StepScores, order: Sequence[int]) -> StepScores:
    """The same step with its rollouts in another order."""
    columns: dict[str, Any] = {
        f.name: [column[i] for i in order] if isinstance(column, Sequence) else column
        for f in fields(step)
        for column in [getattr(step, f.name)]
    }
    return StepScores(**columns)


class TokenBatch:
    """A micro-batch of six tokens in two rollouts at the first update: every ratio is 1.

    Tokens outside the `mask` have no weight, or, without `has_others`, are not there at all.
    """

    def __init__(
        self, algorithm: Algorithm, *, mask: Sequence[bool] | None = None, has_others: bool = True
    ) -> None:
        import torch

        self._columns = algorithm.columns(make_step("1 0", "p p"))
        self.adv = [1.0, 0.5, -1.0, -0.5, 1.0, -1.0]
        self.algorithm = algorithm
        self._mask_T = torch.tensor(list(mask or [True] * len(self.adv)))
        self._kept_T = torch.ones_like(self._mask_T) if has_others else self._mask_T
        logp_T = torch.tensor([-0.5, -1.0, -1.5, -2.0, -0.1, -3.0], dtype=torch.float64)
        self._logp_T = logp_T.requires_grad_()

    def loss(self) -> Tensor:
        """The loss with the algorithm's own numbers."""
        import torch

        from searchrl.core.columns import loss_columns

        settings = self.algorithm.resolve(AlgorithmConfig(name="checked"))
        logp_T, mask_T = self._logp_T[self._kept_T], self._mask_T[self._kept_T]
        same_T = logp_T.detach().clone()
        columns = loss_columns(
            logp_T,
            same_T,
            torch.tensor(self.adv, dtype=torch.float64)[self._kept_T],
            torch.where(mask_T, 1 / 6, torch.zeros_like(same_T)),
            ref_logp_T=same_T if settings.beta > 0 else None,
            sampler_logp_T=same_T,
            segment_T=torch.tensor([0, 0, 0, 1, 1, 1])[self._kept_T],
            rollout_T=torch.tensor([0, 0, 0, 1, 1, 1])[self._kept_T],
            entropy_T=torch.full_like(same_T, 0.7),
            value_T=torch.full_like(same_T, 0.3) if self.algorithm.critic else None,
            extra=dict.fromkeys(self._columns, torch.full_like(same_T, 0.5)),
            terms=[name for name in self.algorithm.terms if name in self._columns],
        )
        return self.algorithm.loss(columns, settings)[0]

    def gradient(self) -> list[float]:
        """The slope of the loss in every log-prob; 0 where it has none."""
        self._logp_T.grad = None
        self.loss().backward()
        slopes = self._logp_T.grad
        return [0.0] * len(self.adv) if slopes is None else slopes.tolist()
