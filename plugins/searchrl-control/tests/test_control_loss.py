"""The loss of a step, with every number by hand: ratios, clipping, KL, advantages, values."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from searchrl_control.policies.space import Decided
from searchrl_control.training.folder import build_settings
from searchrl_control.training.loop import Training
from torch import Tensor, nn

from searchrl import PolicyError

H = -0.25 * math.log(0.25) - 0.75 * math.log(0.75)
"""Entropy of one choice at .25 and .75, in nats."""


class Says(nn.Module):
    """Says at each call the next table: p [B, S] of the first of two legal actions, and values."""

    def __init__(self, *tables: tuple[Any, Any]) -> None:
        super().__init__()
        self.tables = iter(tables)
        self.shift = nn.Parameter(torch.zeros(3))

    def forward(self, seen_BSD: Tensor) -> Decided:
        p, value = (torch.tensor(one) for one in next(self.tables))
        logits_BSA = torch.stack([p.log(), (1 - p).log(), torch.full_like(p, 9.0)], dim=-1)
        return Decided(logits_BSA + self.shift, value)


def update(
    toy: dict[str, Any], rewards: Any, is_done: Any, old: Any, new: Any, start: Any, **more: Any
) -> dict[str, float]:
    """One update from episodes that all did action 0; action 2 is never legal."""
    env = {**toy, "actions": "heads"}
    training = Training(build_settings({"envs": [env], "group_size": 2}, more))
    training.network, training.start = Says(old, new), Says(start)  # type: ignore[assignment]
    training.optimizer = torch.optim.Adam(training.network.parameters())
    is_done_BS = torch.tensor(is_done)
    legal_BSA = torch.tensor([True, True, False]).expand(*is_done_BS.shape, 3)
    played: Any = SimpleNamespace(
        seen_BSD=torch.zeros((*is_done_BS.shape, 1)),
        legal_BSA=legal_BSA,
        action_BS=torch.zeros_like(is_done_BS, dtype=torch.long),
        reward_BS=torch.tensor(rewards),
        is_done_BS=is_done_BS,
    )
    return training.update(played)


def test_the_loss_of_dr_grpo_is_that_of_the_equation(toy: dict[str, Any]) -> None:
    """Returns .5 and 1.25: A = -.375 and .375. The sum is divided by 2 episodes * 2 choices.

    | choice | ratio      | objective                          | start / new | k3        |
    | 0, 0   | .25/.5=.5  | min(.5 * -.375, .8 * -.375) = -.3  | 3           | 2 - ln 3  |
    | 1, 0   | .75/.5=1.5 | min(1.5 * .375, 1.2 * .375) = .45  | 1           | 0         |
    | 1, 1   | 1          | .375                               | .5          | -.5+ln 2  |
    """
    values = [[0.0, 0.0], [0.0, 0.0]]
    told = update(
        toy,
        [[0.5, 0.0], [0.25, 1.0]],
        [[True, False], [True, True]],
        old=([[0.5, 0.5], [0.5, 0.5]], values),
        new=([[0.25, 0.9], [0.75, 0.5]], values),
        start=([[0.75, 0.1], [0.75, 0.25]], values),
        beta=0.1,
    )
    kl = 1.5 - math.log(3) + math.log(2)
    assert told["loss"] == pytest.approx(-(0.525 - 0.1 * kl) / 4, abs=1e-6)
    assert told["kl"] == pytest.approx(kl / 3, abs=1e-6)
    assert told["entropy"] == pytest.approx((2 * H + math.log(2)) / 3, abs=1e-6)
    assert told["clip_frac"] == pytest.approx(2 / 3) and "value_loss" not in told


def test_the_loss_of_ppo_is_that_of_the_equation(toy: dict[str, Any]) -> None:
    """Both episodes earn 0, 7 at values 3.5, 2: with lambda .5, GAE gives 7 - 2 = 5 and
    (0 + 2 - 3.5) + .5 * 5 = 1, which less their mean 3, over their deviation 2, are 1 and -1.

    At ratios 1.5 the objectives are -1.5 and 1.2 (clipped), at .5 they are -.8 (clipped) and .5: a
    mean of -.15 over the 4 choices. Targets are 4.5 and 7; at values 4 and 5, a mean error of
    (.25 + 4) / 2.
    """
    told = update(
        toy,
        [[0.0, 7.0, 0.0]] * 2,
        [[True, True, False]] * 2,
        old=([[0.5] * 3] * 2, [[3.5, 2.0, 99.0]] * 2),
        new=([[0.75] * 3, [0.25] * 3], [[4.0, 5.0, 99.0]] * 2),
        start=([[0.75] * 3, [0.25] * 3], [[0.0] * 3] * 2),
        algorithm="ppo",
        decay=0.5,
        entropy_weight=0.1,
        value_weight=0.25,
    )
    assert told["loss"] == pytest.approx(0.15 - 0.1 * H + 0.25 * 2.125, abs=1e-5)
    assert told["value_loss"] == pytest.approx(2.125) and told["clip_frac"] == 0.5


def test_a_gradient_that_is_not_finite_ends_the_run_before_it_is_taken(toy: dict[str, Any]) -> None:
    table = ([[0.5], [0.5]], [[0.0], [0.0]])
    with pytest.raises(PolicyError, match="step 1: the gradient is not finite.*lower lr"):
        update(toy, [[math.inf], [0.0]], [[True], [True]], table, table, table)
