"""Branches: what is kept is played again, recorded once and trained once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_toy import LIMITS, make_trajectory
from packed_toy import caught_gradients, is_close, make_learner, make_policy

from searchrl.algorithms.builtin import make_grpo
from searchrl.algorithms.record import Algorithm
from searchrl.core.advantage import Column, StepScores
from searchrl.core.episode import FailureKind, Passage
from searchrl.core.group import Group, TrainItem, make_groups
from searchrl.core.reduction import LossSettings
from searchrl.core.trajectory import Author
from searchrl.engine.learning.batch_check import BatchCheck
from searchrl.engine.learning.packing import pack_step
from searchrl.engine.model.policy import Policy
from searchrl.engine.model.tolerance import Tolerance
from searchrl.engine.rollout.branches import grow
from searchrl.engine.rollout.dialogue import RolloutRequest
from searchrl.engine.rollout.rollout import Rollout, RolloutDriver
from searchrl.engine.sampling.generator import Sampling
from searchrl.engine.sampling.slot_generator import SlotGenerator
from searchrl.errors import PluginError
from searchrl.retrieval.ablations import RandomRetriever

Groups = Sequence[Group[Rollout]]


def branch_all(groups: Groups, number: int) -> list[tuple[Rollout, int]]:
    """Behind the first turn of each rollout that has two of its own; in two rounds."""
    return [
        (one, one.trajectory.num_kept + 1)
        for group in groups
        for one in group.rollouts
        if number < 2 and len(one.trajectory.turns) > 1 and one.is_scored
    ]


def grown(policy: Policy, world: Any, ask: Any = branch_all) -> list[Group[Rollout]]:
    driver = RolloutDriver(
        SlotGenerator(policy, Sampling(1.0), num_slots=4), policy.renderer, LIMITS
    )
    requests = [RolloutRequest(f"g{n}", world, "train", n, (10 * n, 10 * n + 1)) for n in range(2)]
    return grow(driver, driver.run(requests), requests, ask)


def test_a_branch_goes_on_behind_the_kept_turns_and_owns_only_its_tokens(
    policy: Policy, short_world: Any
) -> None:
    groups = grown(policy, short_world)
    by_id = {one.trajectory.rollout_id: one for group in groups for one in group.rollouts}
    branches = [one for one in by_id.values() if one.trajectory.parent]
    assert len(branches) > 4 and len({one.trajectory.num_kept for one in branches}) > 1
    for one in branches:
        trajectory, parent = one.trajectory, by_id[one.trajectory.parent]
        kept = trajectory.num_kept
        assert one.episode.turns[:kept] == parent.episode.turns[:kept]
        prompt = trajectory.segments[0].prompt
        assert prompt == list(parent.trajectory.ids[: len(prompt)])
        written = [author for author in trajectory.authors if author is Author.MODEL]
        assert len(written) == trajectory.num_model_tokens == one.episode.num_model_tokens
        assert len(one.episode.turns) == kept + len(trajectory.turns)
        assert len(one.turn_rewards) == len(trajectory.turns)
    again = [one.trajectory for group in grown(policy, short_world) for one in group.rollouts]
    assert {one.rollout_id: one.ids for one in again} == {
        name: one.trajectory.ids for name, one in by_id.items()
    }


def test_each_token_that_was_sampled_is_trained_once_in_the_context_it_had(
    policy: Policy, short_world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed: dict[Any, list[int]] = {}
    sampled: Counter[tuple[tuple[int, ...], tuple[int, ...]]] = Counter()
    real_open, real_submit, real_poll = SlotGenerator.open, SlotGenerator.submit, SlotGenerator.poll

    def opened(self: Any, prompt: Sequence[int], *rest: Any, **more: Any) -> Any:
        handles = real_open(self, prompt, *rest, **more)
        fed.update((handle, [*prompt]) for handle in handles)
        return handles

    def submitted(self: Any, handle: Any, ids: Sequence[int], *rest: Any) -> None:
        fed[handle] += ids
        real_submit(self, handle, ids, *rest)

    def polled(self: Any) -> Any:
        turns = real_poll(self)
        for turn in turns:
            sampled[tuple(fed[turn.handle]), turn.ids] += 1
            fed[turn.handle] += turn.ids
        return turns

    for name, one in (("open", opened), ("submit", submitted), ("poll", polled)):
        monkeypatch.setattr(SlotGenerator, name, one)
    groups = grown(policy, short_world)
    assert all(one.is_scored for group in groups for one in group.rollouts)
    packed = pack_step(groups, make_grpo(), LossSettings(beta=1.0))
    trained: Counter[tuple[tuple[int, ...], tuple[int, ...]]] = Counter()
    for row in packed.rows:
        bounds = [n for n in range(1, len(row.mask)) if row.mask[n] != row.mask[n - 1]]
        bounds += [len(row.mask)] * (len(bounds) % 2)
        for start, stop in zip(bounds[::2], bounds[1::2], strict=True):
            trained[tuple(row.ids[:start]), tuple(row.ids[start:stop])] += 1
        # A branch weighs as one rollout, however many turns it kept.
        weights = row.over_tokens("weight")
        assert sum(weights) == pytest.approx(1 / len(packed.rows)) and len({*weights}) == 1
    assert trained == sampled


def path_of(by_id: dict[str, Rollout], leaf: Rollout) -> list[tuple[str, int, int, list[Any]]]:
    """Each turn of an episode: who sampled it, its number there, its start and its log-probs."""
    own, name = leaf.trajectory, leaf.trajectory.rollout_id
    above = path_of(by_id, by_id[own.parent])[: own.num_kept] if own.parent else []
    logps = own.segments[0].logps
    return above + [(name, t.index, t.start, logps[t.start : t.stop]) for t in own.turns]


def test_a_shared_turn_trained_once_for_its_leaves_has_the_gradient_of_once_per_leaf(
    micro_model: Path, short_world: Any
) -> None:
    """With the sum over the leaves: the mean of Tree-GRPO, times their number."""
    policy = make_policy(micro_model)
    rollouts = [one for group in grown(policy, short_world) for one in group.rollouts]
    by_id = {one.trajectory.rollout_id: one for one in rollouts}
    sums, copies = Counter[tuple[str, int]](), []
    for leaf in rollouts:
        ids, at, parts = leaf.trajectory.segments[0].ids, 0, list[Any]()
        for owner, number, start, logps in path_of(by_id, leaf):
            sums[owner, number] += leaf.reward - 0.25
            parts += [ids[at:start], (ids[start : start + len(logps)], logps)]
            at = start + len(logps)
        copy = make_trajectory(leaf.trajectory.rollout_id, leaf.trajectory.group_id, *parts)
        copies.append(TrainItem(copy, leaf.reward))

    def of_sums(step: StepScores) -> list[Column]:
        named = [(one.trajectory.rollout_id, one.trajectory.turns) for one in rollouts]
        return [Column([sums[name, turn.index] for turn in turns]) for name, turns in named]

    def gradient(advantages: Any, items: Sequence[Any], is_packed: bool) -> torch.Tensor:
        algorithm = Algorithm("mine", advantages, make_grpo().loss, "constant", beta=0.0)
        (made,) = caught_gradients(make_learner(policy, algorithm, is_packed=is_packed), items)
        return made

    per_leaf = gradient(lambda step: [one - 0.25 for one in step.rewards], copies, False)
    for is_packed in (False, True):
        assert is_close(gradient(of_sums, rollouts, is_packed), per_leaf, 1e-9)


def test_branches_of_an_unscored_rollout_are_compared_with_its_prompt(
    policy: Policy, short_world: Any
) -> None:
    items = [
        TrainItem(one.trajectory, one.reward if one.trajectory.parent else None)
        for group in grown(policy, short_world)
        for one in group.rollouts
    ]
    assert any(item.reward is not None for item in items)
    groups = make_groups(items)
    packed = pack_step(groups, make_grpo(), LossSettings())
    BatchCheck(str, Tolerance(1.0, 1.0)).begin(groups, packed)


def test_an_environment_that_replies_otherwise_fails_the_branch(
    policy: Policy, toy_world: Any
) -> None:
    world = toy_world("toy-faulty", fault="reply-varies", protocol="short-stops", max_turns=3)
    rollouts = [one for group in grown(policy, world) for one in group.rollouts]
    failures = [one.episode.failure for one in rollouts if one.trajectory.parent]
    assert failures
    for failure in failures:
        assert failure is not None and failure.kind is FailureKind.ENVIRONMENT
        assert "turn 1 was played again" in failure.message


def test_searches_that_are_recorded_can_branch_though_the_engine_changes(
    policy: Policy, toy_world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = count()

    def search(self: Any, queries: Sequence[str], k: int) -> list[list[Passage]]:
        return [[Passage("a", f"found {next(numbers)}")] for _ in queries]

    monkeypatch.setattr(RandomRetriever, "search", search)
    recorded = {"name": "recorded", "inner": "random", "file": str(tmp_path / "found.sqlite")}
    for retriever, is_good in (("random", False), (recorded, True)):
        world = toy_world(protocol="short-stops", retriever=retriever, reward="parity")
        branches = [
            one
            for group in grown(policy, world)
            for one in group.rollouts
            if one.trajectory.parent and one.episode.turns[0].passages
        ]
        assert branches and is_good == all(one.episode.failure is None for one in branches)


@pytest.mark.parametrize("num_kept", [-1, 99])
def test_turns_that_a_rollout_does_not_own_cannot_be_kept(
    policy: Policy, short_world: Any, num_kept: int
) -> None:
    def ask(groups: Groups, number: int) -> list[tuple[Rollout, int]]:
        return [(groups[0].rollouts[0], num_kept)]

    with pytest.raises(PluginError, match=r"keeps -?\d+ turns of g0/0"):
        grown(policy, short_world, ask)
