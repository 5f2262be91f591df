"""What must not change the loss: layout, order, splits, masked garbage, precision, infinities."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_columns import Columns, four_tokens, random_step, run
from torch import Tensor

from searchrl.core.loss import LOG_RATIO_MAX, LossStats, Reduction, ppo_clip_loss

NAN, INF = math.nan, math.inf
# A third of the profile's examples: these run once per estimator or loss, on small inputs.
fewer = settings(max_examples=settings().max_examples // 3)
reductions = pytest.mark.parametrize("reduction", list(Reduction))


# --- layout --------------------------------------------------------------------------------------


@reductions
@fewer
@given(seed=st.integers(0, 30), data=st.data())
def test_micro_batch_split_changes_no_gradient(
    reduction: Reduction, seed: int, data: st.DataObject
) -> None:
    """Any assignment of tokens to micro-batches, empty ones included."""
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        columns, _ = random_step(seed, reduction, dtype)
        whole_loss, whole_gradient_T, whole_stats = run(columns, beta=0.2)
        size = len(columns.logp_T)
        part_T = torch.tensor(
            data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size), label="part")
        )
        loss, stats = torch.zeros((), dtype=dtype), LossStats()
        gradient_T = torch.zeros_like(whole_gradient_T)
        for part in range(4):
            part_loss, part_gradient_T, part_stats = run(columns.take(part_T == part), beta=0.2)
            gradient_T[part_T == part] = part_gradient_T
            loss, stats = loss + part_loss, stats + part_stats
        error = (gradient_T - whole_gradient_T).norm() / whole_gradient_T.norm()
        assert error <= tolerance
        assert loss.item() == pytest.approx(whole_loss.item(), abs=tolerance)
        for f in fields(LossStats):
            expected = getattr(whole_stats, f.name)
            assert getattr(stats, f.name) == pytest.approx(expected, rel=1e-5, abs=1e-5)


@reductions
def test_gradient_of_shared_parameters_survives_accumulation(reduction: Reduction) -> None:
    """The scale bug of gradient accumulation: rollout by rollout equals all at once."""
    columns, spans = random_step(7, reduction)
    scale = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)

    def gradient(index: list[int]) -> Tensor:
        part = columns.take(index)
        loss, _ = ppo_clip_loss(
            part.logp_T * scale, part.old_logp_T, part.adv_T, part.mask_T, part.weight_T
        )
        return torch.autograd.grad(loss, scale)[0]

    expected = gradient(list(range(len(columns.logp_T))))
    accumulated = torch.stack([gradient(list(span)) for span in spans]).sum()
    assert expected != 0
    assert accumulated.item() == pytest.approx(expected.item(), rel=1e-10)


@fewer
@given(seed=st.integers(0, 30), data=st.data())
def test_order_of_tokens_does_not_matter(seed: int, data: st.DataObject) -> None:
    columns, _ = random_step(seed)
    order = data.draw(st.permutations(range(len(columns.logp_T))))
    loss, gradient_T, _ = run(columns, beta=0.2)
    shuffled_loss, shuffled_gradient_T, _ = run(columns.take(list(order)), beta=0.2)
    assert shuffled_loss.item() == pytest.approx(loss.item(), rel=1e-10, abs=1e-12)
    assert torch.equal(shuffled_gradient_T, gradient_T[list(order)])


@pytest.mark.parametrize("pad", [0.0, NAN, INF, -INF, 1e30])
def test_padded_matrix_equals_packed_columns_whatever_the_padding_holds(pad: float) -> None:
    columns, spans = random_step(11)
    loss, gradient_T, stats = run(columns, beta=0.2)
    longest = max(len(span) for span in spans)
    padded = {}
    for f in fields(columns):
        column_T = getattr(columns, f.name)
        fill = False if f.name == "mask_T" else pad
        column_BT = torch.full((len(spans), longest), fill, dtype=column_T.dtype)
        for i, span in enumerate(spans):
            column_BT[i, : len(span)] = column_T[list(span)]
        padded[f.name] = column_BT
    padded_loss, gradient_BT, padded_stats = run(Columns(**padded), beta=0.2)
    assert padded_loss.item() == pytest.approx(loss.item(), abs=1e-12)
    back_T = torch.cat([gradient_BT[i, : len(span)] for i, span in enumerate(spans)])
    assert torch.equal(back_T, gradient_T)
    assert gradient_BT.count_nonzero() == gradient_T.count_nonzero()
    assert padded_stats.means() == pytest.approx(stats.means(), abs=1e-12)


# --- non-finite numbers --------------------------------------------------------------------------


def test_infinity_under_the_mask_does_not_become_nan() -> None:
    """inf * 0: multiplying by the mask makes the loss NaN, selecting does not."""
    columns = four_tokens([1.0, 1.1, 0.9], [1.0, -1.0, 1.0])
    masked = replace(
        columns,
        mask_T=torch.tensor([True, False, True]),
        logp_T=columns.logp_T.clone().index_fill_(0, torch.tensor([1]), 0.0),
        old_logp_T=columns.old_logp_T.clone().index_fill_(0, torch.tensor([1]), -INF),
    )
    naive = ((masked.logp_T - masked.old_logp_T).exp() * masked.mask_T).sum()
    assert torch.isnan(naive), "the failure this test is named for must be reproducible"
    loss, gradient_T, stats = run(masked)
    assert torch.isfinite(loss)
    assert torch.isfinite(gradient_T).all()
    expected_loss, _, _ = run(columns.take([0, 2]))
    assert loss.item() == expected_loss.item()
    assert (stats.num_tokens, stats.num_nonfinite) == (2, 0)


def test_masked_positions_do_not_pollute_the_ratio() -> None:
    """Log-prob 0 on one side only would give ratios of e^2 at environment tokens."""
    columns = four_tokens([1.2, 1.2, 1.2, 1.2], [1.0] * 4)
    mask_T = torch.tensor([True, False, True, False])
    logp_T = torch.where(mask_T, columns.logp_T, torch.zeros_like(columns.logp_T))
    _, _, stats = run(replace(columns, mask_T=mask_T, logp_T=logp_T))
    assert stats.ratio_mean == pytest.approx(1.2, abs=1e-12)
    assert stats.max_abs_log_ratio == pytest.approx(math.log(1.2), abs=1e-12)
    assert stats.approx_kl == pytest.approx(1.2 - math.log(1.2) - 1, abs=1e-12)
    assert stats.num_tokens == 2


@pytest.mark.parametrize("column", ["logp_T", "old_logp_T", "ref_logp_T"])
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_token_with_a_non_finite_log_prob_is_dropped_and_counted(column: str, bad: float) -> None:
    columns, _ = random_step(4)
    broken_T = getattr(columns, column).clone()
    broken_T[0] = bad
    loss, gradient_T, stats = run(replace(columns, **{column: broken_T}), beta=0.2)
    rest = columns.mask_T.clone()
    rest[0] = False
    expected_loss, expected_gradient_T, expected_stats = run(
        replace(columns, mask_T=rest), beta=0.2
    )
    assert loss.item() == expected_loss.item()
    assert torch.equal(gradient_T, expected_gradient_T)
    assert gradient_T[0] == 0
    assert stats == replace(expected_stats, num_nonfinite=1)
    assert stats.means()["nonfinite_frac"] == pytest.approx(1 / (stats.num_tokens + 1))


@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize("log_ratio", [500.0, -500.0])
def test_huge_log_ratio_is_clamped_and_stays_finite(advantage: float, log_ratio: float) -> None:
    columns = four_tokens([1.0], [advantage]).to(torch.float32)
    loss, gradient_T, stats = run(replace(columns, logp_T=columns.old_logp_T + log_ratio))
    assert torch.isfinite(loss)
    assert gradient_T.item() == 0.0
    assert stats.max_abs_log_ratio == 500.0
    assert stats.sum_ratio == pytest.approx(math.exp(math.copysign(LOG_RATIO_MAX, log_ratio)))
    if advantage < 0 < log_ratio:  # the one case in which min() keeps the unclipped ratio
        assert loss.item() == pytest.approx(math.exp(LOG_RATIO_MAX), rel=1e-6)


def test_clamped_kl_tokens_are_counted() -> None:
    columns = four_tokens([1.0, 1.0, 1.0], [0.0] * 3)
    ref_logp_T = columns.logp_T + torch.tensor([30.0, -30.0, 0.1], dtype=torch.float64)
    loss, gradient_T, stats = run(replace(columns, ref_logp_T=ref_logp_T), beta=0.1)
    assert stats.num_kl_clamped == 1
    assert stats.means()["kl_clamped_frac"] == pytest.approx(1 / 3)
    assert gradient_T[0] == 0
    assert gradient_T[1] > 0 > gradient_T[2]
    assert torch.isfinite(loss)


def test_nan_advantage_of_a_trained_token_is_not_hidden() -> None:
    """Advantages come from us, not from a forward pass: NaN there is a bug and must be seen."""
    loss, _, _ = run(four_tokens([1.0, 1.0], [1.0, NAN]))
    assert torch.isnan(loss)


# --- nothing to train on -------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 3])
@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_empty_micro_batch_gives_zero_and_can_be_differentiated(size: int, beta: float) -> None:
    columns = four_tokens([1.5] * size, [1.0] * size)
    columns = replace(columns, mask_T=torch.zeros(size, dtype=torch.bool))
    loss, gradient_T, stats = run(columns, beta=beta)
    assert loss.item() == 0.0
    assert gradient_T.tolist() == [0.0] * size
    assert stats == LossStats()
    assert all(value == 0.0 for value in stats.means().values())


# --- precision -----------------------------------------------------------------------------------


def test_half_precision_is_promoted_and_float64_kept() -> None:
    columns, _ = random_step(6)
    for dtype, expected in (
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ):
        loss, gradient_T, _ = run(columns.to(dtype), beta=0.1)
        assert loss.dtype == expected
        assert gradient_T.dtype == dtype


@pytest.mark.parametrize("seed", range(5))
def test_fp32_agrees_with_float64(seed: int) -> None:
    columns, _ = random_step(seed)
    loss, gradient_T, _ = run(columns, beta=0.1)
    loss_32, gradient_32_T, _ = run(columns.to(torch.float32), beta=0.1)
    assert loss_32.item() == pytest.approx(loss.item(), rel=1e-5, abs=1e-6)
    error = (gradient_32_T.double() - gradient_T).norm() / gradient_T.norm()
    assert error <= 1e-5
