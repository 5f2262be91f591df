"""Branches: what is kept is played again, recorded once and trained once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from engine_toy import LIMITS, caught_step, make_learner

from searchrl.core.episode import FailureKind
from searchrl.core.group import Group
from searchrl.core.trajectory import Author
from searchrl.engine.model.policy import Policy
from searchrl.engine.rollout.branches import grow
from searchrl.engine.rollout.dialogue import RolloutRequest
from searchrl.engine.rollout.rollout import Rollout, RolloutDriver
from searchrl.engine.sampling.generator import Sampling
from searchrl.engine.sampling.slot_generator import SlotGenerator
from searchrl.errors import PluginError

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


def test_every_sampled_token_is_trained_once_and_the_trie_has_the_gradient_of_rows(
    policy: Policy, short_world: Any
) -> None:
    groups = grown(policy, short_world)
    items = [one for group in groups for one in group.rollouts]
    learner = make_learner(policy, is_packed=True)
    (packed,), stats = caught_step(learner, items)
    trained = [one for one in items if one.is_scored]
    assert stats["num_tokens"] == sum(one.trajectory.num_model_tokens for one in trained)
    (plain,), _ = caught_step(make_learner(policy, is_packed=False), items)
    assert torch.allclose(packed, plain, atol=1e-6)


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


@pytest.mark.parametrize("num_kept", [-1, 99])
def test_turns_that_a_rollout_does_not_own_cannot_be_kept(
    policy: Policy, short_world: Any, num_kept: int
) -> None:
    def ask(groups: Groups, number: int) -> list[tuple[Rollout, int]]:
        return [(groups[0].rollouts[0], num_kept)]

    with pytest.raises(PluginError, match=r"keeps -?\d+ turns of g0/0"):
        grown(policy, short_world, ask)
