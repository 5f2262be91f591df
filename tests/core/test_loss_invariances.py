"""What must not change any loss: layout, order, splits, garbage, precision, infinities."""

import math
from dataclasses import fields, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_columns import F64, LABELS, LOSSES, Step, hand, random_step, run

from searchrl.core.columns import LOG_RATIO_MAX, LossStats, loss_columns
from searchrl.core.reduction import LossSettings, Reduction

NAN, INF = math.nan, math.inf
every_loss = pytest.mark.parametrize("name", LOSSES)
# A third of the profile's examples: these run once per loss, on small inputs.
fewer = settings(max_examples=settings().max_examples // 3)


def assert_split_changes_nothing(name: str, step: Step, part_T: torch.Tensor) -> None:
    """Any parts, empty ones included: the sum of losses, gradients and statistics is the whole's.

    The scale bug of gradient accumulation would show here.
    """
    tolerance = 1e-10 if step.logp_T.dtype == F64 else 1e-5
    whole_loss, whole_gradient_T, whole_stats = run(name, step, beta=0.2)
    loss, stats = torch.zeros_like(whole_loss), LossStats()
    gradient_T = torch.zeros_like(whole_gradient_T)
    for part in range(4):
        part_loss, part_gradient_T, part_stats = run(name, step.take(part_T == part), beta=0.2)
        gradient_T[part_T == part] = part_gradient_T
        loss, stats = loss + part_loss, stats + part_stats
    error = (gradient_T - whole_gradient_T).norm() / whole_gradient_T.norm()
    assert error <= tolerance and loss.item() == pytest.approx(whole_loss.item(), abs=tolerance)
    for f in (f for f in fields(LossStats) if f.compare):
        expected = getattr(whole_stats, f.name)
        assert getattr(stats, f.name) == pytest.approx(expected, rel=1e-5, abs=1e-5)


@every_loss
@fewer
@given(seed=st.integers(0, 30), parts=st.lists(st.integers(0, 3), min_size=6, max_size=6))
def test_split_of_whole_rollouts_changes_no_gradient(name: str, seed: int, parts: list[int]):
    part_of = dict(zip(LABELS, parts, strict=True))
    step = random_step(seed, list(Reduction)[seed % 3], (F64, torch.float32)[seed % 2])
    part_T = torch.tensor([part_of[label] for label in step.segment_T.tolist()])
    assert_split_changes_nothing(name, step, part_T)


@every_loss
@pytest.mark.parametrize("pad", [0.0, NAN, INF, -INF, 1e30])
def test_padding_changes_nothing_whatever_it_holds(name: str, pad: float) -> None:
    step = random_step(11)
    lengths = [int((step.segment_T == label).sum()) for label in LABELS]
    padded = {}
    for f in fields(step):
        column_T = getattr(step, f.name)
        fill = {"weight_T": 0.0, "segment_T": 99}.get(f.name, pad)
        padded[f.name] = torch.full((6, max(lengths)), fill, dtype=column_T.dtype)
        for row, part in zip(padded[f.name], column_T.split(lengths), strict=True):
            row[: len(part)] = part
    loss, gradient_T, stats = run(name, step, beta=0.2)
    padded_loss, gradient_BT, padded_stats = run(name, Step(**padded), beta=0.2)
    assert padded_loss.item() == pytest.approx(loss.item(), abs=1e-12)
    back = [row[:length] for row, length in zip(gradient_BT, lengths, strict=True)]
    torch.testing.assert_close(torch.cat(back), gradient_T, rtol=1e-12, atol=1e-15)
    assert gradient_BT.count_nonzero() == gradient_T.count_nonzero()
    assert padded_stats.means() == pytest.approx(stats.means(), abs=1e-12)


@every_loss
@pytest.mark.parametrize("seed", [1, 3, 4])  # in these every rule acts on some token
@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_gradient_equals_finite_difference(name: str, seed: int, beta: float) -> None:
    """CISPO's at a frozen weight: moving both log-probs keeps the ratio where it is."""
    step = random_step(seed)
    knobs = {"clip_low": 0.2, "clip_high": 0.28, "beta": 0.0 if name == "cispo" else beta}
    _, gradient_T, stats = run(name, step, **knobs)
    acts = {"llds": stats.sum_drop, "gspo": 1, "ppo_clip": 1}.get(name, stats.num_cut)
    assert acts > 0 and (stats.num_clipped > 0 or name == "cispo")
    h = 1e-6
    for t in range(len(step.logp_T)):
        sides = []
        for way in (h, -h):
            nudge_T = torch.zeros_like(step.logp_T)
            nudge_T[t] = way
            moved = replace(step, logp_T=step.logp_T + nudge_T)
            if name == "cispo":
                moved = replace(moved, old_logp_T=step.old_logp_T + nudge_T)
            sides.append(run(name, moved, **knobs)[0])
        expected = (sides[0] - sides[1]).item() / (2 * h)
        assert gradient_T[t].item() == pytest.approx(expected, abs=1e-8)


@every_loss
def test_gradients_flow_into_the_current_log_probs_only(name: str) -> None:
    step = random_step(1)
    leaves = {
        f.name: getattr(step, f.name).clone().requires_grad_()
        for f in fields(step)
        if f.name != "segment_T"
    }
    columns = loss_columns(**leaves, segment_T=step.segment_T)
    loss, _ = LOSSES[name](columns, LossSettings(beta=0.1))
    torch.autograd.backward(loss)
    assert {name for name, leaf in leaves.items() if leaf.grad is not None} == {"logp_T"}
    gradient_T = leaves["logp_T"].grad
    assert gradient_T is not None and (gradient_T[step.weight_T == 0] == 0).all()
    assert (gradient_T[step.weight_T > 0] != 0).any()


@every_loss
@pytest.mark.parametrize("column", ["logp_T", "old_logp_T", "ref_logp_T", "sampler_logp_T"])
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_token_with_a_non_finite_log_prob_is_dropped_and_counted(
    name: str, column: str, bad: float
) -> None:
    """It leaves the numerator, and no other token takes over its weight."""
    step = random_step(4)
    broken_T = getattr(step, column).clone()
    broken_T[0] = bad
    loss, gradient_T, stats = run(name, replace(step, **{column: broken_T}), beta=0.2)
    weight_T = step.weight_T.clone()
    weight_T[0] = 0
    expected_loss, expected_T, expected = run(name, replace(step, weight_T=weight_T), beta=0.2)
    assert loss.item() == expected_loss.item()
    assert torch.equal(gradient_T, expected_T) and gradient_T[0] == 0
    assert stats == replace(expected, num_nonfinite=1)
    assert stats.means()["nonfinite_frac"] == pytest.approx(1 / (stats.num_tokens + 1))


@every_loss
@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize("log_ratio", [500.0, -500.0])
@pytest.mark.parametrize("dtype", [F64, torch.float32])
def test_huge_log_ratios_stay_finite(
    name: str, advantage: float, log_ratio: float, dtype: torch.dtype
) -> None:
    """Of the policy and of the sampler; clamped ratios have no gradient (CISPO's is bounded)."""
    step = hand([1.0, 1.0], [advantage] * 2).to(dtype)
    step = replace(
        step, logp_T=step.old_logp_T + log_ratio, sampler_logp_T=step.old_logp_T - log_ratio
    )
    loss, gradient_T, stats = run(name, step)
    assert torch.isfinite(loss) and gradient_T.abs().max() <= 1.3
    assert stats.max_abs_log_ratio == 500.0
    top = math.exp(math.copysign(LOG_RATIO_MAX, log_ratio))
    assert stats.means()["sampler_ratio_mean"] == pytest.approx(top, rel=1e-6)
    assert stats.means()["ratio_mean"] == pytest.approx(top, rel=1e-6)
    if name == "ppo_clip" and advantage < 0 < log_ratio:
        assert loss.item() == pytest.approx(top, rel=1e-6), "where min() keeps the ratio unclipped"


def test_clamped_kl_tokens_are_counted() -> None:
    step = hand([1.0, 1.0, 1.0], [0.0] * 3)
    ref_logp_T = step.logp_T + torch.tensor([30.0, -30.0, 0.1], dtype=F64)
    loss, gradient_T, stats = run("ppo_clip", replace(step, ref_logp_T=ref_logp_T), beta=0.1)
    assert stats.num_kl_clamped == 1
    assert stats.means()["kl_clamped_frac"] == pytest.approx(1 / 3)
    assert gradient_T[0] == 0 and gradient_T[1] > 0 > gradient_T[2]
    assert torch.isfinite(loss)


@every_loss
def test_nan_advantage_of_a_trained_token_is_not_hidden(name: str) -> None:
    """Advantages come from us, not from a forward pass: NaN there is a bug and must be seen."""
    loss, _, _ = run(name, hand([1.0, 1.0], [1.0, NAN]))
    assert torch.isnan(loss)


@every_loss
@pytest.mark.parametrize("size", [0, 3])
@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_empty_micro_batch_gives_zero_and_can_be_differentiated(name: str, size: int, beta: float):
    step = hand([1.5] * size, [1.0] * size)
    loss, gradient_T, stats = run(name, replace(step, weight_T=0 * step.weight_T), beta=beta)
    assert loss.item() == 0.0 and gradient_T.tolist() == [0.0] * size
    assert stats == LossStats() and stats.means() == {}


@every_loss
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_widened_before_anything_is_computed(name: str, dtype: torch.dtype):
    """The loss of bf16 log-probs is, to the last bit, that of the same numbers held in fp32."""
    step = random_step(6).to(dtype)
    loss, gradient_T, stats = run(name, step, beta=0.1)
    wide_loss, wide_gradient_T, wide_stats = run(name, step.to(torch.float32), beta=0.1)
    assert loss.dtype == torch.float32 and gradient_T.dtype == dtype
    assert loss.item() == wide_loss.item() and stats == wide_stats
    assert torch.equal(gradient_T, wide_gradient_T.to(dtype))
