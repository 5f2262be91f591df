"""The losses in numbers: by hand, at ratio 1, on ties, against each other, errors.

Hand numbers are arithmetic on the ratios that the columns were made from. Every token weighs the
same unless said otherwise.
"""

import doctest
import functools
import math
from collections.abc import Callable
from dataclasses import fields, replace
from types import ModuleType

import pytest
import torch
from loss_columns import F64, LOSSES, LossFn, hand, random_step, run

from searchrl.core import advantage, excerpt, group, reduction
from searchrl.core.columns import LossStats, clamped, loss_columns
from searchrl.core.kl import k3
from searchrl.core.llds import llds_loss
from searchrl.core.loss import ppo_clip_loss
from searchrl.core.losses import cispo_loss, gspo_loss, masked_tis_loss, tis_loss
from searchrl.core.reduction import LossSettings

every_loss = pytest.mark.parametrize("name", LOSSES)


def test_four_tokens_by_hand() -> None:
    """Both signs of the advantage on both sides of the clip range [0.8, 1.2].

    ratio  A   surr1  surr2  min    d min / d logp
    1.5   +1    1.5    1.2    1.2   0    (clipped)
    0.5   +1    0.5    0.8    0.5   0.5
    1.5   -1   -1.5   -1.2   -1.5  -1.5
    0.5   -1   -0.5   -0.8   -0.8   0    (clipped)
    """
    loss, gradient_T, stats = run("ppo_clip", hand([1.5, 0.5, 1.5, 0.5], [1, 1, -1, -1]))
    assert loss.item() == pytest.approx(-(1.2 + 0.5 - 1.5 - 0.8) / 4, abs=1e-12)
    assert gradient_T.tolist() == pytest.approx([0.0, -0.125, 0.375, 0.0], abs=1e-12)
    assert (stats.num_tokens, stats.num_clipped) == (4, 2)
    assert (stats.num_clipped_low, stats.num_clipped_high) == (1, 1)
    means = stats.means()
    assert (means["clip_frac"], means["loss"]) == (0.5, loss.item())
    assert means["ratio_mean"] == pytest.approx(1.0, abs=1e-12)
    assert means["max_abs_log_ratio"] == pytest.approx(math.log(2), abs=1e-12)
    # k3 of old vs. current: ratio - log ratio - 1
    expected = (1.5 - math.log(1.5) - 1 + 0.5 - math.log(0.5) - 1) / 2
    assert means["approx_kl"] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("third", "knobs", "objective", "clipped"),
    [
        ((1.25, 1), {"clip_high": 0.28}, 1.28 + 0.5 + 1.25 - 0.8, (1, 1)),
        ((0.5, -1), {"clip_low": 0.4}, 1.2 + 0.5 - 0.6 - 0.6, (2, 1)),
    ],
)
def test_each_bound_of_the_clip_moves_alone(
    third: tuple[float, float], knobs: dict[str, float], objective: float, clipped: tuple[int, int]
) -> None:
    step = hand([1.5, 0.5, third[0], 0.5], [1, 1, third[1], -1])
    loss, _, stats = run("ppo_clip", step, **knobs)
    assert loss.item() == pytest.approx(-objective / 4, abs=1e-12)
    assert (stats.num_clipped_low, stats.num_clipped_high) == clipped
    means = stats.means()
    shares = [means[f"clip_{side}frac"] for side in ("low_", "high_", "")]
    assert shares == [clipped[0] / 4, clipped[1] / 4, sum(clipped) / 4]


def test_kl_term_by_hand() -> None:
    """u = log 2 at one token: k3 = 1 - log 2, gradient 1 - e^u = -1."""
    step = hand([1.0, 1.0], [0.0, 0.0])
    step = replace(step, ref_logp_T=step.logp_T + torch.tensor([math.log(2), 0.0], dtype=F64))
    loss, gradient_T, stats = run("ppo_clip", step, beta=0.1)
    assert loss.item() == pytest.approx(0.1 * (1 - math.log(2)) / 2, abs=1e-12)
    assert gradient_T.tolist() == pytest.approx([-0.05, 0.0], abs=1e-12)
    assert stats.means()["kl"] == pytest.approx((1 - math.log(2)) / 2, abs=1e-12)
    assert (stats.num_kl, stats.num_kl_clamped) == (2, 0)


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
    expected = (1 + 1 + 1.1 + 1.1 + 1.1) / 5
    assert stats.means()["ratio_mean"] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("ratios", "advantages", "clip", "loss", "gradient"),
    [
        # As a whole from below: exp(mean) = 0.9, min(-0.9, -0.95), flat.
        ([0.81, 1.0], [-1.0, -1.0], 0.05, 0.95, [0, 0]),
        # GSPO-token, eq. 13: s = 1.1 is common, each token has its own A.
        ([1.21, 1.0], [1.0, -3.0], 0.5, -(1.1 - 3.3) / 2, [-1.1 / 2, 3.3 / 2]),
        # The ratio 9 stands at an untrained token: s = sqrt(1.21 * 1) = 1.1, not cbrt(10.89).
        ([1.21, 9.0, 1.0], [1.0] * 3, 0.5, -2 * 1.1 / 3, [-1.1 / 3, 0, -1.1 / 3]),
    ],
)
def test_gspo_over_one_rollout_by_hand(
    ratios: list[float], advantages: list[float], clip: float, loss: float, gradient: list[float]
) -> None:
    step = hand(ratios, advantages)
    step = replace(step, weight_T=step.weight_T * torch.tensor([r != 9.0 for r in ratios]))
    found, gradient_T, stats = run(gspo_loss, step, clip_low=clip, clip_high=clip)
    assert found.item() == pytest.approx(loss, abs=1e-12)
    assert gradient_T.tolist() == pytest.approx(gradient, abs=1e-12)
    assert stats.num_clipped_low == (2 if clip == 0.05 else 0)


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
    assert stats.num_cut == 2 and stats.means()["cut_frac"] == 0.5


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
    expected = (0.5 + 4 + 1.5 + 3) / 4
    assert stats.means()["sampler_ratio_mean"] == pytest.approx(expected, abs=1e-12)
    assert run(functools.partial(tis_loss, cap=1.0), step)[2].num_cut == 3
    on_edge = (
        functools.partial(tis_loss, cap=1.0),
        functools.partial(masked_tis_loss, low=1, high=1),
    )
    assert [run(loss, hand([1.0], [1.0]))[2].num_cut for loss in on_edge] == [0, 0]
    loss, _, stats = run(functools.partial(tis_loss, cap=3.5), step)
    expected = -(0.5 * 1.2 + 3.5 * 0.5 - 1.5 * 1.5 - 3 * 0.8) / 4
    assert loss.item() == pytest.approx(expected, abs=1e-12) and stats.num_cut == 1


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
    masked = functools.partial(masked_tis_loss, low=0.5 - 1e-9, high=5 + 1e-9)
    loss, gradient_T, stats = run(masked, step)
    assert loss.item() == pytest.approx(-(0.5 * 1.1 - 5 * 1.1) / 4, abs=1e-12)
    assert gradient_T.tolist() == pytest.approx([0, -0.5 * 1.1 / 4, 5 * 1.1 / 4, 0], abs=1e-12)
    # What is out of the band cannot be clipped as well.
    assert (stats.num_cut, stats.num_clipped, stats.num_tokens) == (2, 0, 4)
    edges = hand([1.0] * 4, [1.0] * 4, sampler_ratios=[0.49, 0.51, 4.99, 5.01])
    assert run(masked_tis_loss, edges)[0].item() == pytest.approx(-(0.51 + 4.99) / 4, abs=1e-12)
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
    loss, gradient_T, stats = run("llds", step)
    lost = -math.log(0.8) - math.log(0.85)
    policy = 0.8 + 1.1 + 0.9 + 1.2 - 0.9 - 0.9
    assert loss.item() == pytest.approx((-policy + 0.3 * lost) / 7, abs=1e-12)
    pulls = [0.8 + 0.3, 1.1, 0.9, 1.2, -0.9, -0.9, 0.3]
    assert gradient_T.tolist() == pytest.approx([-pull / 7 for pull in pulls], abs=1e-12)
    assert stats.num_held == 5, "the tokens with A >= 0"
    assert stats.means()["likelihood_drop"] == pytest.approx(lost / 5, abs=1e-12)


def test_llds_holds_tokens_outside_the_surrogate_with_weights_of_its_own() -> None:
    """An all-correct group (rollout 1, weight 0): in the term, and in nothing else.

    rollout  ratios      A   weight  hold weight   loss
    0        1.1  0.9   +1   1/2     1/6           -(1.1 + 0.9) / 2; total 0.99: 0.3 * f(0.9) / 6
    1        0.8  0.7    0   0       1/3           0.3 * (f(0.8) + f(0.7)) / 3
    2        0.5        -1   0       0             nothing: not a token of this step
    3        0.6         0   1/2     0             nothing: all wrong, here for a KL term
    with f(x) = -log x
    """
    step = hand([1.1, 0.9, 0.8, 0.7, 0.5, 0.6], [1, 1, 0, 0, -1, 0], rollouts=[0, 0, 1, 1, 2, 3])
    weights = [torch.tensor(w, dtype=F64) / 6 for w in ([3, 3, 0, 0, 0, 3], [1, 1, 2, 2, 0, 0])]
    logp_T = step.logp_T.clone().requires_grad_()
    columns = loss_columns(
        logp_T, step.old_logp_T, step.adv_T, weights[0],
        segment_T=step.segment_T, extra={"hold": weights[1]}, terms=["hold"],
    )  # fmt: skip
    loss, stats = LOSSES["llds"](columns, LossSettings())
    fell, solved = -math.log(0.9), -math.log(0.8) - math.log(0.7)
    assert loss.item() == pytest.approx(-1 + 0.3 * (fell / 6 + solved / 3), abs=1e-12)
    (gradient_T,) = torch.autograd.grad(loss, logp_T)
    expected = [-0.55, -0.45 - 0.3 / 6, -0.3 / 3, -0.3 / 3, 0, 0]
    assert gradient_T.tolist() == pytest.approx(expected, abs=1e-12)
    means = stats.means()
    assert (stats.num_tokens, stats.num_held) == (3, 4)
    assert means["ratio_mean"] == pytest.approx((1.1 + 0.9 + 0.6) / 3), "the surrogate's tokens"
    assert means["max_abs_log_ratio"] == pytest.approx(-math.log(0.6), abs=1e-12)
    assert means["likelihood_drop"] == pytest.approx((fell + solved) / 4, abs=1e-12)


def test_a_token_that_is_only_held_is_none_that_the_clip_took() -> None:
    step, half_T = hand([1.5, 1.5], [1.0, 1.0]), torch.tensor([0.5, 0.5], dtype=F64)
    columns = {f.name: getattr(step, f.name) for f in fields(step)}
    columns |= {"extra": {"hold": half_T}, "terms": ["hold"]}
    columns["weight_T"] = torch.tensor([1.0, 0.0], dtype=F64)
    _, stats = LOSSES["llds"](loss_columns(**columns), LossSettings())
    assert stats.is_clipped_T is not None and stats.is_clipped_T.tolist() == [True, False]


@pytest.mark.parametrize("name", ["tis", "masked_tis", "llds"])
def test_without_what_they_add_they_are_ppo_clip(name: str) -> None:
    step = random_step(7)
    step = replace(step, sampler_logp_T=step.old_logp_T)
    own = {"llds": functools.partial(llds_loss, coefficient=0.0)}
    expected_loss, expected_T, _ = run("ppo_clip", step, beta=0.2)
    loss, gradient_T, stats = run(own.get(name, LOSSES[name]), step, beta=0.2)
    assert loss.item() == expected_loss.item() and torch.equal(gradient_T, expected_T)
    assert (stats.num_cut, stats.means()["sampler_ratio_mean"]) == (0, 1.0)
    assert (stats.sum_drop > 0) == (name == "llds"), "the term is measured all the same"


@every_loss
def test_the_kl_term_is_that_of_ppo_clip(name: str) -> None:
    """Whatever weights the surrogate must leave the KL alone."""
    step = random_step(3)
    differences = []
    for loss_name in (name, "ppo_clip"):
        loss, gradient_T, _ = run(loss_name, step)
        kl_loss, kl_gradient_T, stats = run(loss_name, step, beta=0.2)
        differences.append((kl_loss - loss, kl_gradient_T - gradient_T, stats.means()["kl"]))
    (ours, ours_T, kl), (theirs, theirs_T, expected_kl) = differences
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-12)
    torch.testing.assert_close(ours_T, theirs_T, rtol=1e-9, atol=1e-13)
    assert kl == expected_kl > 0


def test_reference_without_beta_is_measured_but_does_not_train() -> None:
    step = random_step(3)
    plain_loss, plain_T, _ = run("ppo_clip", step)
    columns = {f.name: getattr(step, f.name) for f in fields(step)}
    columns["logp_T"] = logp_T = step.logp_T.clone().requires_grad_()
    loss, stats = ppo_clip_loss(loss_columns(**columns), LossSettings())
    (gradient_T,) = torch.autograd.grad(loss, logp_T)
    assert loss.item() == plain_loss.item() and torch.equal(gradient_T, plain_T)
    expected = k3(step.logp_T, step.ref_logp_T)[step.weight_T > 0].mean().item()
    assert stats.means()["kl"] == pytest.approx(expected, rel=1e-10)


def test_stats_add_up_and_keep_the_largest_log_ratio() -> None:
    left = LossStats(loss=1.0, num_tokens=3, num_clippable=3, num_clipped_low=1, sum_ratio=3.0,
                     max_abs_log_ratio=2)  # fmt: skip
    right = LossStats(loss=-0.5, num_tokens=1, num_clippable=1, num_clipped_high=1, sum_ratio=2.0)
    both = sum([left, right], LossStats())
    assert (both.loss, both.num_tokens, both.num_clipped) == (0.5, 4, 2)
    means = both.means()
    assert (means["ratio_mean"], means["clip_frac"], means["max_abs_log_ratio"]) == (1.25, 0.5, 2)
    assert LossStats(loss=0.5, num_held=2).means() == {"loss": 0.5, "likelihood_drop": 0.0}
    with pytest.raises(TypeError):
        left + 1  # type: ignore[operator]


def test_what_a_critic_explains_by_hand() -> None:
    """Values 1, 1, 5 for the targets 1, 2, 3: errors 0, 1, -2, whose variance is 14/9 of 2/3."""
    step = hand([1.0] * 4, [0.0] * 4)
    value_T = torch.tensor([1.0, 1.0, 5.0, math.nan], dtype=F64, requires_grad=True)
    target_T = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=F64, requires_grad=True)
    entropy_T = torch.tensor([0.5, 1.0, math.nan, 2.0], dtype=F64, requires_grad=True)
    plain = (step.logp_T, step.old_logp_T, step.adv_T, step.weight_T)
    columns = loss_columns(*plain, value_T=value_T, entropy_T=entropy_T, extra={"target": target_T})
    _, stats = ppo_clip_loss(columns, LossSettings())
    # A value that is no number drops its token; an entropy that is none is 0.
    assert (stats.num_tokens, stats.num_value, stats.num_nonfinite) == (3, 3, 1)
    assert stats.means()["value_loss"] == pytest.approx(5 / 3)
    assert stats.means()["explained_variance"] == pytest.approx(1 - (14 / 9) / (2 / 3))
    assert columns.entropy_T is not None and columns.entropy_T.tolist() == [0.5, 1, 0, 0]
    assert columns.value_T is not None and columns.value_T.requires_grad
    assert columns.entropy_T.requires_grad
    assert not columns["target"].requires_grad
    with pytest.raises(ValueError, match="needs the column 'other'"):
        columns["other"]
    # Targets that differ by rounding alone have no variance to explain.
    alike = LossStats(num_value=3, sum_target=3e3, sum_square_target=3e6 + 3)
    assert alike.means().keys() == {"value_loss"}
    near = LossStats(num_value=2, sum_target=20.5, sum_square_target=10**2 + 10.5**2)
    assert near.means()["explained_variance"] == 1.0
    assert clamped(torch.tensor([-30.0, -20.0, 30.0])).tolist() == [-20.0, -20.0, 20.0]
    for name in ("entropy_T", "value_T", "hold"):
        one: dict = {"extra": {name: torch.zeros(1)}} if name == "hold" else {name: torch.zeros(1)}
        with pytest.raises(ValueError, match=rf"expected {name} .*\(4,\), got \(1,\)"):
            loss_columns(*plain, **one)


ALWAYS = {"loss", "ratio_mean", "approx_kl", "max_abs_log_ratio", "nonfinite_frac"}
CLIP = {"clip_frac", "clip_low_frac", "clip_high_frac"}
OWN = {
    "ppo_clip": CLIP,
    "gspo": CLIP,
    "cispo": {"cut_frac"},
    "tis": CLIP | {"cut_frac"},
    "masked_tis": CLIP | {"cut_frac"},
    "llds": CLIP | {"likelihood_drop"},
}


@every_loss
def test_what_was_not_measured_is_absent_and_never_zero(name: str) -> None:
    step = hand([1.0], [1.0])
    plain = {f.name: getattr(step, f.name) for f in fields(step)}
    reference, sampler = plain.pop("ref_logp_T"), plain.pop("sampler_logp_T")
    for more, expected in (
        ({}, set()),
        ({"ref_logp_T": reference}, {"kl", "kl_clamped_frac"}),
        ({"sampler_logp_T": sampler}, {"sampler_ratio_mean"}),
    ):
        _, stats = LOSSES[name](loss_columns(**plain, **more), LossSettings())
        assert stats.means().keys() == ALWAYS | OWN[name] | expected
    assert LossStats().means() == {}
    # All of it dropped: what was offered is known, and nothing else.
    broken = plain | {"logp_T": torch.full((1,), math.nan, dtype=F64)}
    _, stats = LOSSES[name](loss_columns(**broken), LossSettings())
    assert stats.means() == {"nonfinite_frac": 1.0}


@pytest.mark.parametrize(
    "name", ["old_logp_T", "adv_T", "weight_T", "sampler_logp_T", "ref_logp_T", "segment_T"]
)
def test_columns_that_would_broadcast_are_refused(name: str) -> None:
    step = hand([1.0, 1.0], [1.0, -1.0])
    with pytest.raises(ValueError, match=rf"expected {name} .*\(2,\), got \(1,\)"):
        run("ppo_clip", replace(step, **{name: getattr(step, name)[:1]}), beta=0.1)


def test_columns_that_a_loss_needs_are_asked_for() -> None:
    step = hand([1.0], [1.0])
    columns = (step.logp_T, step.old_logp_T, step.adv_T, step.weight_T)
    for loss_fn in (gspo_loss, llds_loss):
        with pytest.raises(ValueError, match="needs segment_T"):
            loss_fn(loss_columns(*columns), LossSettings())
    for dtype in (F64, torch.bool):
        with pytest.raises(ValueError, match=f"segment_T of an integer dtype, got {dtype}"):
            loss_columns(*columns, segment_T=torch.zeros(1, dtype=dtype))
    for loss_fn in LOSSES.values():
        with pytest.raises(ValueError, match=r"beta 0\.1 needs ref_logp_T"):
            loss_fn(loss_columns(*columns, segment_T=step.segment_T), LossSettings(beta=0.1))


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (LossSettings, {"clip_low": -0.1}),
        (LossSettings, {"clip_high": -0.1}),
        (LossSettings, {"beta": -0.1}),
        (LossSettings, {"beta": math.nan}),
        (tis_loss, {"cap": 0.9}),
        (masked_tis_loss, {"low": 1.1}),
        (masked_tis_loss, {"high": 0.9}),
        (llds_loss, {"coefficient": -0.1}),
    ],
)
def test_bad_settings_are_refused(
    make: Callable[..., LossSettings] | LossFn, wrong: dict[str, float]
) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        if make is LossSettings:
            make(**wrong)  # type: ignore[call-arg]
        else:
            run(functools.partial(make, **wrong), hand([1.0], [1.0]))  # type: ignore[arg-type]


@pytest.mark.parametrize("module", [advantage, reduction, group, excerpt])
def test_the_runnable_examples_in_the_docstrings_hold(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0 and result.failed == 0
