"""Advantages per rollout, per turn and per token: one column, one loss, and no wrong length."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from engine_toy import make_learner, make_trajectory, pack_items, play
from hypothesis import given, settings
from hypothesis import strategies as st

from searchrl.algorithms.builtin import make_grpo
from searchrl.algorithms.record import Algorithm
from searchrl.core.advantage import Column, StepScores, dr_grpo_advantages
from searchrl.core.group import Group, TrainItem, make_groups
from searchrl.core.loss import LossSettings, Reduction, loss_columns, ppo_clip_loss
from searchrl.core.trajectory import TurnStop
from searchrl.engine.learning.batches import MicroBatch, _packs, micro_batches
from searchrl.engine.learning.packing import PackedStep, pack_step
from searchrl.engine.model.layout import TokenRow, TokenTree
from searchrl.engine.model.policy import Policy
from searchrl.engine.rollout.records import rollout_record
from searchrl.engine.rollout.rollout import Rollout
from searchrl.errors import PluginError

CPU = torch.device("cpu")


def make_item(name: str, turns: Sequence[int], reward: float | None = 1.0) -> TrainItem:
    """A rollout of `turns` tokens each, with an observation after every turn but the last."""
    parts: list[Any] = []
    for number, length in enumerate(turns):
        parts += [[7, 7, 7]] if number else []
        parts += [([3] * length, [-1.0 - number] * length)]
    return TrainItem(make_trajectory(name, "g", [1, 2], *parts), reward)


def algorithm(advantages: Callable[[StepScores], Any]) -> Algorithm:
    return Algorithm("mine", advantages, make_grpo().loss)


def pack(items: Sequence[TrainItem], values: Any) -> list[MicroBatch]:
    packed = pack_items(items, lambda _: values, Reduction.SEQUENCE_MEAN)
    return list(micro_batches(packed.groups, 64, CPU))


def loss_and_gradient(batches: Sequence[MicroBatch]) -> tuple[float, list[float]]:
    """The loss of the step and its derivative after every trained log-prob."""
    total, gradients = 0.0, []
    for batch in batches:
        old = batch["sampler_logp"]
        logp = (old + 0.1 * torch.sin(torch.arange(len(old)))).requires_grad_()
        columns = loss_columns(logp, old, batch["advantage"], batch["weight"])
        loss, _ = ppo_clip_loss(columns, LossSettings(clip_low=0.05))
        loss.backward()
        total += float(loss.detach())
        gradients += logp.grad.tolist()
    return total, gradients


ROLLOUTS = st.lists(
    st.tuples(
        st.floats(-3, 3, width=32), st.lists(st.integers(1, 6), min_size=1, max_size=4)
    ),
    min_size=1,
    max_size=5,
)  # fmt: skip


@settings(max_examples=30)
@given(ROLLOUTS)
def test_a_constant_per_turn_or_per_token_is_the_number_itself(
    rollouts: list[tuple[float, list[int]]],
):
    items = [make_item(f"r{i}", turns) for i, (_, turns) in enumerate(rollouts)]
    per_rollout = [value for value, _ in rollouts]
    per_turn: list[Any] = [Column([value] * len(turns)) for value, turns in rollouts]
    per_token = [Column(torch.full((sum(t),), value).tolist(), "token") for value, t in rollouts]
    expected = loss_and_gradient(pack(items, per_rollout))
    assert loss_and_gradient(pack(items, per_turn)) == expected
    assert loss_and_gradient(pack(items, per_token)) == expected
    assert loss_and_gradient(pack(items, [*per_turn[:1], *per_rollout[1:]])) == expected


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.randoms())
def test_every_token_gets_the_advantage_of_its_turn(turns: list[int], random: Any):
    values = [random.uniform(-1, 1) for _ in turns]
    (batch,) = pack([make_item("r", turns)], [Column(values)])
    given_to = batch["advantage"].tolist()
    expected = [value for value, n in zip(values, turns, strict=True) for _ in range(n)]
    assert given_to == pytest.approx(expected)
    spread = [random.uniform(-1, 1) for _ in range(sum(turns))]
    (batch,) = pack([make_item("r", turns)], [Column(spread, "token")])
    assert batch["advantage"].tolist() == pytest.approx(spread)


def test_a_token_without_a_sampler_logprob_shifts_no_other_advantage_and_weighs_nothing():
    item = make_item("r", [1])
    item.trajectory.append_env([7])
    logps = [float("nan"), -1.0, -1.0]
    item.trajectory.append_model([3, 3, 3], logps, version=0, reason=TurnStop.EOS)
    for values in (Column([0.5, 2.0]), Column([0.5, 9.0, 2.0, 2.0], "token")):
        (batch,) = pack([item], [values])
        assert batch["advantage"].tolist() == [0.5, 2.0, 2.0]
        assert batch["weight"].tolist() == pytest.approx([1 / 3] * 3), "nor is in the denominator"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([Column([1.0, 2.0, 3.0]), 0.0], r"3 advantages for r0; expected 2, one per turn"),
        ([Column([1.0, 2.0], "token"), 0.0], r"2 advantages for r0; expected 5, one per token"),
        ([[1.0, 2.0], 0.0], r"the advantage of r0 is \[1.0, 2.0\]; expected .* a Column"),
        ([0.0], r"expected 2 advantages, one per rollout, got 1"),
        (0.0, r"expected 2 advantages, one per rollout, got float"),
        ([0.0, None], r"the advantage of r1 is None"),
        ([0.0, Column([1.0, "x"])], r"the advantage of r1 is 'x'"),
        ([0.0, Column([1.0, float("nan")])], r"the advantage of r1 is nan"),
        ([float("inf"), 0.0], r"the advantage of r0 is inf"),
    ],
)  # fmt: skip
def test_advantages_that_fit_no_rollout_name_the_algorithm(
    policy: Policy, values: Any, message: str
):
    items = [make_item("r0", [2, 3]), make_item("r1", [1, 4])]
    learner = make_learner(policy, algorithm(lambda _: values))
    with pytest.raises(PluginError, match=f"algorithm 'mine': {message}"):
        learner.train_step(make_groups(items))


def test_what_stands_for_an_unscored_rollout_is_never_read():
    items = [make_item("r0", [2, 3]), make_item("r1", [1, 4], None)]
    (batch,) = pack(items, [1.0, Column([float("nan")] * 9)])
    assert batch.row_ids == (("r0", 0),)


def test_an_algorithm_sees_the_rollouts_themselves():
    seen: list[StepScores] = []

    def advantages(step: StepScores) -> list[Column]:
        seen.append(step)
        sizes = zip(step.rewards, step.turn_sizes, strict=True)
        return [Column([reward] * len(own)) for reward, own in sizes]

    items = [make_item("r0", [2, 3]), replace(make_item("r1", [6], 0.0), turn_scores=(0.5,))]
    pack_items(items, advantages)
    assert seen[0].turn_sizes == [[2, 3], [6]] and seen[0].rollouts == items
    trajectory = items[0].trajectory
    keys = [trajectory.seen_before(turn) for turn in trajectory.turns]
    assert keys[0] == items[1].trajectory.seen_before(items[1].trajectory.turns[0]) != keys[1]


def test_a_branch_earns_what_its_own_turns_earn():
    """The turns that it kept earned the rest of its reward, which went to its last turn, too."""

    class Branch(TrainItem):
        turn_rewards = (0.25, 0.5)  # type: ignore[assignment]

    seen: list[StepScores] = []
    one = make_item("r0", [2, 3])
    pack_items([Branch(one.trajectory, 1.0)], lambda step: seen.append(step) or [0.0])
    assert seen[0].turn_rewards == [(0.25, 0.5)]


@pytest.fixture
def rollouts(policy: Policy, toy_world: Any) -> list[Rollout]:
    world = toy_world(reward="parity", protocol="short-stops", retriever="random", max_turns=3)
    return play(policy, world)


def test_record_shows_a_number_as_a_number_and_turns_as_a_column(
    policy: Policy, rollouts: list[Rollout]
):
    def mixed(step: StepScores) -> list[Any]:
        counts = map(len, step.turn_sizes)
        return [0.5 if i % 2 else Column(range(1, n + 1)) for i, n in enumerate(counts)]

    items = [TrainItem(r.trajectory, r.scored.reward) for r in rollouts]
    learner = make_learner(policy, algorithm(mixed), micro_batch_tokens=400)
    columns = learner.train_step(make_groups(items)).tokens
    for number, rollout in enumerate(rollouts):
        seen = columns[rollout.trajectory.rollout_id, 0]
        row = json.loads(json.dumps(rollout_record(rollout, "train", columns), allow_nan=False))
        if number % 2:
            assert row["advantage"] == 0.5
            continue
        expected = [
            turn + 1.0 if author == "M" else None
            for turn, author in zip(row["turn"], row["authors"], strict=True)
        ]
        assert row["advantage"] == expected
        assert len(seen.advantage) == len(seen.ratio)  # type: ignore[arg-type]


def pack_groups(groups: Any, reduction: Reduction = Reduction.TOKEN_MEAN) -> PackedStep:
    settings = LossSettings(reduction=reduction)
    return pack_step(groups, algorithm(dr_grpo_advantages), settings, constant=1)


def test_the_group_decides_who_is_compared_not_where_a_trajectory_came_from():
    """A replayed rollout that `extend` puts into a group keeps the id of the group it is from."""
    fresh, replayed = make_item("fresh", [2], 0.0), make_item("replayed", [3], 1.0)
    replayed.trajectory.group_id = "an older step"
    step = pack_groups([Group("g", (fresh, replayed))], Reduction.SEQUENCE_MEAN)
    values = {row.rollout_id: row.columns["advantage"].values for row in step.rows}
    assert values == {"fresh": [-0.5], "replayed": [0.5]}
    assert (step.num_groups, len(step.groups)) == (1, 1)
    empty = pack_groups([Group("g", (fresh, replayed)), Group("none left", ())])
    assert (empty.num_groups, len(empty.groups)) == (1, 1)


@pytest.mark.parametrize(
    ("second", "match"),
    [
        (Group("g", ()), "2 groups of this step have the id 'g'.*into one group"),
        (Group("h", (make_item("r0", [2]),)), "2 rollouts .*'r0': give a copy a rollout_id"),
    ],
)
def test_one_id_for_two_groups_or_rollouts_is_refused(second: Group[TrainItem], match: str):
    with pytest.raises(ValueError, match=match):
        pack_groups([Group("g", (make_item("r0", [2]),)), second])


def test_an_extension_that_returns_no_groups_is_the_algorithms_fault():
    with pytest.raises(PluginError, match=r"'mine': its extend\(\) returned a list among"):
        pack_groups([[make_item("r0", [2])]])


def test_every_part_of_a_group_counts_what_its_rows_share_once() -> None:
    def make(kind: int, number: int) -> Any:
        return TokenRow([1, 2, 3, 4, kind, number, 0, 0, 0, 0], [False] * 4 + [True] * 6)

    # Rows of a kind share a token more than their prompt.
    group = Group("g", tuple(make(kind, number) for number in range(10, 14) for kind in (5, 6)))
    for limit, sizes in ((13, [13] * 4), (21, [21, 21]), (30, [30, 13])):
        parts = [[row for row, _ in part] for part in _packs([group], limit)]
        assert [TokenTree(part).num_tokens for part in parts] == sizes
