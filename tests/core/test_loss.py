"""The GRPO loss in numbers: by hand, at ratio 1, its gradient, its statistics, its errors."""

from __future__ import annotations

import doctest
import itertools
import math
from dataclasses import fields, replace

import pytest
import torch
from loss_columns import Columns, four_tokens, random_step, run

from searchrl.core import loss as loss_module
from searchrl.core.advantage import StepScores, grpo_advantages
from searchrl.core.kl import k3
from searchrl.core.loss import LossStats, Reduction, ppo_clip_loss, token_weights

# --- hand numbers --------------------------------------------------------------------------------


def test_four_tokens_by_hand() -> None:
    """Both signs of the advantage on both sides of the clip range [0.8, 1.2].

    ratio  A   surr1  surr2  min    d min / d logp
    1.5   +1    1.5    1.2    1.2   0    (clipped)
    0.5   +1    0.5    0.8    0.5   0.5
    1.5   -1   -1.5   -1.2   -1.5  -1.5
    0.5   -1   -0.5   -0.8   -0.8   0    (clipped)
    """
    loss, gradient_T, stats = run(four_tokens([1.5, 0.5, 1.5, 0.5], [1, 1, -1, -1]))
    assert loss.item() == pytest.approx(-(1.2 + 0.5 - 1.5 - 0.8) / 4, abs=1e-12)
    assert gradient_T.tolist() == pytest.approx([0.0, -0.125, 0.375, 0.0], abs=1e-12)
    assert (stats.num_tokens, stats.num_clipped) == (4, 2)
    assert (stats.num_clipped_low, stats.num_clipped_high) == (1, 1)
    assert stats.clip_frac == 0.5
    assert stats.ratio_mean == pytest.approx(1.0, abs=1e-12)
    assert stats.max_abs_log_ratio == pytest.approx(math.log(2), abs=1e-12)
    # k3 of old vs. current: ratio - log ratio - 1
    expected = (1.5 - math.log(1.5) - 1 + 0.5 - math.log(0.5) - 1) / 2
    assert stats.approx_kl == pytest.approx(expected, abs=1e-12)
    assert stats.loss == loss.item()


def test_clip_higher_moves_the_upper_bound_only() -> None:
    loss, _, stats = run(four_tokens([1.5, 0.5, 1.25, 0.5], [1, 1, 1, -1]), clip_high=0.28)
    assert loss.item() == pytest.approx(-(1.28 + 0.5 + 1.25 - 0.8) / 4, abs=1e-12)
    assert (stats.num_clipped_low, stats.num_clipped_high) == (1, 1)


def test_clip_low_moves_the_lower_bound_only() -> None:
    loss, _, stats = run(four_tokens([1.5, 0.5, 0.5, 0.5], [1, 1, -1, -1]), clip_low=0.4)
    assert loss.item() == pytest.approx(-(1.2 + 0.5 - 0.6 - 0.6) / 4, abs=1e-12)
    assert (stats.num_clipped_low, stats.num_clipped_high) == (2, 1)
    means = stats.means()
    assert (means["clip_low_frac"], means["clip_high_frac"], means["clip_frac"]) == (
        0.5,
        0.25,
        0.75,
    )


def test_kl_term_by_hand() -> None:
    """u = log 2 at one token: k3 = 1 - log 2, gradient 1 - e^u = -1."""
    columns = four_tokens([1.0, 1.0], [0.0, 0.0])
    columns = replace(columns, ref_logp_T=columns.logp_T + torch.tensor([math.log(2), 0.0]))
    loss, gradient_T, stats = run(columns, beta=0.1)
    assert loss.item() == pytest.approx(0.1 * (1 - math.log(2)) / 2, abs=1e-7)
    assert gradient_T.tolist() == pytest.approx([-0.05, 0.0], abs=1e-7)
    assert stats.kl == pytest.approx((1 - math.log(2)) / 2, abs=1e-7)
    assert (stats.num_kl, stats.num_kl_clamped) == (2, 0)


def test_reference_without_beta_is_measured_but_does_not_train() -> None:
    columns, _ = random_step(3)
    plain_loss, plain_gradient_T, _ = run(columns)
    logp_T = columns.logp_T.clone().requires_grad_()
    ref_logp_T = columns.ref_logp_T.clone()
    ref_logp_T[0] = math.nan  # token 0 is in the mask
    loss, stats = ppo_clip_loss(
        logp_T,
        columns.old_logp_T,
        columns.adv_T,
        columns.mask_T,
        columns.weight_T,
        ref_logp_T=ref_logp_T,
    )
    (gradient_T,) = torch.autograd.grad(loss, logp_T)
    assert loss.item() == plain_loss.item()
    assert torch.equal(gradient_T, plain_gradient_T)
    measured_T = columns.mask_T.clone()
    measured_T[0] = False
    expected = k3(columns.logp_T, columns.ref_logp_T)[measured_T].mean().item()
    assert stats.kl == pytest.approx(expected, rel=1e-10)
    assert (stats.num_nonfinite, stats.num_kl) == (0, stats.num_tokens - 1)


# --- ratio 1 -------------------------------------------------------------------------------------


def test_loss_at_ratio_one_is_minus_the_weighted_advantage() -> None:
    """And so exactly 0 for centred advantages of equally weighted rollouts: not a broken run."""
    columns, _ = random_step(5)
    columns = replace(columns, logp_T=columns.old_logp_T)
    loss, gradient_T, stats = run(columns)
    expected_T = -(columns.weight_T * columns.adv_T) * columns.mask_T
    assert loss.item() == pytest.approx(expected_T.sum().item(), abs=1e-12)
    torch.testing.assert_close(gradient_T, expected_T, rtol=1e-12, atol=0)
    assert (stats.ratio_mean, stats.max_abs_log_ratio) == (1.0, 0.0)
    assert (stats.clip_frac, stats.approx_kl) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("reduction", "is_zero"), [(Reduction.SEQUENCE_MEAN, True), (Reduction.TOKEN_MEAN, False)]
)
def test_loss_is_zero_at_the_first_update_and_its_gradient_is_not(
    reduction: Reduction, is_zero: bool
) -> None:
    """Zero where rollouts weigh alike; token-mean weighs long ones more and is not centred."""
    advantages = grpo_advantages(StepScores([1.0, 0.0, 0.0, 0.0], ["g"] * 4, [True] * 4))
    counts = [3, 1, 5, 2]
    repeats = torch.tensor(counts)
    adv_T = torch.tensor(advantages, dtype=torch.float64).repeat_interleave(repeats)
    weight_B = torch.tensor(token_weights(counts, reduction), dtype=torch.float64)
    logp_T = torch.full_like(adv_T, -1.5)
    loss, gradient_T, _ = run(
        Columns(
            logp_T=logp_T,
            old_logp_T=logp_T,
            adv_T=adv_T,
            mask_T=torch.ones_like(adv_T, dtype=torch.bool),
            weight_T=weight_B.repeat_interleave(repeats),
            ref_logp_T=logp_T,
        )
    )
    assert (abs(loss.item()) < 1e-12) == is_zero
    assert gradient_T.abs().min() > 0


def test_expected_gradient_at_ratio_one_is_reinforce() -> None:
    """All 9 two-token texts of a 3-token vocabulary, each with its probability as its weight."""
    logits_VV = torch.tensor(
        [[0.2, -0.4, 0.9], [0.0, 0.7, -1.0], [1.2, 0.1, -0.3], [-0.6, 0.4, 0.5]],
        dtype=torch.float64,
        requires_grad=True,
    )
    logp_VV = torch.log_softmax(logits_VV, -1)  # row 3 opens, rows 0-2 follow that token
    texts = list(itertools.product(range(3), repeat=2))
    reward_B = torch.sin(torch.arange(9, dtype=torch.float64)) + 0.3
    logp_BT = torch.stack([torch.stack([logp_VV[3, a], logp_VV[a, b]]) for a, b in texts])
    probability_B = logp_BT.sum(-1).exp()
    (exact,) = torch.autograd.grad((probability_B * reward_B).sum(), logits_VV, retain_graph=True)

    for clip in (0.2, 0.0):
        loss, _ = ppo_clip_loss(
            logp_BT,
            logp_BT.detach(),
            reward_B[:, None].expand(9, 2),
            torch.ones(9, 2, dtype=torch.bool),
            probability_B.detach()[:, None].expand(9, 2),
            clip_low=clip,
            clip_high=clip,
        )
        (gradient,) = torch.autograd.grad(loss, logits_VV, retain_graph=True)
        torch.testing.assert_close(-gradient, exact, rtol=1e-10, atol=1e-12)


# --- gradients -----------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(4))
def test_gradient_equals_finite_difference(seed: int, beta: float) -> None:
    columns, _ = random_step(seed)
    knobs = {"clip_low": 0.2, "clip_high": 0.28, "beta": beta}
    _, gradient_T, _ = run(columns, **knobs)
    ratio_T = (columns.logp_T - columns.old_logp_T).exp()
    kink_T = torch.minimum((ratio_T - 0.8).abs(), (ratio_T - 1.28).abs())
    assert kink_T.min() > 1e-4, "choose another seed: a difference across a kink says nothing"
    h = 1e-6
    for t in range(len(columns.logp_T)):
        nudge_T = torch.zeros_like(columns.logp_T)
        nudge_T[t] = h
        above, _, _ = run(replace(columns, logp_T=columns.logp_T + nudge_T), **knobs)
        below, _, _ = run(replace(columns, logp_T=columns.logp_T - nudge_T), **knobs)
        assert gradient_T[t].item() == pytest.approx((above - below).item() / (2 * h), abs=1e-8)


def test_gradients_flow_into_the_current_log_probs_only() -> None:
    columns, _ = random_step(1)
    leaves = {
        f.name: getattr(columns, f.name).clone().requires_grad_()
        for f in fields(columns)
        if f.name != "mask_T"
    }
    loss, _ = ppo_clip_loss(mask_T=columns.mask_T, beta=0.1, **leaves)
    torch.autograd.backward(loss)
    assert {name for name, leaf in leaves.items() if leaf.grad is not None} == {"logp_T"}


def test_environment_tokens_get_exactly_zero_gradient() -> None:
    columns, _ = random_step(2)
    _, gradient_T, _ = run(columns, beta=0.3)
    assert (gradient_T[~columns.mask_T] == 0).all()
    assert (gradient_T[columns.mask_T] != 0).any()


# --- statistics ----------------------------------------------------------------------------------


def test_stats_add_up_and_keep_the_largest_log_ratio() -> None:
    left = LossStats(loss=1.0, num_tokens=3, num_clipped_low=1, sum_ratio=3.0, max_abs_log_ratio=2)
    right = LossStats(loss=-0.5, num_tokens=1, num_clipped_high=1, sum_ratio=2.0)
    both = sum([left, right], LossStats())
    assert (both.loss, both.num_tokens, both.num_clipped) == (0.5, 4, 2)
    assert (both.ratio_mean, both.clip_frac, both.max_abs_log_ratio) == (1.25, 0.5, 2)
    with pytest.raises(TypeError):
        left + 1  # type: ignore[operator]


# --- errors --------------------------------------------------------------------------------------


def test_columns_that_would_broadcast_are_refused() -> None:
    columns = four_tokens([1.0, 1.0], [1.0, -1.0])
    for name in ("old_logp_T", "adv_T", "weight_T"):
        with pytest.raises(ValueError, match=rf"expected {name} .*\(2,\), got \(1,\)"):
            run(replace(columns, **{name: getattr(columns, name)[:1]}))
    with pytest.raises(ValueError, match="expected ref_logp_T"):
        run(replace(columns, ref_logp_T=torch.zeros(2, 1)), beta=0.1)


def test_bad_loss_settings_are_refused() -> None:
    columns = four_tokens([1.0, 1.0], [1.0, -1.0])
    with pytest.raises(ValueError, match=r"mask_T of dtype torch\.bool, got torch\.float64"):
        run(replace(columns, mask_T=torch.ones(2, dtype=torch.float64)))
    for knobs in ({"clip_low": -0.1}, {"clip_high": -0.1}, {"beta": -0.1}):
        with pytest.raises(ValueError, match="to be >= 0"):
            run(columns, **knobs)
    with pytest.raises(ValueError, match="needs ref_logp_T"):
        ppo_clip_loss(
            columns.logp_T,
            columns.old_logp_T,
            columns.adv_T,
            columns.mask_T,
            columns.weight_T,
            beta=0.1,
        )


def test_the_runnable_examples_in_the_docstrings_hold() -> None:
    result = doctest.testmod(loss_module)
    assert result.attempted > 0
    assert result.failed == 0
