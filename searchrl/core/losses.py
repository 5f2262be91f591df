"""Losses for several updates of one step, and for samples that are not quite the policy's own.

    GSPO        s = exp(mean over the rollout of logp - old_logp), clipped as a whole
    CISPO       sg[min(ratio, 1 + clip_high)] * A * logp
    TIS         PPO-clip * sg[min(old / sampler, cap)]; masked: kept inside a band, 0 outside
    LLDS        PPO-clip - coefficient * max(0, old_logp - logp), where a good rollout fell

sg[x] is x without its gradient. Every loss takes the columns of `core.loss.ppo_clip_loss`, which
says what they are, and differs from it in J_t only: masking, KL, reduction and statistics are
`core.columns`. Settings of a loss's own (`cap`, `coefficient`) are bound by its factory in
`algorithms`. DAPO's loss is PPO-clip with clip_high > clip_low. At the first update all of them
have the gradient of PPO-clip: -weight_t A_t at every token (TIS: if trainer and sampler agree).
"""

from __future__ import annotations

import torch
from torch import Tensor

from searchrl.core.columns import LossStats, clamped, masked_columns


def gspo_loss(
    logp_T: Tensor,
    old_logp_T: Tensor,
    adv_T: Tensor,
    mask_T: Tensor,
    weight_T: Tensor,
    *,
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
    beta: float = 0.0,
    ref_logp_T: Tensor | None = None,
    sampler_logp_T: Tensor | None = None,
    rollout_T: Tensor | None = None,
) -> tuple[Tensor, LossStats]:
    """GSPO (arXiv 2507.18071, eq. 5 and 7): one ratio per rollout, the geometric mean of its own.

    In the form for tokens (eq. 13 and 14), s_t = sg[s] * pi / sg[pi]: its value is s at every token
    of the rollout, its gradient s * d logp_t. Where a rollout has one advantage this is the
    gradient of s * A; where it has one per token, each token follows its own. Clip fractions and
    `ratio_mean` count tokens. Needs `rollout_T`. A dropped token leaves the mean of its rollout.
    """
    columns = masked_columns(
        logp_T, old_logp_T, adv_T, mask_T, weight_T, clip_low=clip_low, clip_high=clip_high,
        beta=beta, ref_logp_T=ref_logp_T, sampler_logp_T=sampler_logp_T, rollout_T=rollout_T,
    )  # fmt: skip
    log_ratio_T = columns.logp_T.detach() - columns.old_logp_T
    length_T = columns.sum_per_rollout(torch.ones_like(log_ratio_T)).clamp(min=1.0)
    log_s_T = columns.sum_per_rollout(log_ratio_T) / length_T
    s_T = torch.exp(clamped(log_s_T + columns.logp_T - columns.logp_T.detach()))
    objective_T, is_clipped_T = _clipped_surrogate(s_T, columns.adv_T, clip_low, clip_high)
    return columns.reduce(objective_T, s_T, is_clipped_T=is_clipped_T)


def cispo_loss(
    logp_T: Tensor,
    old_logp_T: Tensor,
    adv_T: Tensor,
    mask_T: Tensor,
    weight_T: Tensor,
    *,
    clip_low: float = 1.0,
    clip_high: float = 4.0,
    beta: float = 0.0,
    ref_logp_T: Tensor | None = None,
    sampler_logp_T: Tensor | None = None,
    rollout_T: Tensor | None = None,
) -> tuple[Tensor, LossStats]:
    """CISPO (MiniMax-M1, arXiv 2506.13585, eq. 4 and 5): cap the weight of a token, not its push.

    REINFORCE with an importance weight that is never above 1 + clip_high and has no gradient. No
    token loses its gradient, so nothing counts as clipped; `num_cut` counts capped weights. As in
    the paper there is no lower bound: `clip_low` is not read. The value is not an objective (it
    contains A * logp): only the gradient means something.
    """
    columns = masked_columns(
        logp_T, old_logp_T, adv_T, mask_T, weight_T, clip_low=clip_low, clip_high=clip_high,
        beta=beta, ref_logp_T=ref_logp_T, sampler_logp_T=sampler_logp_T, rollout_T=rollout_T,
    )  # fmt: skip
    ratio_T = torch.exp(clamped(columns.logp_T.detach() - columns.old_logp_T))
    objective_T = ratio_T.clamp(max=1.0 + clip_high) * columns.adv_T * columns.logp_T
    return columns.reduce(objective_T, ratio_T, is_cut_T=ratio_T > 1.0 + clip_high)


def tis_loss(
    logp_T: Tensor,
    old_logp_T: Tensor,
    adv_T: Tensor,
    mask_T: Tensor,
    weight_T: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    beta: float = 0.0,
    ref_logp_T: Tensor | None = None,
    sampler_logp_T: Tensor | None = None,
    rollout_T: Tensor | None = None,
    cap: float = 2.0,
) -> tuple[Tensor, LossStats]:
    """Truncated importance sampling (Yao et al. 2025): PPO-clip for a sampler that disagrees.

    Tokens came from `sampler_logp_T`, another engine, precision or age than the policy at the
    start of the update, `old_logp_T`: sg[min(exp(old_logp - sampler_logp), cap)] puts that right,
    on the clipped surrogate and not on the KL. `old_logp_T` must be the trainer's own, computed
    anew: where it is the sampler's record, or `sampler_logp_T` is None, every weight is 1 and this
    is PPO-clip. The cap bounds the variance and biases the gradient; `sampler_ratio_mean`, taken
    before it, should be near 1. Raises ValueError for a `cap` below 1.
    """
    if not cap >= 1:
        raise ValueError(f"expected {cap=} to be >= 1: agreement has the ratio 1")
    columns = masked_columns(
        logp_T, old_logp_T, adv_T, mask_T, weight_T, clip_low=clip_low, clip_high=clip_high,
        beta=beta, ref_logp_T=ref_logp_T, sampler_logp_T=sampler_logp_T, rollout_T=rollout_T,
    )  # fmt: skip
    ratio_T = torch.exp(clamped(columns.logp_T - columns.old_logp_T))
    surrogate_T, is_clipped_T = _clipped_surrogate(ratio_T, columns.adv_T, clip_low, clip_high)
    sampler_ratio_T = torch.exp(clamped(columns.old_logp_T - columns.sampler_logp_T))
    objective_T = sampler_ratio_T.clamp(max=cap) * surrogate_T
    return columns.reduce(
        objective_T, ratio_T, is_clipped_T=is_clipped_T, is_cut_T=sampler_ratio_T > cap
    )


def masked_tis_loss(
    logp_T: Tensor,
    old_logp_T: Tensor,
    adv_T: Tensor,
    mask_T: Tensor,
    weight_T: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    beta: float = 0.0,
    ref_logp_T: Tensor | None = None,
    sampler_logp_T: Tensor | None = None,
    rollout_T: Tensor | None = None,
    low: float = 0.5,
    high: float = 5.0,
) -> tuple[Tensor, LossStats]:
    """Masked TIS (IcePop, arXiv 2510.18855): the weight inside a band, no gradient outside it.

    Like `tis_loss`, but a token whose exp(old_logp - sampler_logp) is not in [low, high] gives no
    policy gradient instead of a capped one: so far apart, one of the two numbers is wrong. It
    keeps its KL term, and no other token takes over its weight: the step's denominator is fixed
    before any forward pass. Raises ValueError unless 0 <= low <= 1 <= high.
    """
    if not 0 <= low <= 1 <= high:
        raise ValueError(f"expected 0 <= low <= 1 <= high, got {low=} and {high=}")
    columns = masked_columns(
        logp_T, old_logp_T, adv_T, mask_T, weight_T, clip_low=clip_low, clip_high=clip_high,
        beta=beta, ref_logp_T=ref_logp_T, sampler_logp_T=sampler_logp_T, rollout_T=rollout_T,
    )  # fmt: skip
    ratio_T = torch.exp(clamped(columns.logp_T - columns.old_logp_T))
    surrogate_T, is_clipped_T = _clipped_surrogate(ratio_T, columns.adv_T, clip_low, clip_high)
    sampler_ratio_T = torch.exp(clamped(columns.old_logp_T - columns.sampler_logp_T))
    is_out_T = (sampler_ratio_T < low) | (sampler_ratio_T > high)
    objective_T = sampler_ratio_T.masked_fill(is_out_T, 0.0) * surrogate_T
    return columns.reduce(
        objective_T, ratio_T, is_clipped_T=is_clipped_T & ~is_out_T, is_cut_T=is_out_T
    )


def llds_loss(
    logp_T: Tensor,
    old_logp_T: Tensor,
    adv_T: Tensor,
    mask_T: Tensor,
    weight_T: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    beta: float = 0.0,
    ref_logp_T: Tensor | None = None,
    sampler_logp_T: Tensor | None = None,
    rollout_T: Tensor | None = None,
    coefficient: float = 0.1,
) -> tuple[Tensor, LossStats]:
    """LLDS (arXiv 2512.04220): PPO-clip that does not let good rollouts become unlikely.

    A rollout whose total log-prob has fallen since the start of the update, at tokens with A >= 0,
    adds coefficient * max(0, old_logp - logp) to the loss at each token that fell: a pull up of
    constant strength. Weighted like the rest, so that the step's reduction is its mean. It takes a
    second update to act: at the first one nothing has fallen, provided that `old_logp_T` is the
    trainer's own; the sampler's record differs by rounding, and half of its tokens would be
    pulled. Needs `rollout_T`. Raises ValueError for a negative `coefficient`.
    """
    if not coefficient >= 0:
        raise ValueError(f"expected {coefficient=} to be >= 0")
    columns = masked_columns(
        logp_T, old_logp_T, adv_T, mask_T, weight_T, clip_low=clip_low, clip_high=clip_high,
        beta=beta, ref_logp_T=ref_logp_T, sampler_logp_T=sampler_logp_T, rollout_T=rollout_T,
    )  # fmt: skip
    ratio_T = torch.exp(clamped(columns.logp_T - columns.old_logp_T))
    surrogate_T, is_clipped_T = _clipped_surrogate(ratio_T, columns.adv_T, clip_low, clip_high)
    fall_T = columns.old_logp_T - columns.logp_T
    is_held_T = (columns.sum_per_rollout(fall_T.detach()) > 0) & (columns.adv_T >= 0)
    # relu and not clamp: its gradient at 0 is 0, and a token that did not move has lost nothing.
    drop_T = torch.where(is_held_T, torch.relu(fall_T), torch.zeros_like(fall_T))
    objective_T = surrogate_T - coefficient * drop_T
    return columns.reduce(objective_T, ratio_T, is_clipped_T=is_clipped_T, drop_T=drop_T)


def _clipped_surrogate(
    ratio_T: Tensor, adv_T: Tensor, clip_low: float, clip_high: float
) -> tuple[Tensor, Tensor]:
    """PPO's minimum of surr1 and surr2, and where the clip bites."""
    surr1_T = ratio_T * adv_T
    surr2_T = ratio_T.clamp(1.0 - clip_low, 1.0 + clip_high) * adv_T
    return torch.minimum(surr1_T, surr2_T), surr2_T < surr1_T
