"""Places for a critic: values before the update, targets, and the columns a loss reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_toy import (
    SEEN,
    actor_critic,
    critic_loss,
    gains,
    make_learner,
    make_trajectory,
    micro_policy,
    returns,
    zeros,
)
from torch import Tensor

from searchrl.algorithms.builtin import make_grpo
from searchrl.algorithms.record import Algorithm
from searchrl.core.columns import LossColumns, LossStats
from searchrl.core.group import TrainItem, make_groups, settle
from searchrl.core.reduction import LossSettings, Reduction
from searchrl.engine.learning import before_update
from searchrl.engine.learning.batches import micro_batches
from searchrl.engine.learning.checkpoint import load_checkpoint, save_checkpoint
from searchrl.engine.learning.learner import Learner
from searchrl.engine.learning.packing import pack_step, point_rows
from searchrl.errors import PluginError


def items() -> list[TrainItem]:
    turns = [(([4, 5], [-1.0, -2.0]), ([6], [-1.5])), (([7], [-1.0]), ([8, 9], [-2.0, -1.0]))]
    played = [make_trajectory(f"g/{n}", "g", [1, 2], a, [3], b) for n, (a, b) in enumerate(turns)]
    return [TrainItem(one, float(n), is_cut=n > 0) for n, one in enumerate(played)]


def test_a_critic_learns_its_targets_and_the_policy_from_its_values(micro_model: Path) -> None:
    policy = micro_policy(micro_model)
    learner, told = make_learner(policy, actor_critic(), lr=1e-3), []
    before = [p.detach().clone() for p in policy.parameters]
    for _ in range(40):
        told.append(learner.train_step(make_groups(items())).metrics)
    step = SEEN[-1]
    # The second was cut: one more value, of what was seen after its last turn.
    assert step.is_cut == [False, True] and [len(one) for one in step.values or ()] == [2, 3]
    assert step.turn_rewards == [(0.0, 0.0), (0.0, 1.0)] and step.turn_tokens == [[2, 1], [1, 2]]
    assert step.values is not None and step.values[1][1] > step.values[0][1] + 0.2
    assert told[-1]["value_loss"] < 0.5 * told[0]["value_loss"]
    assert told[-1]["explained_variance"] > 0.5
    assert not all(map(torch.equal, before, policy.parameters))


@pytest.mark.parametrize("is_packed", [True, False])
@pytest.mark.parametrize("per_token", [True, False])
def test_values_are_those_of_the_states_before_turns_and_tokens(
    micro_model: Path, per_token: bool, is_packed: bool
) -> None:
    policy = micro_policy(micro_model)
    learner = make_learner(policy, actor_critic(per_token=per_token), is_packed=is_packed)
    assert learner.critic is not None
    with torch.no_grad():
        for parameter in learner.critic.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(1))
    groups = make_groups(items())
    with learner.computing():
        found = before_update.values(learner, groups)
    assert found is not None
    for item in items():
        ids = item.trajectory.ids
        with torch.no_grad():
            states = policy.base_model.get_decoder()(torch.tensor([ids])).last_hidden_state[0]
            values = learner.critic(states).tolist()
        turns = item.trajectory.turns
        places = [t for u in turns for t in (range(u.start, u.stop) if per_token else [u.start])]
        # Before a token is the state of the one that stands there; at the end, of the last one.
        expected = [values[t - 1] for t in places] + values[-1:] * item.is_cut
        assert found[item.trajectory.rollout_id] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("values", "expected"), [
    ({"g/0": (0.0,) * 2, "g/1": (0.0,) * 3}, [0, 0, 2, 3, 4, 4]),  # of turns of 2, 1, 1, 2 tokens
    ({"g/0": (0.0,) * 3, "g/1": (0.0,) * 4}, None),
])  # fmt: skip
def test_the_value_of_a_turn_is_learned_where_it_begins(values: Any, expected: Any) -> None:
    packed = pack_step(
        make_groups(items()), zeros, Reduction.TOKEN_MEAN, keep_dead_groups=True, constant=5,
        critic=values,
    )  # fmt: skip
    (batch,) = micro_batches(packed.groups, 100, torch.device("cpu"), is_packed=True)
    assert (None if batch.point_N is None else batch.point_N.tolist()) == expected


def test_a_critic_moves_alone_while_it_warms_up_and_has_its_own_rate(micro_model: Path) -> None:
    policy = micro_policy(micro_model)
    learner = make_learner(policy, actor_critic(lr=0.5, warmup_steps=1), lr=1e-3)
    assert learner.critic is not None
    before, head = [p.detach().clone() for p in policy.parameters], learner.critic[0].bias
    learner.train_step(make_groups(items()))
    assert all(map(torch.equal, before, policy.parameters))
    assert head.item() == pytest.approx(0.5, abs=1e-3)  # one step of AdamW is its rate
    learner.train_step(make_groups(items()))
    assert not all(map(torch.equal, before, policy.parameters))


@pytest.mark.parametrize("shares", [True, False])
def test_the_value_loss_reaches_the_policy_only_if_it_shall(
    micro_model: Path, shares: bool
) -> None:
    def value_only(columns: LossColumns, settings: LossSettings) -> tuple[Tensor, LossStats]:
        loss, stats = critic_loss(columns, settings)
        return loss - loss.detach() + 0 * columns.logp_T.sum(), stats

    algorithm = replace(actor_critic(trains_policy=shares), loss=value_only, advantages=zeros)
    policy = micro_policy(micro_model)
    learner = make_learner(policy, algorithm, beta=1e-9)
    with torch.no_grad():
        learner.critic[0].weight.fill_(0.1)  # type: ignore[union-attr, index]
    before = [p.detach().clone() for p in policy.parameters]
    learner.train_step(make_groups(items()))
    assert all(map(torch.equal, before, policy.parameters)) is not shares


def test_a_checkpoint_holds_the_critic_and_resumes_exactly(
    micro_model: Path, tmp_path: Path
) -> None:
    def train(learner: Learner, steps: int) -> None:
        for _ in range(steps):
            learner.train_step(make_groups(items()))

    whole = make_learner(micro_policy(micro_model), actor_critic())
    train(whole, 4)
    half = make_learner(micro_policy(micro_model), actor_critic())
    train(half, 2)
    folder = save_checkpoint(tmp_path, half.policy, half, {"step": 2})
    assert (folder / "critic.safetensors").is_file()
    other = make_learner(micro_policy(micro_model), actor_critic())
    load_checkpoint(folder, other.policy, other)
    train(other, 2)
    assert whole.critic is not None and other.critic is not None
    assert all(map(torch.equal, whole.critic.parameters(), other.critic.parameters()))
    assert all(map(torch.equal, whole.policy.parameters, other.policy.parameters))


def test_a_critic_learns_where_no_advantage_is_left(micro_model: Path) -> None:
    algorithm = replace(actor_critic(), advantages=zeros)
    learner = make_learner(micro_policy(micro_model), algorithm)
    assert learner.critic is not None
    before = [one.detach().clone() for one in learner.critic.parameters()]
    learner.train_step(make_groups(items()))
    assert not all(map(torch.equal, before, learner.critic.parameters()))


def test_kl_in_the_reward_is_that_of_every_token_to_the_reference(micro_model: Path) -> None:
    policy = micro_policy(micro_model)
    algorithm = replace(make_grpo(), needs_token_kl=True, beta=0.0)
    learner = make_learner(policy, algorithm)
    groups = make_groups(items())
    assert before_update.token_kl(learner, groups) == {"g/0": [0.0] * 3, "g/1": [0.0] * 3}
    with torch.no_grad():
        policy.parameters[-1].mul_(1.5)
    with learner.computing():
        found = before_update.token_kl(learner, groups) or {}
    rows = point_rows(groups, per_token=True, with_end=False)
    (batch,) = micro_batches(rows, 1000, policy.device)
    ours, theirs = (policy.logps(batch.layout, reference=one).logp_N for one in (False, True))
    expected = [found[name] for name in [r.rollout_id for r in batch.rollouts]]
    assert torch.allclose((ours - theirs).view(2, 3), torch.tensor(expected), atol=1e-6)
    assert any(found["g/0"])


def test_kl_and_entropies_are_at_the_temperature_and_over_the_tokens_that_were_written(
    micro_model: Path,
) -> None:
    policy = micro_policy(micro_model)
    policy.keep_reference()
    learner = make_learner(policy, replace(make_grpo(), needs_token_kl=True), temperature=0.5)
    with torch.no_grad():
        policy.parameters[-1].mul_(1.5)
    groups = make_groups(items())
    rows = point_rows(groups, per_token=True, with_end=False)
    (batch,) = micro_batches(rows, 1000, policy.device)
    ours, theirs = (
        policy.logps(batch.layout, temperature=0.5, with_entropy=True, reference=one)
        for one in (False, True)
    )
    with learner.computing():
        kls = before_update.token_kl(learner, groups) or {}
        entropies = before_update.mean_entropies(learner, [one.trajectory for one in items()])
    found = torch.tensor([kls[row.rollout_id] for row in batch.rollouts]).flatten()
    assert torch.allclose(found, ours.logp_N - theirs.logp_N, atol=1e-6) and found.abs().max() > 0.1
    assert ours.entropy_N is not None
    assert entropies == pytest.approx(ours.entropy_N.view(2, 3).mean(1).tolist(), abs=1e-5)


def test_turn_rewards_add_up_to_the_reward_with_its_length_penalty() -> None:
    assert settle((-0.5, 0.25), 1.0) == (-0.5, 1.5) and settle((), 1.0) == ()
    told = len(SEEN)
    pack_step(
        make_groups(items()), make_grpo().advantages, Reduction.TOKEN_MEAN, keep_dead_groups=True,
        constant=5, critic={"g/0": (0.0,) * 2, "g/1": (0.0,) * 3}, targets=returns,
        length_penalty=lambda count: -0.5 * count,
    )  # fmt: skip
    assert SEEN[told].turn_rewards == [(0.0, -1.5), (0.0, -0.5)]
    assert SEEN[told].rewards == [-1.5, -0.5]
    # Where turns are scored, the last one pays for the length.
    scored = [replace(one, turn_scores=(0.5, 0.25)) for one in items()]
    pack_step(
        make_groups(scored), returns, Reduction.TOKEN_MEAN, keep_dead_groups=True, constant=5,
        length_penalty=lambda count: -0.5 * count,
    )  # fmt: skip
    assert SEEN[-1].turn_rewards == [(0.5, 0.25 - 1.5)] * 2


def test_targets_without_values_are_refused() -> None:
    with pytest.raises(TypeError, match="'mine' has targets, .*: add critic="):
        Algorithm("mine", gains, critic_loss, targets=returns)


def test_targets_that_fit_no_rollout_name_the_algorithm() -> None:
    with pytest.raises(PluginError, match=r"mine: 7 targets for g/0; expected one number"):
        pack_step(
            make_groups(items()), make_grpo().advantages, Reduction.TOKEN_MEAN, constant=5,
            keep_dead_groups=True, targets=lambda step: [[0.0] * 7 for _ in step.rewards],
            owner="mine",
        )  # fmt: skip
