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
    make_learner,
    make_trajectory,
    micro_policy,
    zeros,
)
from torch import Tensor

from searchrl.algorithms.builtin import make_grpo
from searchrl.algorithms.record import Ask
from searchrl.core.advantage import Column
from searchrl.core.columns import LossColumns, LossStats
from searchrl.core.group import TrainItem, make_groups, settle
from searchrl.core.reduction import LossSettings
from searchrl.core.trajectory import Probe, Reading
from searchrl.engine.learning import before_update
from searchrl.engine.learning.batches import micro_batches
from searchrl.engine.learning.checkpoint import load_checkpoint, save_checkpoint
from searchrl.engine.learning.learner import Learner
from searchrl.engine.learning.packing import Known, pack_step
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
    assert step.values is not None and [len(one.values) for one in step.values] == [2, 2]
    assert step.end_values is not None and [e is None for e in step.end_values] == [True, False]
    assert step.turn_rewards == [(0.0, 0.0), (0.0, 1.0)] and step.turn_sizes == [[2, 1], [1, 2]]
    assert step.values[1].values[1] > step.values[0].values[1] + 0.2
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
        known = before_update.look(learner, groups, learner.algorithm, learner.critic)
    assert known.values is not None and known.end_values is not None
    for item, own, end in zip(items(), known.values, known.end_values, strict=True):
        ids = item.trajectory.ids
        with torch.no_grad():
            states = policy.base_model.get_decoder()(torch.tensor([ids])).last_hidden_state[0]
            values = learner.critic(states).tolist()
        turns = item.trajectory.turns
        places = [t for u in turns for t in (range(u.start, u.stop) if per_token else [u.start])]
        # Before a token is the state of the one that stands there; at the end, of the last one.
        expected = [values[t - 1] for t in places] + values[-1:] * item.is_cut
        ends = [] if end is None else [end]
        assert [*own.values, *ends] == pytest.approx(expected, abs=1e-5)


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


def test_kl_and_texts_are_read_at_the_temperature_token_by_token(micro_model: Path) -> None:
    policy = micro_policy(micro_model)
    algorithm = replace(make_grpo(), asks=[Ask.TOKEN_KL], beta=0.0)
    learner = make_learner(policy, algorithm, temperature=0.5)
    groups = make_groups(items())
    same = before_update.look(learner, groups, learner.algorithm, learner.critic).token_kl
    assert same == [Column([0.0] * 3, "token")] * 2
    with torch.no_grad():
        policy.parameters[-1].mul_(1.5)
    packed = pack_step(groups, make_grpo(), LossSettings(beta=1.0))
    (batch,) = micro_batches(packed.groups, 1000, policy.device)
    ours, theirs = (
        policy.logps(batch.layout, temperature=0.5, with_entropy=True, reference=one)
        for one in (False, True)
    )
    probes = [
        Probe(one.trajectory, turn.start, one.trajectory.turn_ids(turn))
        for one in items()
        for turn in one.trajectory.turns
    ]
    with learner.computing():
        kls = before_update.look(learner, groups, learner.algorithm, learner.critic).token_kl or ()
        readings = before_update.read(learner, [*probes, Probe(items()[0].trajectory, 2, "")])
    told = torch.tensor([one.values for one in kls]).flatten()
    assert torch.allclose(told, ours.logp_N - theirs.logp_N, atol=1e-6) and told.abs().max() > 0.1
    assert ours.entropy_N is not None and readings.pop() == Reading((), ())
    with pytest.raises(ValueError, match="behind 0 tokens of segment 0 of g/0, which has 6"):
        Probe(items()[0].trajectory, 0, "")
    for figures, name in ((ours.logp_N, "logps"), (ours.entropy_N, "entropies")):
        read = [one for reading in readings for one in getattr(reading, name)]
        assert read == pytest.approx(figures.tolist(), abs=1e-5)


def test_turn_rewards_add_up_to_the_reward_with_its_length_penalty() -> None:
    assert settle((-0.5, 0.25), 1.0) == (-0.5, 1.5) and settle((), 1.0) == ()
    paid = replace(actor_critic(), length_penalty=lambda count, most: -0.5 * count)
    zero, ends = [Column([0.0, 0.0])] * 2, [None, 0.0]
    told = len(SEEN)
    pack_step(make_groups(items()), paid, LossSettings(), known=Known(zero, ends))
    assert SEEN[told].turn_rewards == [(0.0, -1.5), (0.0, -0.5)]
    assert SEEN[told].rewards == [-1.5, -0.5]
    # Where turns are scored, the last one pays for the length.
    scored = [replace(one, turn_scores=(0.5, 0.25)) for one in items()]
    pack_step(make_groups(scored), paid, LossSettings(), known=Known(zero, ends))
    assert SEEN[-1].turn_rewards == [(0.5, 0.25 - 1.5)] * 2


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"target": [Column([0.0] * 7)] * 2}, "7 targets for g/0; expected 2, one per turn"),
        ({"weight": [0.0, 0.0]}, "its column 'weight' is the learner's"),
        ({"hold": [0.5, 1.0]}, "its term 'hold' must be a column of 0 and 1"),
        ({"other": [0.0, 1.0]}, "its term 'hold' must be .*adds \\['other'\\]"),
        ({"hold": [torch.zeros(2)] * 2}, r"the hold of g/0 is \[0.0, 0.0\]; expected a number"),
    ],
)
def test_columns_that_fit_no_rollout_name_the_algorithm(columns: Any, message: str) -> None:
    algorithm = replace(make_grpo(), name="mine", columns=lambda step: columns, terms=["hold"])
    with pytest.raises(PluginError, match=f"'mine': {message}"):
        pack_step(make_groups(items()), algorithm, LossSettings())
