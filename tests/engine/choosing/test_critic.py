"""Policies with a critic: values before the update, targets, and the columns a loss reads."""

from __future__ import annotations

import pytest
import torch
from engine.choosing.choosing_toy import CPU, make_choices, make_driver, make_policy, make_world
from engine.choosing.choosing_toy import requests as ask
from torch import Tensor

from searchrl.algorithms import Algorithm, make_grpo
from searchrl.config.sections import AlgorithmConfig, OptimConfig
from searchrl.core.advantage import StepScores
from searchrl.core.columns import LossColumns, LossStats, loss_columns
from searchrl.core.group import TrainItem, settle
from searchrl.core.loss import ppo_clip_loss
from searchrl.core.reduction import LossSettings, Reduction
from searchrl.core.trajectory import Trajectory, TurnStop
from searchrl.engine.learning.learner import Learner
from searchrl.engine.learning.packing import micro_batches, pack_step
from searchrl.errors import PluginError, PolicyError

pytestmark = pytest.mark.thorough

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


def actor_critic() -> Algorithm:
    return Algorithm(
        "actor_critic", gains, critic_loss, "token-mean", beta=0.0, needs_values=True,
        targets=returns,
    )  # fmt: skip


def make_learner(policy: object, algorithm: Algorithm) -> Learner:
    optim = OptimConfig(lr=0.02, warmup_steps=0)
    settings = AlgorithmConfig(beta=0.0)
    return Learner(policy, algorithm, settings, optim, max_steps=100, constant=5)  # type: ignore[arg-type]


def test_values_are_those_of_the_network_at_every_choice() -> None:
    policy, world = make_policy("gru"), make_world()
    groups = make_driver(policy).run(ask(world, 6))
    played = [one.trajectory for group in groups for one in group.rollouts]
    values = policy.values([one.views for one in played])
    assert values is not None
    step = pack_step(
        groups, gains, Reduction.TOKEN_MEAN, keep_dead_groups=True, constant=5,
        critic={one.rollout_id: v for one, v in zip(played, values, strict=True)}, targets=returns,
    )  # fmt: skip
    (batch,) = micro_batches(step.groups, 10_000, CPU, lay_out=policy.lay_out)
    found = policy.logps(batch.layout).value_N
    assert found is not None and found.requires_grad
    by_name = {one.rollout_id: v for one, v in zip(played, values, strict=True)}
    assert found.tolist() == [value for name in batch.rollout_ids for value in by_name[name]]
    earned = {one.trajectory.rollout_id: one.turn_rewards for g in groups for one in g.rollouts}
    rewards = [earned[name] for name in batch.rollout_ids]
    assert batch.target_N is not None
    expected = [sum(row[turn:]) for row in rewards for turn in range(len(row))]
    assert batch.target_N.tolist() == pytest.approx(expected, abs=1e-6)
    told = SEEN[-1]
    assert told.is_cut == [len(one) == 5 and one.ids[-1] == 0 for one in played]
    assert [len(row) for row in told.values or ()] == [len(one) for one in played]


def test_a_cut_episode_has_the_value_of_what_was_seen_after_its_last_choice() -> None:
    policy = make_choices(make_policy().space, "gru")
    groups = make_driver(policy).run(ask(make_world(), 6))
    make_learner(make_choices(policy.space, "gru"), actor_critic()).train_step(groups)
    step = SEEN[-1]
    played = [one.trajectory for group in groups for one in group.rollouts]
    assert True in step.is_cut and False in step.is_cut
    for one, is_cut, values in zip(played, step.is_cut or (), step.values or (), strict=True):
        assert (one.after is not None) is is_cut and len(values) == len(one) + is_cut
        if one.after is not None:
            most = policy.space.max_choices
            (again,) = policy.values([(*one.views, one.after)[-most:]]) or [()]
            assert values[-1] == again[-1]


def test_turn_rewards_add_up_to_the_reward() -> None:
    for group in make_driver(make_policy()).run(ask(make_world(), 6)):
        for rollout in group.rollouts:
            assert sum(rollout.turn_rewards) == pytest.approx(rollout.reward, abs=1e-12)
            assert rollout.turn_rewards == tuple(turn.reward for turn in rollout.episode.turns)
    assert settle((-0.5, 0.25), 1.0) == (-0.5, 1.5) and settle((), 1.0) == ()
    made_up = Trajectory("r", "g")
    made_up.append_model((1, 2), (-1.0, -1.0), version=0, reason=TurnStop.EOS)
    made_up.append_model((3,), (-1.0,), version=0, reason=TurnStop.EOS)
    assert TrainItem(made_up, 0.5).turn_rewards == (0.0, 0.5)


def test_turn_rewards_have_the_length_penalty_of_the_reward() -> None:
    groups, told = make_driver(make_policy()).run(ask(make_world(), 4)), len(SEEN)
    names = [one.trajectory.rollout_id for group in groups for one in group.rollouts]
    pack_step(
        groups, make_grpo().advantages, Reduction.TOKEN_MEAN, keep_dead_groups=True, constant=5,
        critic=dict.fromkeys(names, ()), targets=returns, length_penalty=lambda count: -0.5 * count,
    )  # fmt: skip
    step = SEEN[told]
    assert step.turn_rewards is not None and step.num_tokens is not None
    rewards = [one.reward for group in groups for one in group.rollouts]
    expected = [r - 0.5 * n for r, n in zip(rewards, step.num_tokens, strict=True)]
    assert [sum(one) for one in step.turn_rewards] == pytest.approx(expected, abs=1e-12)
    assert step.rewards == pytest.approx(expected, abs=1e-12)


def test_a_critic_learns_and_both_layers_get_gradients() -> None:
    policy = make_choices(make_policy().space, "gru")
    learner, world, told = make_learner(policy, actor_critic()), make_world(), []
    before = [p.detach().clone() for p in policy.parameters]
    for step in range(10):
        told.append(learner.train_step(make_driver(policy).run(ask(world, 8, seed=step))))
    assert told[-1]["value_loss"] < 0.5 * told[0]["value_loss"]
    assert told[-1]["explained_variance"] > told[0]["explained_variance"]
    assert not any(map(torch.equal, before, policy.parameters))


def test_an_algorithm_that_needs_values_refuses_a_policy_without_a_critic() -> None:
    with pytest.raises(PolicyError, match="'actor_critic' needs values, and the policy has no"):
        make_learner(make_policy("mlp"), actor_critic())
    make_learner(make_policy("mlp", critic=True), actor_critic())
    assert make_policy("mlp").values(()) is None and make_policy("gru").values(()) == []


def test_targets_without_values_are_refused() -> None:
    with pytest.raises(TypeError, match="'mine' has targets, .*: add needs_values=True"):
        Algorithm("mine", gains, critic_loss, targets=returns)


def test_targets_that_fit_no_rollout_name_the_algorithm() -> None:
    groups = make_driver(make_policy()).run(ask(make_world(), 1))
    with pytest.raises(PluginError, match=r"mine: 7 targets for group 0/0; expected one number"):
        pack_step(
            groups, make_grpo().advantages, Reduction.TOKEN_MEAN, keep_dead_groups=True, constant=5,
            targets=lambda step: [[0.0] * 7 for _ in step.rewards], owner="mine",
        )  # fmt: skip


def test_the_value_columns_are_masked_and_measured() -> None:
    value_T = torch.tensor([1.0, 2.0, 5.0, torch.nan], requires_grad=True)
    weight_T, zeros_T = torch.tensor([0.5, 0.5, 0.0, 0.5]), torch.zeros(4)
    columns = loss_columns(
        zeros_T, zeros_T, zeros_T, weight_T, value_T=value_T,
        target_T=torch.tensor([2.0, 4.0, 9.0, 1.0]),
    )  # fmt: skip
    loss, stats = critic_loss(columns, LossSettings(0.2, 0.2, 0.0, "token-mean"))
    assert loss.item() == 0.5 * (0.5 * 1 + 0.5 * 4)
    means = stats.means()
    assert means["value_loss"] == (1 + 4) / 2 and stats.num_nonfinite == 1
    # Errors of 1 and 2, targets of 2 and 4: a variance of 1/4 is left of 1. A constant error is no
    # variance.
    assert means["explained_variance"] == 1 - 0.25
    loss.backward()
    assert value_T.grad is not None and value_T.grad.tolist() == [-0.5, -1.0, 0.0, 0.0]
    plain = ppo_clip_loss(loss_columns(zeros_T, zeros_T, zeros_T, weight_T), LossSettings())[1]
    assert not {"value_loss", "explained_variance"} & plain.means().keys()


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e3])
def test_variance_is_explained_only_where_targets_vary(scale: float) -> None:
    """Sums of 32 bits: of equal targets they leave a variance that is nothing but rounding."""
    count = 997

    def explained(target_T: Tensor, value_T: Tensor) -> float | None:
        zeros_T, weight_T = torch.zeros(count), torch.full((count,), 1 / count)
        columns = loss_columns(
            zeros_T, zeros_T, zeros_T, weight_T, value_T=value_T, target_T=target_T
        )
        return critic_loss(columns, LossSettings())[1].means().get("explained_variance")

    equal_T = torch.full((count,), 0.3 * scale)
    assert explained(equal_T, 0 * equal_T) is None
    varied_T = equal_T * (1 + 0.1 * torch.linspace(-1, 1, count))
    assert explained(varied_T, equal_T) == pytest.approx(0.0, abs=1e-3)
    assert explained(varied_T, varied_T) == 1.0
