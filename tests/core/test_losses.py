"""GSPO, CISPO, TIS, masked TIS and LLDS: hand numbers, ratio 1, differences, splits, bad numbers.

Hand numbers are arithmetic on the ratios that the columns were made from. Every token weighs the
same unless said otherwise.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_columns import random_step
from torch import Tensor

from searchrl.core.columns import LOG_RATIO_MAX
from searchrl.core.loss import LossStats, Reduction, ppo_clip_loss
from searchrl.core.losses import cispo_loss, gspo_loss, llds_loss, masked_tis_loss, tis_loss

LossFn = Callable[..., tuple[Tensor, LossStats]]
NAN, INF = math.nan, math.inf
F64 = torch.float64

LOSSES: dict[str, LossFn] = {
    "ppo_clip": ppo_clip_loss,
    # Wide enough that not every rollout of the random steps is clipped.
    "gspo": functools.partial(gspo_loss, clip_low=0.1, clip_high=0.1),
    "cispo": functools.partial(cispo_loss, clip_high=0.3),
    "tis": functools.partial(tis_loss, cap=1.2),
    "masked_tis": functools.partial(masked_tis_loss, low=0.8, high=1.25),
    "llds": functools.partial(llds_loss, coefficient=0.3),
}
every_loss = pytest.mark.parametrize("name", LOSSES)
fewer = settings(max_examples=settings().max_examples // 5)


@dataclass(frozen=True)
class Step:
    """The columns of a loss; `sampler_logp_T` and `rollout_T` always given."""

    logp_T: Tensor
    old_logp_T: Tensor
    adv_T: Tensor
    mask_T: Tensor
    weight_T: Tensor
    ref_logp_T: Tensor
    sampler_logp_T: Tensor
    rollout_T: Tensor

    def take(self, index: Any) -> Step:
        return Step(**{f.name: getattr(self, f.name)[index] for f in fields(self)})


def hand(
    ratios: list[float],
    advantages: list[float],
    *,
    rollouts: list[int] | None = None,
    sampler_ratios: list[float] | None = None,
) -> Step:
    """Tokens of given pi / old, advantage, rollout and old / sampler; weight 1 / N, old_logp -2."""
    n = len(ratios)
    old_logp_T = torch.full((n,), -2.0, dtype=F64)
    return Step(
        logp_T=old_logp_T + torch.tensor(ratios, dtype=F64).log(),
        old_logp_T=old_logp_T,
        adv_T=torch.tensor(advantages, dtype=F64),
        mask_T=torch.ones(n, dtype=torch.bool),
        weight_T=torch.full((n,), 1 / max(n, 1), dtype=F64),
        ref_logp_T=old_logp_T,
        sampler_logp_T=old_logp_T - torch.tensor(sampler_ratios or [1.0] * n, dtype=F64).log(),
        rollout_T=torch.tensor(rollouts or [0] * n, dtype=torch.long),
    )


def random_losses_step(seed: int, reduction: Reduction = Reduction.SEQUENCE_MEAN) -> Step:
    """The six rollouts of `random_step`, at arbitrary numbers, with a sampler that disagrees."""
    columns, spans = random_step(seed, reduction)
    rng = torch.Generator().manual_seed(seed + 1000)
    noise_T = 0.3 * torch.randn(len(columns.logp_T), generator=rng, dtype=F64)
    labels = [label for label, span in zip((7, 3, 11, 0, 5, 2), spans, strict=True) for _ in span]
    return Step(
        **{f.name: getattr(columns, f.name) for f in fields(columns)},
        sampler_logp_T=columns.old_logp_T - noise_T,
        rollout_T=torch.tensor(labels),
    )


def run(loss_fn: LossFn, step: Step, **knobs: float) -> tuple[Tensor, Tensor, LossStats]:
    """Loss, its gradient in logp_T, statistics."""
    columns = {f.name: getattr(step, f.name) for f in fields(step)}
    logp_T = columns.pop("logp_T").detach().clone().requires_grad_()
    if not knobs.get("beta"):
        columns.pop("ref_logp_T")
    loss, stats = loss_fn(logp_T, **columns, **knobs)
    (gradient_T,) = torch.autograd.grad(loss, logp_T)
    return loss.detach(), gradient_T, stats


# --- hand numbers --------------------------------------------------------------------------------


def test_gspo_by_hand() -> None:
    """Ratios 2 and 1/2 cancel within their rollout; 1.21 and 1 have the geometric mean 1.1.

    rollout  s    A    objective at each token     d / d logp_t = s A, or 0 where clipped
    0        1    +1   1                           1
    1        1.1  +2   min(1.1, 1.05) * 2 = 2.1    0
    2        1.1  -1   min(-1.1, -1.05) = -1.1     -1.1
    """
    step = hand([2.0, 0.5, 1.21, 1.0, 1.1], [1.0, 1.0, 2.0, 2.0, -1.0], rollouts=[0, 0, 1, 1, 2])
    step = replace(step, weight_T=torch.tensor([1 / 6, 1 / 6, 1 / 6, 1 / 6, 1 / 3], dtype=F64))
    loss, gradient_T, stats = run(gspo_loss, step, clip_low=0.05, clip_high=0.05)
    assert loss.item() == pytest.approx(-(1 + 2.1 - 1.1) / 3, abs=1e-12)
    assert gradient_T.tolist() == pytest.approx([-1 / 6, -1 / 6, 0, 0, 1.1 / 3], abs=1e-12)
    assert (stats.num_clipped_low, stats.num_clipped_high) == (0, 2)
    assert stats.ratio_mean == pytest.approx((1 + 1 + 1.1 + 1.1 + 1.1) / 5, abs=1e-12)


def test_gspo_clips_a_rollout_from_below_as_a_whole() -> None:
    """exp(mean) = 0.9 for a rollout of 0.81 and 1, A = -1: min(-0.9, -0.95), flat."""
    loss, gradient_T, stats = run(
        gspo_loss, hand([0.81, 1.0], [-1.0, -1.0]), clip_low=0.05, clip_high=0.05
    )
    assert loss.item() == pytest.approx(0.95, abs=1e-12)
    assert gradient_T.tolist() == [0.0, 0.0]
    assert (stats.num_clipped_low, stats.num_clipped_high) == (2, 0)


def test_gspo_with_an_advantage_per_token_gives_each_its_own() -> None:
    """GSPO-token, eq. 13: s = 1.1 is common, A is not."""
    loss, gradient_T, _ = run(
        gspo_loss, hand([1.21, 1.0], [1.0, -3.0]), clip_low=0.5, clip_high=0.5
    )
    assert loss.item() == pytest.approx(-(1.1 - 3.3) / 2, abs=1e-12)
    assert gradient_T.tolist() == pytest.approx([-1.1 / 2, 3.3 / 2], abs=1e-12)


def test_gspo_takes_the_mean_over_model_tokens_only() -> None:
    """The ratio 9 stands at an environment token: s = sqrt(1.21 * 1) = 1.1, not cbrt(10.89)."""
    step = replace(hand([1.21, 9.0, 1.0], [1.0] * 3), mask_T=torch.tensor([True, False, True]))
    loss, gradient_T, _ = run(gspo_loss, step, clip_low=0.5, clip_high=0.5)
    assert loss.item() == pytest.approx(-2 * 1.1 / 3, abs=1e-12)
    assert gradient_T.tolist() == pytest.approx([-1.1 / 3, 0.0, -1.1 / 3], abs=1e-12)


def test_cispo_by_hand() -> None:
    """Capped at 1.3 from above, free below, for either sign; no token without a gradient.

    ratio  A   weight  A * weight
    2.0   +1    1.3     1.3
    0.1   +1    0.1     0.1
    2.0   -1    1.3    -1.3
    0.1   -1    0.1    -0.1
    """
    step = hand([2.0, 0.1, 2.0, 0.1], [1.0, 1.0, -1.0, -1.0])
    loss, gradient_T, stats = run(cispo_loss, step, clip_low=0.2, clip_high=0.3)
    assert gradient_T.tolist() == pytest.approx([-1.3 / 4, -0.1 / 4, 1.3 / 4, 0.1 / 4], abs=1e-12)
    # The pairs have the same weight and log-prob and opposite advantages.
    assert loss.item() == pytest.approx(0.0, abs=1e-12)
    one, _, _ = run(cispo_loss, step.take([0]), clip_high=0.3)
    assert one.item() == pytest.approx(-1.3 * (math.log(2.0) - 2.0) / 4, abs=1e-12)
    assert (stats.num_clipped, stats.num_cut) == (0, 2)
    assert stats.means()["cut_frac"] == 0.5


def test_tis_by_hand() -> None:
    """PPO-clip's minimum times min(old / sampler, 2), in value and gradient.

    ratio  A   min   d     old/sampler  weight
    1.5   +1   1.2   0        0.5        0.5
    0.5   +1   0.5   0.5      4          2
    1.5   -1  -1.5  -1.5      1.5        1.5
    0.5   -1  -0.8   0        3          2
    """
    step = hand([1.5, 0.5, 1.5, 0.5], [1.0, 1.0, -1.0, -1.0], sampler_ratios=[0.5, 4.0, 1.5, 3.0])
    loss, gradient_T, stats = run(tis_loss, step)
    assert loss.item() == pytest.approx(-(0.5 * 1.2 + 2 * 0.5 - 1.5 * 1.5 - 2 * 0.8) / 4, abs=1e-12)
    assert gradient_T.tolist() == pytest.approx([0, -2 * 0.5 / 4, 1.5 * 1.5 / 4, 0], abs=1e-12)
    assert (stats.num_clipped_low, stats.num_clipped_high, stats.num_cut) == (1, 1, 2)
    assert stats.sampler_ratio_mean == pytest.approx((0.5 + 4 + 1.5 + 3) / 4, abs=1e-12)
    loss, _, stats = run(functools.partial(tis_loss, cap=3.5), step)
    assert loss.item() == pytest.approx(
        -(0.5 * 1.2 + 3.5 * 0.5 - 1.5 * 1.5 - 3 * 0.8) / 4, abs=1e-12
    )
    assert stats.num_cut == 1


def test_masked_tis_by_hand() -> None:
    """Band [0.5, 5]: its ends are in; outside, the token is as good as absent.

    ratio  A   min  old/sampler  weight
    1.1   +1   1.1     0.49        0
    1.1   +1   1.1     0.5         0.5
    1.1   -1  -1.1     5           5
    1.5   +1   1.2     6           0
    """
    step = hand([1.1, 1.1, 1.1, 1.5], [1.0, 1.0, -1.0, 1.0], sampler_ratios=[0.49, 0.5, 5.0, 6.0])
    # Whether 0.5 comes back from its logarithm as 0.5 is a matter of the last bit.
    loss, gradient_T, stats = run(
        functools.partial(masked_tis_loss, low=0.5 - 1e-9, high=5 + 1e-9), step
    )
    assert loss.item() == pytest.approx(-(0.5 * 1.1 - 5 * 1.1) / 4, abs=1e-12)
    assert gradient_T.tolist() == pytest.approx([0, -0.5 * 1.1 / 4, 5 * 1.1 / 4, 0], abs=1e-12)
    # What is out of the band cannot be clipped as well.
    assert (stats.num_cut, stats.num_clipped, stats.num_tokens) == (2, 0, 4)
    default_loss, _, _ = run(masked_tis_loss, replace(step, sampler_logp_T=step.old_logp_T - 1.0))
    assert default_loss.item() == pytest.approx(-math.e * (1.1 + 1.1 - 1.1 + 1.2) / 4, abs=1e-12)


def test_llds_by_hand() -> None:
    """Only rollouts that fell in total, only their tokens that fell, only where A >= 0.

    rollout  ratios     A    total     held up
    0        0.8  1.1   +1   0.88 < 1  -log 0.8 at the first token
    1        0.9  1.2   +1   1.08 > 1  nothing
    2        0.9  0.9   -1   0.81 < 1  nothing
    3        0.85        0   0.85 < 1  -log 0.85
    """
    ratios = [0.8, 1.1, 0.9, 1.2, 0.9, 0.9, 0.85]
    step = hand(ratios, [1, 1, 1, 1, -1, -1, 0], rollouts=[0, 0, 1, 1, 2, 2, 3])
    loss, gradient_T, stats = run(functools.partial(llds_loss, coefficient=0.3), step)
    lost = -math.log(0.8) - math.log(0.85)
    policy = 0.8 + 1.1 + 0.9 + 1.2 - 0.9 - 0.9
    assert loss.item() == pytest.approx((-policy + 0.3 * lost) / 7, abs=1e-12)
    pulls = [0.8 + 0.3, 1.1, 0.9, 1.2, -0.9, -0.9, 0.3]
    assert gradient_T.tolist() == pytest.approx([-pull / 7 for pull in pulls], abs=1e-12)
    assert stats.means()["likelihood_drop"] == pytest.approx(lost / 7, abs=1e-12)


def test_llds_default_is_a_tenth() -> None:
    loss, _, _ = run(llds_loss, hand([0.9], [0.0]))
    assert loss.item() == pytest.approx(-0.1 * math.log(0.9), abs=1e-12)


# --- ratio 1, and what reduces to what -----------------------------------------------------------


@every_loss
def test_gradient_at_ratio_one_is_the_policy_gradient(name: str) -> None:
    """-weight_t A_t: REINFORCE for CISPO, its sequence-mean for GSPO, and LLDS is not active."""
    step = random_losses_step(5)
    step = replace(step, logp_T=step.old_logp_T, sampler_logp_T=step.old_logp_T)
    _, gradient_T, stats = run(LOSSES[name], step)
    expected_T = -(step.weight_T * step.adv_T) * step.mask_T
    torch.testing.assert_close(gradient_T, expected_T, rtol=1e-12, atol=0)
    assert (stats.sum_drop, stats.num_cut, stats.num_clipped) == (0.0, 0, 0)
    assert (stats.ratio_mean, stats.sampler_ratio_mean) == (1.0, 1.0)


def test_gspo_gradient_is_that_of_the_sequence_ratio() -> None:
    """Autograd through exp(mean log-ratio) * A / S, rollout by rollout: no stop-gradient trick."""
    step = random_losses_step(8)
    logp_T = step.logp_T.clone().requires_grad_()
    terms = []
    for label in step.rollout_T.unique().tolist():
        of_rollout_T = step.mask_T & (step.rollout_T == label)
        if of_rollout_T.any():
            s = (logp_T - step.old_logp_T)[of_rollout_T].mean().exp()
            terms.append(s * step.adv_T[of_rollout_T][0])
    expected = -torch.stack(terms).mean()
    (expected_T,) = torch.autograd.grad(expected, logp_T)
    loss, gradient_T, _ = run(gspo_loss, step, clip_low=0.99, clip_high=1e6)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-12)
    torch.testing.assert_close(gradient_T, expected_T, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("loss_fn", [tis_loss, masked_tis_loss])
@pytest.mark.parametrize("given", ["equal", "absent"])
def test_tis_with_an_equal_sampler_is_ppo_clip(loss_fn: LossFn, given: str) -> None:
    step = random_losses_step(2)
    expected_loss, expected_T, _ = run(ppo_clip_loss, step, beta=0.2)
    if given == "absent":
        loss_fn = _without_sampler(loss_fn)
    loss, gradient_T, stats = run(loss_fn, replace(step, sampler_logp_T=step.old_logp_T), beta=0.2)
    assert loss.item() == expected_loss.item()
    assert torch.equal(gradient_T, expected_T)
    assert (stats.num_cut, stats.sampler_ratio_mean) == (0, 1.0)


def _without_sampler(loss_fn: LossFn) -> LossFn:
    def call(*args: Any, sampler_logp_T: Tensor, **kwargs: Any) -> tuple[Tensor, LossStats]:
        return loss_fn(*args, **kwargs)

    return call


def test_llds_without_its_coefficient_is_ppo_clip() -> None:
    step = random_losses_step(7)
    expected_loss, expected_T, _ = run(ppo_clip_loss, step)
    loss, gradient_T, stats = run(functools.partial(llds_loss, coefficient=0.0), step)
    assert loss.item() == expected_loss.item() and torch.equal(gradient_T, expected_T)
    assert stats.sum_drop > 0, "the term is measured all the same"


def test_llds_against_the_samplers_record_acts_on_rounding() -> None:
    """Why it asks for the trainer's old log-probs: its pull does not depend on how far one fell."""
    step = random_losses_step(4)
    noise_T = torch.randn(len(step.logp_T), generator=torch.Generator().manual_seed(0), dtype=F64)
    step = replace(step, logp_T=step.old_logp_T + 1e-7 * noise_T)
    _, plain_T, _ = run(ppo_clip_loss, step)
    _, gradient_T, stats = run(llds_loss, step)
    assert 0 < stats.sum_drop < 1e-6
    assert (gradient_T - plain_T).norm() / plain_T.norm() > 0.01


@every_loss
def test_the_kl_term_is_that_of_ppo_clip(name: str) -> None:
    """Whatever weights the surrogate must leave the KL alone."""
    step = random_losses_step(3)
    differences = []
    for loss_fn in (LOSSES[name], ppo_clip_loss):
        loss, gradient_T, _ = run(loss_fn, step)
        kl_loss, kl_gradient_T, stats = run(loss_fn, step, beta=0.2)
        differences.append((kl_loss - loss, kl_gradient_T - gradient_T, stats.kl))
    (ours, ours_T, kl), (theirs, theirs_T, expected_kl) = differences
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-12)
    torch.testing.assert_close(ours_T, theirs_T, rtol=1e-9, atol=1e-13)
    assert kl == expected_kl > 0


# --- gradients -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gspo", "tis", "masked_tis", "llds"])
@pytest.mark.parametrize("seed", [1, 3, 4])  # in these every rule acts on some token
def test_gradient_equals_finite_difference(name: str, seed: int) -> None:
    step = random_losses_step(seed)
    knobs = {"clip_low": 0.2, "clip_high": 0.28, "beta": 0.3}
    _, gradient_T, stats = run(LOSSES[name], step, **knobs)
    assert stats.num_clipped > 0
    assert {"gspo": 1, "llds": stats.sum_drop}.get(name, stats.num_cut) > 0
    h = 1e-6
    for t in range(len(step.logp_T)):
        nudge_T = torch.zeros_like(step.logp_T)
        nudge_T[t] = h
        above, _, _ = run(LOSSES[name], replace(step, logp_T=step.logp_T + nudge_T), **knobs)
        below, _, _ = run(LOSSES[name], replace(step, logp_T=step.logp_T - nudge_T), **knobs)
        assert gradient_T[t].item() == pytest.approx((above - below).item() / (2 * h), abs=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_cispo_gradient_equals_finite_difference_at_a_frozen_weight(seed: int) -> None:
    """Moving both log-probs keeps the ratio, and so the weight, where it is."""
    step = random_losses_step(seed)
    knobs = {"clip_high": 0.3, "beta": 0.0}
    _, gradient_T, stats = run(cispo_loss, step, **knobs)
    assert 0 < stats.num_cut < stats.num_tokens
    h = 1e-6
    for t in range(len(step.logp_T)):
        nudge_T = torch.zeros_like(step.logp_T)
        nudge_T[t] = h
        above, below = (
            run(
                cispo_loss,
                replace(step, logp_T=step.logp_T + move_T, old_logp_T=step.old_logp_T + move_T),
                **knobs,
            )[0]
            for move_T in (nudge_T, -nudge_T)
        )
        assert gradient_T[t].item() == pytest.approx((above - below).item() / (2 * h), abs=1e-8)


@every_loss
def test_gradients_flow_into_the_current_log_probs_only(name: str) -> None:
    step = random_losses_step(1)
    fixed = {"mask_T": step.mask_T, "rollout_T": step.rollout_T}
    leaves = {
        f.name: getattr(step, f.name).clone().requires_grad_()
        for f in fields(step)
        if f.name not in fixed
    }
    loss, _ = LOSSES[name](**leaves, **fixed, beta=0.1)
    torch.autograd.backward(loss)
    assert {name for name, leaf in leaves.items() if leaf.grad is not None} == {"logp_T"}
    assert (leaves["logp_T"].grad[~step.mask_T] == 0).all()  # type: ignore[index]


# --- layout --------------------------------------------------------------------------------------


@every_loss
@fewer
@given(seed=st.integers(0, 30), parts=st.lists(st.integers(0, 3), min_size=6, max_size=6))
def test_micro_batch_split_changes_no_gradient(name: str, seed: int, parts: list[int]) -> None:
    """Any assignment of whole rollouts to micro-batches, empty ones included."""
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        step = random_losses_step(seed, list(Reduction)[seed % 3])
        step = Step(
            **{
                f.name: value.to(dtype) if value.is_floating_point() else value
                for f in fields(step)
                for value in [getattr(step, f.name)]
            }
        )
        whole_loss, whole_gradient_T, whole_stats = run(LOSSES[name], step, beta=0.2)
        part_of = dict(zip((7, 3, 11, 0, 5, 2), parts, strict=True))
        part_T = torch.tensor([part_of[label] for label in step.rollout_T.tolist()])
        loss, stats = torch.zeros((), dtype=dtype), LossStats()
        gradient_T = torch.zeros_like(whole_gradient_T)
        for part in range(4):
            part_loss, part_gradient_T, part_stats = run(
                LOSSES[name], step.take(part_T == part), beta=0.2
            )
            gradient_T[part_T == part] = part_gradient_T
            loss, stats = loss + part_loss, stats + part_stats
        error = (gradient_T - whole_gradient_T).norm() / whole_gradient_T.norm()
        assert error <= tolerance
        assert loss.item() == pytest.approx(whole_loss.item(), abs=tolerance)
        for f in fields(LossStats):
            expected = getattr(whole_stats, f.name)
            assert getattr(stats, f.name) == pytest.approx(expected, rel=1e-5, abs=1e-5)


@every_loss
def test_tokens_of_a_rollout_need_not_stand_together(name: str) -> None:
    step = random_losses_step(4)
    order = torch.randperm(len(step.logp_T), generator=torch.Generator().manual_seed(0))
    loss, gradient_T, _ = run(LOSSES[name], step, beta=0.2)
    shuffled_loss, shuffled_gradient_T, _ = run(LOSSES[name], step.take(order), beta=0.2)
    assert shuffled_loss.item() == pytest.approx(loss.item(), abs=1e-12)
    torch.testing.assert_close(shuffled_gradient_T, gradient_T[order], rtol=1e-10, atol=1e-14)


# --- non-finite numbers, nothing to train on -----------------------------------------------------


@every_loss
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_what_stands_at_masked_positions_is_never_read(name: str, bad: float) -> None:
    step = random_losses_step(4)
    polluted = {
        f.name: torch.where(step.mask_T, column, torch.full_like(column, bad))
        for f in fields(step)
        for column in [getattr(step, f.name)]
        if column.is_floating_point()
    }
    loss, gradient_T, stats = run(LOSSES[name], step, beta=0.2)
    other_loss, other_gradient_T, other = run(LOSSES[name], replace(step, **polluted), beta=0.2)
    assert other_loss.item() == loss.item()
    assert torch.equal(other_gradient_T, gradient_T) and torch.isfinite(gradient_T).all()
    assert other == stats


@every_loss
@pytest.mark.parametrize("column", ["logp_T", "old_logp_T", "ref_logp_T", "sampler_logp_T"])
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_token_with_a_non_finite_log_prob_is_dropped_and_counted(
    name: str, column: str, bad: float
) -> None:
    step = random_losses_step(4)
    broken_T = getattr(step, column).clone()
    broken_T[0] = bad
    loss, gradient_T, stats = run(LOSSES[name], replace(step, **{column: broken_T}), beta=0.2)
    rest = step.mask_T.clone()
    rest[0] = False
    expected_loss, expected_gradient_T, expected = run(
        LOSSES[name], replace(step, mask_T=rest), beta=0.2
    )
    assert loss.item() == expected_loss.item()
    assert torch.equal(gradient_T, expected_gradient_T)
    assert stats == replace(expected, num_nonfinite=1)


@every_loss
@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize("log_ratio", [500.0, -500.0])
def test_huge_log_ratios_stay_finite(name: str, advantage: float, log_ratio: float) -> None:
    """Of the policy and of the sampler; clamped ratios have no gradient (CISPO's is bounded)."""
    step = hand([1.0, 1.0], [advantage] * 2)
    step = replace(
        step,
        logp_T=step.old_logp_T + log_ratio,
        sampler_logp_T=step.old_logp_T - log_ratio,
    )
    loss, gradient_T, stats = run(LOSSES[name], step)
    assert torch.isfinite(loss) and torch.isfinite(gradient_T).all()
    assert gradient_T.abs().max() <= 1.3
    assert stats.max_abs_log_ratio == 500.0
    assert stats.sampler_ratio_mean == pytest.approx(
        math.exp(math.copysign(LOG_RATIO_MAX, log_ratio))
    )


@every_loss
@pytest.mark.parametrize("size", [0, 3])
@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_empty_micro_batch_gives_zero_and_can_be_differentiated(
    name: str, size: int, beta: float
) -> None:
    step = hand([1.5] * size, [1.0] * size)
    step = replace(step, mask_T=torch.zeros(size, dtype=torch.bool))
    loss, gradient_T, stats = run(LOSSES[name], step, beta=beta)
    assert loss.item() == 0.0
    assert gradient_T.tolist() == [0.0] * size
    assert stats == LossStats()


# --- one signature, errors -----------------------------------------------------------------------


def test_all_losses_take_the_same_columns() -> None:
    """The learner calls whichever it is given with all of them."""
    names = list(inspect.signature(ppo_clip_loss).parameters)
    for loss_fn in (gspo_loss, cispo_loss, tis_loss, masked_tis_loss, llds_loss):
        parameters = inspect.signature(loss_fn).parameters
        assert list(parameters)[: len(names)] == names
        own = list(parameters.values())[len(names) :]
        assert all(p.default is not p.empty for p in own), "a setting of its own has a default"


def test_losses_over_rollouts_say_that_they_need_to_know_them() -> None:
    step = hand([1.0], [1.0])
    columns = (step.logp_T, step.old_logp_T, step.adv_T, step.mask_T, step.weight_T)
    for loss_fn in (gspo_loss, llds_loss):
        with pytest.raises(ValueError, match="needs rollout_T"):
            loss_fn(*columns)
    with pytest.raises(ValueError, match="rollout_T of an integer dtype, got torch.float64"):
        gspo_loss(*columns, rollout_T=torch.zeros(1, dtype=F64))
    with pytest.raises(ValueError, match=r"expected sampler_logp_T .*\(1,\), got \(2,\)"):
        ppo_clip_loss(*columns, sampler_logp_T=torch.zeros(2))


@pytest.mark.parametrize(
    ("loss_fn", "wrong"),
    [
        (tis_loss, {"cap": 0.9}),
        (masked_tis_loss, {"low": 1.1}),
        (masked_tis_loss, {"high": 0.9}),
        (llds_loss, {"coefficient": -0.1}),
    ],
)
def test_bad_settings_are_refused(loss_fn: LossFn, wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        run(loss_fn, hand([1.0], [1.0]), **wrong)
