"""What the trainer sees before the first update: the gap to the sampler, good rollouts."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from packed_toy import make_items, make_learner, make_policy, with_own_logps

from searchrl.algorithms.builtin import make_cispo, make_grpo
from searchrl.core.group import make_groups
from searchrl.core.trajectory import RowId, TokenColumns
from searchrl.engine.learning.learner import Learner
from searchrl.engine.learning.sampled import SampledTokens


def test_the_figures_are_those_of_a_computation_by_hand() -> None:
    logp = torch.tensor([-1.0, -2.0, -3.0, -4.0, float("nan"), -9.0])
    sampler = torch.tensor([-1.1, -2.0, -2.8, -4.0, -1.0, -1.0])
    adv = torch.tensor([1.0, 1.0, -1.0, -1.0, 1.0, 1.0])
    weight = torch.tensor([0.1, 0.1, 0.1, 0.1, 0.1, 0.0])
    means = SampledTokens.measure(logp, sampler, adv, weight).means()
    assert means["mismatch"] == pytest.approx((0.1 + 0.2) / 4, rel=1e-5)
    k3 = (math.expm1(0.1) - 0.1 + math.expm1(-0.2) + 0.2) / 4
    assert means["mismatch_k3"] == pytest.approx(k3, rel=1e-4)
    assert means["good_logp"] == pytest.approx((-1.1 - 2.0) / 2, rel=1e-5)
    is_own = torch.tensor([False, True, True, True, False, True])
    own = SampledTokens.measure(logp, sampler, adv, weight, is_own)
    assert own.means()["mismatch"] == pytest.approx(0.2 / 3, rel=1e-5)
    assert own.max_gap == pytest.approx(0.2, rel=1e-5), "what nobody compares is no gap"
    assert own.means()["good_logp"] == means["good_logp"], "whoever sampled them"
    assert SampledTokens.measure(*(column[:0] for column in (logp, sampler, adv, weight))) == (
        SampledTokens()
    )


def test_parts_add_up_and_what_was_not_measured_is_absent() -> None:
    column = torch.linspace(-2, -0.1, 8)
    args = (column, column - 0.01, torch.ones(8), torch.ones(8))
    halves = [SampledTokens.measure(*(a[part] for a in args)) for part in (slice(4), slice(4, 8))]
    both, whole = (halves[0] + halves[1]).means(), SampledTokens.measure(*args).means()
    assert both == pytest.approx(whole, rel=1e-5)
    assert SampledTokens().means() == {}
    dead = SampledTokens.measure(column, column, torch.zeros(8), torch.ones(8)).means()
    assert "good_logp" not in dead and dead["mismatch"] == 0.0


@pytest.mark.parametrize("updates", [{}, {"epochs": 2, "mini_batches": 2}])
def test_a_step_measures_it_before_its_first_update(micro_model: Path, updates: dict[str, int]):
    """With the trainer's own log-probs as the record it is rounding, however far updates move."""
    policy = make_policy(micro_model)
    learner = make_learner(policy, lr=0.05, **updates)
    items = with_own_logps(policy, make_items())
    stats = learner.train_step(make_groups(items)).metrics
    assert stats["mismatch"] < 1e-6 and stats["mismatch_k3"] < 1e-9
    assert stats["good_logp"] < 0
    if updates:
        assert stats["max_abs_log_ratio"] > 1e-3, "the updates did move"


def seen_by(learner: Learner) -> tuple[dict[RowId, TokenColumns], dict[str, float]]:
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
    columns, stats = seen_by(make_learner(make_policy(micro_model), algorithm=make_grpo()))
    entropy = sum(sum(seen.entropy) for seen in columns.values())
    assert entropy / stats["num_tokens"] == pytest.approx(stats["entropy"])
    total = sum(seen.weight * len(seen.ratio) for seen in columns.values())
    assert total == pytest.approx(1.0)


def test_what_was_seen_of_tokens_is_of_the_first_epoch(micro_model: Path):
    once, twice = (
        seen_by(make_learner(make_policy(micro_model), epochs=epochs, lr=0.05))[0]
        for epochs in (1, 2)
    )
    assert once == twice
