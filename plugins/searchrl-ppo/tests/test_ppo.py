"""PPO by hand: GAE at an end, at a cut and across observations; the loss; whitening; the head."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from searchrl_ppo.algorithm import make_head, make_ppo, ppo_loss
from searchrl_ppo.gae import Estimator, gae

from searchrl.algorithms import Column, StepScores, Trajectory, TurnStop
from searchrl.core.group import TrainItem
from searchrl.testing import assert_conforms


def make_step(sizes: list[list[int]], rewards: list[list[float]], **more: Any) -> StepScores:
    """A step of one group whose turns have so many tokens and earn so much."""
    count = len(sizes)
    rollouts = []
    for number, own in enumerate(sizes):
        trajectory = Trajectory(f"r{number}", "q")
        for size in own:
            trajectory.append_model([3] * size, [-1.0] * size, version=0, reason=TurnStop.EOS)
        rollouts.append(TrainItem(trajectory, sum(rewards[number])))
    columns = {"is_scored": [True] * count, "end_values": [None] * count} | more
    return StepScores(
        [sum(own) for own in rewards], ["q"] * count, rollouts=rollouts, turn_rewards=rewards,
        **columns,
    )  # fmt: skip


def per_turn(*values: list[float]) -> list[Column]:
    return [Column(own) for own in values]


def per_token(*values: list[float]) -> list[Column]:
    return [Column(own, "token") for own in values]


def plain(columns: Any) -> list[list[float]]:
    return [list(one.values) for one in columns]


STEP = make_step(
    [[2, 3], [2], [1]],
    [[-0.25, 1.25], [0.0], [9.0]],
    is_scored=[True, True, False],
    values=per_turn([0.5, 0.75], [0.25], [0.0]),
    end_values=[None, 0.5, None],
    token_kl=per_token([0.1, 0.2, 0.0, -0.1, 0.3], [0.2, 0.2], [5.0]),
)
"""An episode that ended, one that was cut after its turn, one that is not scored."""


@pytest.mark.parametrize(
    ("values", "rewards", "gamma", "lam", "expected"),
    [
        ([0.5, 0.25], [0.0, 1.0], 1.0, 1.0, [0.5, 0.75]),  # the end: nothing follows
        ([0.5, 0.25], [0.0, 1.0], 1.0, 0.0, [-0.25, 0.75]),
        ([0.5, 0.25], [0.0, 1.0], 0.5, 0.5, [-0.1875, 0.75]),
        ([0.5, 0.25, 0.5], [0.0, 0.0], 1.0, 1.0, [0.0, 0.25]),  # cut: the value follows
        ([0.5, 0.25, 0.5], [0.0, 0.0], 0.5, 0.0, [-0.375, 0.0]),
        ([], [], 1.0, 1.0, []),
    ],
)
def test_gae_by_hand(
    values: list[float], rewards: list[float], gamma: float, lam: float, expected: list[float]
) -> None:
    assert gae(values, rewards, gamma, lam) == pytest.approx(expected)


def test_points_are_turns_or_tokens_and_observations_take_no_time() -> None:
    by_turn = Estimator(0.5, 0.5, whitens=False)
    own, cut, _ = plain(by_turn.advantages(STEP))
    # -0.25 + 0.5 * 0.75 - 0.5, and a quarter of the next; then 1.25 - 0.75.
    assert own == pytest.approx([-0.375 + 0.25 * 0.5, 0.5])
    assert cut == pytest.approx([0.0 + 0.5 * 0.5 - 0.25])
    tokens = replace(STEP, values=per_token([0.5, 0.1, 0.75, 0.2, 0.3], [0.25, 0.0], [0.0]))
    estimator = Estimator(1.0, 0.0, per_token=True, whitens=False)
    own, cut, _ = plain(estimator.advantages(tokens))
    # The reward of a turn is at its last token; the token before an observation is followed by
    # the one after it.
    assert own == pytest.approx([-0.4, -0.25 + 0.75 - 0.1, -0.55, 0.1, 1.25 - 0.3])
    assert cut == pytest.approx([-0.25, 0.5])


def test_a_limit_that_is_part_of_the_task_ends_the_episode() -> None:
    step = replace(STEP, end_values=[None, 9.0, None])
    _, cut, _ = plain(Estimator(1.0, 1.0, whitens=False, bootstraps=False).advantages(step))
    assert cut == pytest.approx([-0.25])


def test_targets_are_advantages_before_whitening_plus_values() -> None:
    columns = Estimator(1.0, 1.0).columns(STEP)
    assert columns["old_value"] == STEP.values
    own, cut, _ = plain(columns["target"])
    assert own == pytest.approx([1.0, 1.25]) and cut == pytest.approx([0.5])


def test_whitening_counts_trained_tokens_of_scored_rollouts_only() -> None:
    before = plain(Estimator(1.0, 1.0, whitens=False).advantages(STEP))
    white = plain(Estimator(1.0, 1.0).advantages(STEP))
    tokens = [(before[0][0], 2), (before[0][1], 3), (before[1][0], 2)]
    mean = sum(a * n for a, n in tokens) / 7
    std = math.sqrt(sum(n * (a - mean) ** 2 for a, n in tokens) / 7)
    assert white[0] == pytest.approx([(a - mean) / std for a in before[0]])


@pytest.mark.parametrize("scale", [0.3, 1e3, 1e-3])
def test_values_a_rounding_apart_are_equal_and_are_not_whitened(scale: float) -> None:
    """Values one unit in the last place apart became advantages of +-0.96."""
    value = torch.tensor(scale)
    ulps = [value, torch.nextafter(value, 2 * value), torch.nextafter(value, 0 * value), value]

    def advantages(values: list[float]) -> list[list[float]]:
        step = make_step([[5]] * 4, [[0.0]] * 4, values=per_turn(*([one] for one in values)))
        return plain(Estimator().advantages(step))

    assert advantages([one.item() for one in ulps]) == [[0.0]] * 4
    apart = advantages([scale, scale, scale, 1.01 * scale])
    assert apart[3][0] == pytest.approx(-math.sqrt(3), rel=0.2)


def test_the_kl_of_a_token_is_taken_from_what_it_earns() -> None:
    tokens = replace(STEP, values=per_token([0.0] * 5, [0.0] * 2, [0.0]))
    estimator = Estimator(1.0, 0.0, per_token=True, kl_coef=0.5, whitens=False)
    paid = plain(estimator.advantages(tokens))[0]
    assert paid == pytest.approx([-0.05, -0.25 - 0.1, 0.0, 0.05, 1.25 - 0.15])


@pytest.mark.parametrize(
    ("settings", "looks_ahead", "trains_policy"),
    [
        ({"gamma": 1.0, "lam": 1.0}, False, False),
        ({"gamma": 1.0, "lam": 0.9}, True, False),
        ({"gamma": 0.9, "lam": 1.0}, True, False),
        ({"shared": True}, True, True),
    ],
)
def test_what_the_critic_reads_and_trains_follows_from_the_settings(
    settings: dict[str, Any], looks_ahead: bool, trains_policy: bool
) -> None:
    critic = make_ppo(**settings).critic
    assert critic is not None
    assert (critic.looks_ahead, critic.trains_policy) == (looks_ahead, trains_policy)


def test_kl_in_the_reward_costs_each_turn_what_its_tokens_cost() -> None:
    free = plain(Estimator(1.0, 0.0, whitens=False).advantages(STEP))[0]
    paid = plain(Estimator(1.0, 0.0, kl_coef=0.5, whitens=False).advantages(STEP))[0]
    assert [a - b for a, b in zip(free, paid, strict=True)] == pytest.approx([0.15, 0.1])
    algorithm = make_ppo(kl="reward")
    assert "token_kl" in algorithm.asks and algorithm.beta == 0


def test_with_the_mean_of_the_group_as_value_it_is_reinforce_with_that_baseline() -> None:
    rewards = [1.0, 0.0, 0.0, 1.0, 0.25]
    mean = sum(rewards) / 5
    values = per_turn(*[[mean, mean]] * 5)
    step = make_step([[2, 2]] * 5, [[0.0, r] for r in rewards], values=values)
    advantages = plain(Estimator(1.0, 1.0, whitens=False).advantages(step))
    for own, reward in zip(advantages, rewards, strict=True):
        assert own == pytest.approx([reward - mean] * 2, abs=1e-6)


def test_the_value_loss_is_clipped_around_the_value_before_the_step() -> None:
    from searchrl.core.columns import loss_columns
    from searchrl.core.reduction import LossSettings

    def loss(clip: float | None) -> tuple[Any, Any]:
        value_T = torch.tensor([0.9, 0.1], requires_grad=True)
        zero_T = torch.zeros(2)
        columns = loss_columns(
            zero_T, zero_T, zero_T, torch.full((2,), 0.5), value_T=value_T,
            extra={"target": torch.tensor([1.0, 1.0]), "old_value": torch.tensor([0.5, 0.0])},
        )  # fmt: skip
        found, stats = ppo_loss(
            columns, LossSettings(0.2, 0.2, 0.0, "token-mean"), value_coef=1.0, clip_value=clip
        )
        found.backward()
        assert stats.loss == pytest.approx(float(found.detach()))
        return float(found.detach()), value_T.grad.tolist()

    assert loss(None) == (pytest.approx(0.25 * (0.01 + 0.81)), pytest.approx([-0.05, -0.45]))
    # The first moved too far: its error is that at 0.7, and it has no slope there.
    assert loss(0.2) == (pytest.approx(0.25 * (0.09 + 0.81)), pytest.approx([0.0, -0.45]))


@pytest.mark.parametrize("layers", [1, 2])
def test_a_head_begins_at_zero_and_is_the_same_every_time(layers: int) -> None:
    hidden_ND = torch.randn(3, 8)
    one, other = (make_head(8, num_layers=layers, inner=4) for _ in range(2))
    assert one(hidden_ND).shape == (3,) and not one(hidden_ND).any()
    assert all(map(torch.equal, one.parameters(), other.parameters()))


def test_it_passes_the_check_of_algorithms() -> None:
    assert_conforms("ppo", kind="algorithm", plugins=["searchrl_ppo"])
