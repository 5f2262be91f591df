"""Losses for several updates of one step, and for samples that are not quite the policy's own.

    GSPO        s = exp(mean over the segment of logp - old_logp), clipped as a whole
    CISPO       sg[min(ratio, 1 + clip_high)] * A * logp
    TIS         PPO-clip * sg[min(old / sampler, cap)]; masked: kept inside a band, 0 outside

sg[x] is x without its gradient. Every loss takes what `core.loss.ppo_clip_loss` takes and differs
from it in J_t only (`core.llds`: and by one term). Settings of a loss's own (`cap`) are bound by
its factory in `algorithms`. DAPO's loss is PPO-clip with clip_high > clip_low. At the
first update all of them have the gradient of PPO-clip: -weight_t A_t at every token (TIS: if
trainer and sampler agree). Shape suffix: T tokens of a micro-batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from searchrl.core.columns import LossColumns, LossStats, clamped
from searchrl.core.loss import kl_penalty
from searchrl.core.reduction import LossSettings


def gspo_loss(columns: LossColumns, settings: LossSettings) -> tuple[Tensor, LossStats]:
    """GSPO (arXiv 2507.18071, eq. 5 and 7): one ratio per segment, a geometric mean.

    In the form for tokens (eq. 13 and 14), s_t = sg[s] * pi / sg[pi]: its value is s at every token
    of the segment, its gradient s * d logp_t. Where a segment has one advantage this is the
    gradient of s * A; where it has one per token, each token follows its own. Clip fractions and
    `ratio_mean` count tokens. Needs `segment_T`. A dropped token leaves the mean of its segment.
    """
    log_ratio_T = columns.logp_T.detach() - columns.old_logp_T
    length_T = columns.sum_per_segment(torch.ones_like(log_ratio_T)).clamp(min=1.0)
    log_s_T = columns.sum_per_segment(log_ratio_T) / length_T
    s_T = torch.exp(clamped(log_s_T + columns.logp_T - columns.logp_T.detach()))
    objective_T, is_clipped_T = clipped_surrogate(s_T, columns.adv_T, settings)
    objective_T = objective_T - kl_penalty(columns, settings)
    return columns.reduce(objective_T, s_T, is_clipped_T=is_clipped_T)


def cispo_loss(columns: LossColumns, settings: LossSettings) -> tuple[Tensor, LossStats]:
    """CISPO (MiniMax-M1, arXiv 2506.13585, eq. 4 and 5): cap the weight of a token.

    REINFORCE with an importance weight that is never above 1 + clip_high and has no gradient. No
    token loses its gradient, so nothing counts as clipped; `num_cut` counts capped weights. As in
    the paper there is no lower bound: `clip_low` is not read. The value (it contains A * logp) is
    not an objective: only its gradient counts.
    """
    ratio_T = torch.exp(clamped(columns.logp_T.detach() - columns.old_logp_T))
    cap = 1 + settings.clip_high
    surrogate_T = ratio_T.clamp(max=cap) * columns.adv_T * columns.logp_T
    objective_T = surrogate_T - kl_penalty(columns, settings)
    return columns.reduce(objective_T, ratio_T, is_cut_T=ratio_T > cap)


def tis_loss(
    columns: LossColumns, settings: LossSettings, *, cap: float = 2.0
) -> tuple[Tensor, LossStats]:
    """Truncated importance sampling (Yao et al. 2025): PPO-clip for a sampler that disagrees.

    The sampler (`sampler_logp_T`) has another engine, precision or age than the policy at the start
    of the update (`old_logp_T`). The weight sg[min(exp(old_logp - sampler_logp), cap)] corrects
    that on the clipped surrogate, not on the KL. `old_logp_T` must be recomputed by the trainer:
    with the sampler's record, or without `sampler_logp_T`, every weight is 1: plain PPO-clip.
    The cap bounds the variance and biases the gradient; `sampler_ratio_mean`, taken before it,
    should be near 1. Raises ValueError for a `cap` below 1.
    """
    if not cap >= 1:
        raise ValueError(f"expected {cap=} to be >= 1: agreement has the ratio 1")
    ratio_T = torch.exp(clamped(columns.logp_T - columns.old_logp_T))
    surrogate_T, is_clipped_T = clipped_surrogate(ratio_T, columns.adv_T, settings)
    sampler_ratio_T = torch.exp(clamped(columns.old_logp_T - columns.sampler_logp_T))
    objective_T = sampler_ratio_T.clamp(max=cap) * surrogate_T - kl_penalty(columns, settings)
    return columns.reduce(
        objective_T, ratio_T, is_clipped_T=is_clipped_T, is_cut_T=sampler_ratio_T > cap
    )


def masked_tis_loss(
    columns: LossColumns, settings: LossSettings, *, low: float = 0.5, high: float = 5.0
) -> tuple[Tensor, LossStats]:
    """Masked TIS (IcePop, arXiv 2510.18855): the weight inside a band, no gradient outside it.

    Like `tis_loss`, but a token whose exp(old_logp - sampler_logp) is not in [low, high] gives no
    policy gradient: so far apart, one of the two numbers is wrong. It keeps its KL term, and its
    weight stays in the step's denominator. Raises ValueError unless 0 <= low <= 1 <= high.
    """
    if not 0 <= low <= 1 <= high:
        raise ValueError(f"expected 0 <= low <= 1 <= high, got {low=} and {high=}")
    ratio_T = torch.exp(clamped(columns.logp_T - columns.old_logp_T))
    surrogate_T, is_clipped_T = clipped_surrogate(ratio_T, columns.adv_T, settings)
    sampler_ratio_T = torch.exp(clamped(columns.old_logp_T - columns.sampler_logp_T))
    is_out_T = (sampler_ratio_T < low) | (sampler_ratio_T > high)
    weighed_T = sampler_ratio_T.masked_fill(is_out_T, 0.0) * surrogate_T
    objective_T = weighed_T - kl_penalty(columns, settings)
    return columns.reduce(
        objective_T, ratio_T, is_clipped_T=is_clipped_T & ~is_out_T, is_cut_T=is_out_T
    )


def clipped_surrogate(
    ratio_T: Tensor, adv_T: Tensor, settings: LossSettings
) -> tuple[Tensor, Tensor]:
    """Return PPO's minimum of surr1 and surr2, and True where the clip acts; a tie takes surr1."""
    surr1_T = ratio_T * adv_T
    surr2_T = ratio_T.clamp(1 - settings.clip_low, 1 + settings.clip_high) * adv_T
    is_clipped_T = surr2_T < surr1_T
    return torch.where(is_clipped_T, surr2_T, surr1_T), is_clipped_T
