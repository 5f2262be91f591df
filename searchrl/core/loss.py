"""The GRPO loss: ratio, surr1, surr2, the KL to the reference, and one masked reduction.

    ratio_t = exp(logp_t - old_logp_t)                            PPO, arXiv 1707.06347, sec. 3
    surr1_t = ratio_t * A_t                                       PPO, eq. 6
    surr2_t = clip(ratio_t, 1 - clip_low, 1 + clip_high) * A_t    PPO, eq. 7; clip_high > clip_low:
                                                                  DAPO, arXiv 2503.14476, sec. 3.1
    J_t     = min(surr1_t, surr2_t) - beta * k3_t                 GRPO, arXiv 2402.03300, eq. 3, 4
    loss    = - sum_t weight_t * J_t                              `core.reduction.token_weights`

Left out: the value loss (the loss of an algorithm with a critic adds it), the entropy bonus
(clip-higher serves the same end; the loss of a plugin may read `LossColumns.entropy_T`),
sequence-level ratios and truncated importance sampling (`core.losses`, same columns).
The columns, their precision and the last line are the same for all losses: `core.columns`.
The learner calls the loss of its algorithm once per micro-batch.

Shape suffix: T tokens of a micro-batch (any shape, all columns alike).
"""

from __future__ import annotations

import torch
from torch import Tensor

from searchrl.core.columns import (
    LOG_RATIO_MAX,
    LossColumns,
    LossStats,
    clamped,
    loss_columns,
)
from searchrl.core.kl import k3
from searchrl.core.reduction import LossSettings, Reduction, token_weights

__all__ = [
    "LOG_RATIO_MAX",
    "LossColumns",
    "LossSettings",
    "LossStats",
    "Reduction",
    "kl_penalty",
    "loss_columns",
    "ppo_clip_loss",
    "token_weights",
]


def ppo_clip_loss(columns: LossColumns, settings: LossSettings) -> tuple[Tensor, LossStats]:
    """Return the loss of one micro-batch (a scalar to call `backward` on) and its statistics.

    GRPO is `clip_low == clip_high`, clip-higher is `clip_high > clip_low`. Reads neither
    `sampler_logp_T` nor `segment_T`. With `beta` 0 a reference is measured, not trained on.

    At the first update every ratio is 1 and the loss is -sum_t weight_t A_t: 0 for centred
    advantages of equally weighted rollouts, and still the right gradient. Without a token it is a
    0 that can be differentiated. Raises ValueError for `beta` > 0 without a reference.
    """
    ratio_T = torch.exp(clamped(columns.logp_T - columns.old_logp_T))
    surr1_T = ratio_T * columns.adv_T
    surr2_T = ratio_T.clamp(1 - settings.clip_low, 1 + settings.clip_high) * columns.adv_T
    is_clipped_T = surr2_T < surr1_T
    # `where` and not minimum: it gives a tie to surr1, whole. At ratio 1 every token may be a tie,
    # and how minimum and clamp share the gradient there differs between torch versions.
    objective_T = torch.where(is_clipped_T, surr2_T, surr1_T) - kl_penalty(columns, settings)
    return columns.reduce(objective_T, ratio_T, is_clipped_T=is_clipped_T)


def kl_penalty(columns: LossColumns, settings: LossSettings) -> Tensor:
    """Return beta * k3 of the policy to the reference at every token; 0 at `beta` 0.

    Raises ValueError for `beta` > 0 without a reference.
    """
    if settings.beta == 0:
        return torch.zeros_like(columns.logp_T)
    if columns.ref_logp_T is None:
        raise ValueError(
            f"beta {settings.beta} needs ref_logp_T, the log-probs of the reference policy"
        )
    return settings.beta * k3(columns.logp_T, columns.ref_logp_T)
