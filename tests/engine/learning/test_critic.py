"""Places for a critic: values before the update, targets, and the columns a loss reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_toy import make_learner, make_trajectory, micro_policy
from torch import Tensor, nn

from searchrl.algorithms.builtin import make_grpo
from searchrl.algorithms.record import Algorithm
from searchrl.core.advantage import StepScores
from searchrl.core.columns import LossColumns, LossStats
from searchrl.core.group import TrainItem, make_groups, settle
from searchrl.core.reduction import LossSettings, Reduction
from searchrl.core.trajectory import Trajectory
from searchrl.engine.learning.packing import pack_step
from searchrl.engine.model.layout import Layout
from searchrl.engine.model.policy import Policy
from searchrl.errors import PluginError, PolicyError

SEEN: list[StepScores] = []


def returns(step: StepScores) -> list[list[float]]:
    SEEN.append(step)
    assert step.turn_rewards is not None
    return [[sum(earned[turn:]) for turn in range(len(earned))] for earned in step.turn_rewards]


def gains(step: StepScores) -> list[list[float]]:
    assert step.values is not None
    pairs = zip(returns(step), step.values, strict=True)
    return [[got - value for got, value in zip(one, values, strict=False)] for one, values in pairs]


def critic_loss(columns: LossColumns, settings: LossSettings) -> tuple[Tensor, LossStats]:
    assert columns.value_T is not None and columns.target_T is not None
    ratio_T = torch.exp(columns.logp_T - columns.old_logp_T)
    errors_T = (columns.target_T - columns.value_T).square()
    extra = 0.5 * (columns.weight_T * errors_T).sum()
    return columns.reduce(ratio_T * columns.adv_T, ratio_T, extra_loss=extra)


def actor_critic(critic: nn.Parameter) -> Algorithm:
    return Algorithm(
        "actor_critic", gains, critic_loss, "token-mean", beta=0.0, needs_values=True,
        targets=returns, parameters=lambda: [critic],
    )  # fmt: skip


@dataclass
class Critical:
    """A policy with the simplest critic: one number for every turn, which is trained."""

    inner: Policy
    critic: nn.Parameter

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def values(self, trajectories: Sequence[Trajectory]) -> list[tuple[float, ...]]:
        return [
            (self.critic.item() + number / 2,) * len(one.turns)
            for number, one in enumerate(trajectories)
        ]

    def logps(self, layout: Layout, **asked: Any) -> Any:
        told = self.inner.logps(layout, **asked)
        return told._replace(value_N=self.critic.expand(len(told.logp_N)))


def items() -> list[TrainItem]:
    turns = [(([4, 5], [-1.0, -2.0]), ([6], [-1.5])), (([7], [-1.0]), ([8, 9], [-2.0, -1.0]))]
    played = [make_trajectory(f"g/{n}", "g", [1, 2], a, [3], b) for n, (a, b) in enumerate(turns)]
    return [TrainItem(one, float(n), is_cut=n > 0) for n, one in enumerate(played)]


def test_a_critic_learns_its_targets_and_the_policy_from_its_values(micro_model: Path) -> None:
    critic = nn.Parameter(torch.zeros(()))
    policy: Any = Critical(micro_policy(micro_model), critic)
    learner, told = make_learner(policy, actor_critic(critic), lr=0.1), []
    before = [p.detach().clone() for p in policy.inner.parameters]
    for _ in range(8):
        told.append(learner.train_step(make_groups(items())).metrics)
    step = SEEN[-1]
    assert step.is_cut == [False, True] and [len(one) for one in step.values or ()] == [2, 2]
    assert step.turn_rewards == [(0.0, 0.0), (0.0, 1.0)]
    assert step.values is not None and step.values[1][0] > step.values[0][0]
    assert told[-1]["value_loss"] < told[0]["value_loss"] and critic.item() > 0.3
    assert not all(map(torch.equal, before, policy.inner.parameters))


def test_an_algorithm_that_needs_values_refuses_a_policy_without_a_critic(
    micro_model: Path,
) -> None:
    with pytest.raises(PolicyError, match="'actor_critic' needs values, and the policy has no"):
        make_learner(micro_policy(micro_model), actor_critic(nn.Parameter(torch.zeros(()))))


def test_turn_rewards_add_up_to_the_reward_with_its_length_penalty() -> None:
    assert settle((-0.5, 0.25), 1.0) == (-0.5, 1.5) and settle((), 1.0) == ()
    told = len(SEEN)
    pack_step(
        make_groups(items()), make_grpo().advantages, Reduction.TOKEN_MEAN, keep_dead_groups=True,
        constant=5, critic={"g/0": (), "g/1": ()}, targets=returns,
        length_penalty=lambda count: -0.5 * count,
    )  # fmt: skip
    assert SEEN[told].turn_rewards == [(0.0, -1.5), (0.0, -0.5)]
    assert SEEN[told].rewards == [-1.5, -0.5]


def test_targets_without_values_are_refused() -> None:
    with pytest.raises(TypeError, match="'mine' has targets, .*: add needs_values=True"):
        Algorithm("mine", gains, critic_loss, targets=returns)


def test_targets_that_fit_no_rollout_name_the_algorithm() -> None:
    with pytest.raises(PluginError, match=r"mine: 7 targets for g/0; expected one number"):
        pack_step(
            make_groups(items()), make_grpo().advantages, Reduction.TOKEN_MEAN, constant=5,
            keep_dead_groups=True, targets=lambda step: [[0.0] * 7 for _ in step.rewards],
            owner="mine",
        )  # fmt: skip
