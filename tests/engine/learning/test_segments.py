"""Rollouts of several segments: one reward, each token trained once, in the context it had."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_toy import actor_critic, make_trajectory, token_logps
from packed_toy import caught_gradients, is_close, make_learner, make_policy

from searchrl.algorithms.builtin import make_grpo
from searchrl.algorithms.record import Algorithm
from searchrl.core.advantage import Column
from searchrl.core.group import TrainItem, make_groups
from searchrl.core.reduction import LossSettings
from searchrl.core.trajectory import Probe, Trajectory, TurnStop
from searchrl.engine.learning import before_update
from searchrl.engine.learning.batch_check import BatchCheck
from searchrl.engine.learning.batches import micro_batches
from searchrl.engine.learning.packing import PackedStep, pack_step
from searchrl.engine.model.tolerance import Tolerance

PROMPT, LOGP = [5, 6, 7], -5.77


def pack(items: list[TrainItem], advantages: list[Any]) -> PackedStep:
    algorithm = Algorithm("mine", lambda step: advantages, make_grpo().loss)
    return pack_step(make_groups(items), algorithm, LossSettings(reduction="sequence-mean"))


def segment(name: str, prompt: list[int], *parts: Any) -> Trajectory:
    """A rollout of one segment; numbers below 100 were sampled, others are an observation."""
    said = [(ids, [LOGP] * len(ids)) if ids[0] < 100 else ids for ids in parts]
    return make_trajectory(name, "g", prompt, *said)


def forked(name: str, first: list[int], other: list[int], last: list[int]) -> Trajectory:
    """Requests went to the first segment, a second, and the first again."""
    made = segment(name, PROMPT, first)
    made.begin_segment("edited")
    made.append_prompt([*PROMPT, 11, 12, 102])
    made.append_model(other, [LOGP] * len(other), version=0, reason=TurnStop.EOS)
    made.current = 0
    made.append_env([101])
    made.append_model(last, [LOGP] * len(last), version=0, reason=TurnStop.EOS)
    return made


def two_segments(name: str = "g/0") -> Trajectory:
    return forked(name, [11, 12], [21], [13, 14, 15])


def test_turns_are_numbered_as_they_were_asked_for_wherever_their_tokens_stand() -> None:
    made = two_segments()
    assert [len(one) for one in made.segments] == [9, 7] and made.forks == [(1, "edited")]
    asked = [made.turn_ids(turn) for turn in made.turns]
    assert asked == [(11, 12), (21,), (13, 14, 15)]
    assert [turn.index for turn in made.turns] == [0, 1, 2]
    assert made.turns_of == (-1, -1, -1, 0, 0, 0, 2, 2, 2, *[-1] * 6, 1)
    assert (made.num_model_tokens, made.num_prompt_tokens) == (6, 3)


@pytest.mark.parametrize(
    ("advantage", "expected"),
    [
        (2.0, [(2.0,) * 5, (2.0,)]),
        (Column((1.0, 2.0, 3.0)), [(1.0, 1.0, 3.0, 3.0, 3.0), (2.0,)]),
        (Column((1.0, 2.0, 3.0, 4.0, 5.0, 6.0), "token"), [(1.0, 2.0, 4.0, 5.0, 6.0), (3.0,)]),
    ],
)
def test_an_advantage_reaches_the_tokens_of_its_turn_in_every_segment(
    advantage: Any, expected: Any
) -> None:
    items = [TrainItem(two_segments(), 1.0), TrainItem(two_segments("g/1"), 0.0)]
    packed = pack(items, [advantage, -1.0])
    assert [row.row_id for row in packed.rows] == [
        ("g/0", 0), ("g/0", 1), ("g/1", 0), ("g/1", 1),
    ]  # fmt: skip
    assert [row.over_tokens("advantage") for row in packed.rows[:2]] == expected
    # A rollout weighs as one, however many segments it has.
    assert {row.columns["weight"].values[0] for row in packed.rows} == {1 / 2 / 6}
    BatchCheck(str, Tolerance(1.0, 1.0)).begin(make_groups(items), packed)


def test_each_segment_has_a_ratio_of_its_own_where_a_sequence_has_one() -> None:
    """As GSPO's, and the condition of LLDS: both read the rows of `segment_N`."""
    items = [TrainItem(two_segments(), 1.0), TrainItem(two_segments("g/1"), 0.0)]
    packed = pack(items, [1.0, -1.0])
    (batch,) = micro_batches(packed.groups, 10**6, torch.device("cpu"))
    owners = batch.segment_N.tolist()
    assert sorted(owners.count(one) for one in set(owners)) == [1, 1, 5, 5]
    whole = batch.rollout_N.tolist()  # a loss may have both
    assert sorted(whole.count(one) for one in set(whole)) == [6, 6]
    assert {len({w for o, w in zip(owners, whole, strict=True) if o == one}) for one in owners} == {
        1
    }


def test_columns_come_in_the_order_of_turns_whatever_their_length() -> None:
    """Segments [t0, t2] and [t1] with tokens 1, 2, 1: columns were told apart by their lengths."""
    items = [TrainItem(forked("g/0", [11], [21, 22], [12]), 1.0, is_cut=True)]
    for per, values, expected in (
        ("turn", [0.1, 0.2, 0.3], [(0.1, 0.3), (0.2, 0.2)]),
        ("token", [0.1, 0.2, 0.3, 0.4], [(0.1, 0.4), (0.2, 0.3)]),
    ):
        packed = pack(items, [Column(values, per)])
        assert [row.over_tokens("advantage") for row in packed.rows] == expected


@pytest.mark.parametrize("per_token", [False, True])
def test_what_follows_a_cut_is_seen_where_the_last_turn_was_asked(
    micro_model: Path, per_token: bool
) -> None:
    """The value was taken at the end of the last segment of the record; that was asked before."""
    made = two_segments()
    made.append_env([102, 103])
    first, second = made.segments
    policy = make_policy(micro_model)
    learner = make_learner(policy, actor_critic(per_token=per_token, looks_ahead=False))
    assert learner.critic is not None
    torch.nn.init.normal_(learner.critic[0].weight)  # type: ignore[index, arg-type]
    groups = make_groups([TrainItem(made, 1.0, is_cut=True)])
    with learner.computing():
        known = before_update.look(learner, groups, learner.algorithm, learner.critic)
        (reading,) = before_update.read(learner, [Probe(made, len(second), (31,), 1)])
    assert known.values is not None and known.end_values is not None
    with torch.no_grad():
        decode = policy.base_model.get_decoder()
        states = [decode(torch.tensor([one.ids])).last_hidden_state[0] for one in (first, second)]
        one, other = (learner.critic(state.float()).tolist() for state in states)
        behind = torch.tensor([[*second.ids, 31]])
        wanted = torch.tensor([[False] * len(second) + [True]])
        told = token_logps(policy, behind, wanted).item()
    # Turn 0 is in the first segment, 1 in the second, 2 in the first again.
    tokens, turns = [*one[2:4], other[5], *one[5:8]], [one[2], other[5], one[5]]
    assert known.values[0].values == pytest.approx(tokens if per_token else turns, abs=1e-5)
    assert known.end_values[0] == pytest.approx(one[-1], abs=1e-5)
    assert reading.logps == pytest.approx([told], abs=1e-5)  # behind its own segment alone


def test_points_and_weights_of_segments_are_those_of_the_rollout() -> None:
    items = [TrainItem(segment("g/1", PROMPT, [31]), 0.0), TrainItem(two_segments(), 1.0)]
    watched = replace(
        actor_critic(), terms=["hold"], advantages=lambda step: [0.0, Column((1.0, 1.0, -1.0))],
        columns=lambda step: {"hold": [1.0, Column((1.0, 1.0, 0.0))]},
    )  # fmt: skip
    packed = pack_step(make_groups(items), watched, LossSettings())
    (batch,) = micro_batches(packed.groups, 10**6, torch.device("cpu"), is_packed=True)
    # The first tokens of turns of one, two, three and one token.
    assert batch.first_N.tolist() == [0, 1, 1, 3, 3, 3, 6]
    # The term holds three tokens of one rollout, in two segments, and one of the other.
    held = [list(row.over_tokens("hold")) for row in packed.rows]
    assert held == [[1 / 2], [1 / 6, 1 / 6, 0.0, 0.0, 0.0], [1 / 6]]


def test_a_step_on_segments_has_the_gradient_of_each_of_them_alone(micro_model: Path) -> None:
    """Beside a rollout of one segment; the same as three rollouts with the weights of two."""
    policy = make_policy(micro_model)
    other = segment("g/1", PROMPT, [31, 32])
    joined = [TrainItem(two_segments(), 1.0), TrainItem(other, 0.0)]
    parts = [
        segment("g/0", PROMPT, [11, 12], [101], [13, 14, 15]),
        segment("g/0b", [*PROMPT, 11, 12, 102], [21]),
    ]
    alone = [*(TrainItem(one, 1.0) for one in parts), TrainItem(other, 0.0)]
    for reduction, factor in (("token-mean", 1.0), ("constant", 3 / 2)):
        learner = make_learner(policy)
        learner.loss_settings = replace(learner.loss_settings, reduction=reduction)
        learner.algorithm = replace(
            learner.algorithm, advantages=lambda s: [2 * one - 1 for one in s.rewards]
        )
        (whole,), (split,) = (caught_gradients(learner, items) for items in (joined, alone))
        assert is_close(whole, factor * split, 1e-6)
    learned = make_learner(policy).train_step(make_groups(joined))
    assert [len(learned.tokens["g/0", number].ratio) for number in range(2)] == [5, 1]
    assert learned.metrics["num_rollouts"] == 2
