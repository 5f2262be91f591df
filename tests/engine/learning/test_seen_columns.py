"""What an update hands on of every token: its weight in the loss, and whether it was clipped."""

from __future__ import annotations

from pathlib import Path

import pytest
from packed_toy import make_items, make_learner, make_policy

from searchrl.algorithms.builtin import make_cispo, make_grpo
from searchrl.core.group import make_groups
from searchrl.core.trajectory import TokenColumns
from searchrl.engine.learning.learner import Learner


def seen_by(learner: Learner) -> tuple[dict[str, TokenColumns], dict[str, float]]:
    learned = learner.train_step(make_groups(make_items()))
    return learned.tokens, learned.metrics


@pytest.mark.parametrize("is_packed", [True, False])
def test_clipped_are_the_tokens_outside_the_band_on_the_side_of_their_advantage(
    micro_model: Path, is_packed: bool
):
    # The items were sampled by nobody: their ratios are far from 1.
    learner = make_learner(make_policy(micro_model), clip=0.2, is_packed=is_packed)
    columns, stats = seen_by(learner)
    num_clipped = 0
    for seen in columns.values():
        assert isinstance(seen.advantage, float) and seen.clipped is not None
        expected = [
            place
            for place, ratio in enumerate(seen.ratio)
            if (seen.advantage > 0 and ratio > 1.2) or (seen.advantage < 0 and ratio < 0.8)
        ]
        assert list(seen.clipped) == expected
        num_clipped += len(expected)
    assert 0 < num_clipped == round(stats["clip_frac"] * stats["num_tokens"])


def test_a_loss_without_a_clip_has_none(micro_model: Path):
    columns, _ = seen_by(make_learner(make_policy(micro_model), algorithm=make_cispo()))
    assert columns and {seen.clipped for seen in columns.values()} == {None}


def test_the_weights_of_a_step_add_up_to_one(micro_model: Path):
    columns, _ = seen_by(make_learner(make_policy(micro_model), algorithm=make_grpo()))
    total = sum(seen.weight * len(seen.ratio) for seen in columns.values())
    assert total == pytest.approx(1.0)


def test_every_mini_batch_hands_on_its_tokens_once(micro_model: Path):
    learner = make_learner(make_policy(micro_model), mini_batches=2, epochs=2)
    groups = make_groups(make_items())
    seen = learner.train_step(groups).tokens
    # A group of one rollout is dead, and one of "a" has no token.
    live = [one for group in groups if group.id != "c" for one in group.rollouts]
    assert sorted(seen) == sorted(
        one.trajectory.rollout_id for one in live if one.trajectory.num_model_tokens
    )
