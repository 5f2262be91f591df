"""Losses by hand: the network's with all its terms, and a judged list."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from searchrl_control.environment.rewards import make_list_judge
from searchrl_control.training.folder import build_settings
from searchrl_control.training.loop import Training
from searchrl_control.training.networks import Decided
from torch import Tensor, nn

from searchrl import PolicyError
from searchrl.contracts import (
    SEARCH,
    Action,
    Episode,
    EpisodeTurn,
    JudgeCase,
    Passage,
    Task,
    Verdict,
)

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
    made = build_settings({"envs": [env], "group_size": 2, "floor": 1e-9}, more)
    training = Training(made)
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
    told = training.update(played)
    clipped = float(training.network.shift.grad.norm())  # type: ignore[union-attr, operator]
    assert clipped == pytest.approx(min(told["grad_norm"], 0.5), abs=1e-5)
    return told


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
    table = ([[0.5], [0.9]], [[0.0], [0.0]])  # 4 * .5 - 4 * .1, over 2, for both actions
    told = update(toy, [[8.0], [0.0]], [[True], [True]], table, table, table)
    assert told["grad_norm"] == pytest.approx(0.8 * math.sqrt(2))  # which is clipped


def test_a_step_is_described_by_its_episodes(toy: dict[str, Any]) -> None:
    training = Training(build_settings({"envs": [toy], "questions": 3, "group_size": 4}))
    rng = np.random.default_rng(0)
    played: Any = training.play(*training._draw(rng), rng)
    told = training.describe(played, played)
    assert len(played.is_done_BS) == 12
    assert told["ndcg"] == pytest.approx(np.mean([turn.worth for turn in played.turns]))
    assert told["reward"] == pytest.approx(float(played.reward_BS.sum()) / 12)
    assert told["actions"] == pytest.approx(int(played.is_done_BS.sum()) / 12)
    shares = [value for name, value in told.items() if name.startswith("action/")]
    assert sum(shares) == pytest.approx(1) and 0 < told["least_action_p"] <= 0.25
    assert told["greedy_actions"] == sum(share > 0 for share in shares)


def test_a_judge_of_a_list_reads_the_start_of_its_first_three_passages() -> None:
    asked: list[JudgeCase] = []

    class Judge:
        def judge(self, case: JudgeCase) -> Verdict:
            asked.append(case)
            return Verdict(0.5)

    task = Task("t", "test", 0, "Who swims?", answers=("otters",))
    passages = [Passage(str(n), str(n) * 600) for n in range(4)]
    turns = [EpisodeTurn("", Action(SEARCH, ("q",)), tuple(passages[at:])) for at in (1, 0)]
    score = make_list_judge(Judge())
    assert score(Episode(task, tuple(turns))) == 0.5
    assert asked == [
        JudgeCase("Who swims?", "\n\n".join(str(n) * 500 for n in range(3)), ("otters",))
    ]
    empty = EpisodeTurn("", Action(SEARCH, ("q",)))
    assert score(Episode(task, (turns[0], empty))) == 0.0 and len(asked) == 1
