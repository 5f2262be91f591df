"""The GRPO loss: ratio, surr1, surr2, the KL to the reference, and one masked reduction.

    ratio_t = exp(logp_t - old_logp_t)                            PPO, arXiv 1707.06347, sec. 3
    surr1_t = ratio_t * A_t                                       PPO, eq. 6
    surr2_t = clip(ratio_t, 1 - clip_low, 1 + clip_high) * A_t    PPO, eq. 7; clip_high > clip_low:
                                                                  DAPO, arXiv 2503.14476, sec. 3.1
    J_t     = min(surr1_t, surr2_t) - beta * k3_t                 GRPO, arXiv 2402.03300, eq. 3, 4
    loss    = - sum_t weight_t * J_t                              `token_weights`, below

Left out: the value loss (the core has no critic), the entropy bonus (clip-higher serves the same
end), sequence-level ratios and truncated importance sampling (`core.losses`, same columns).
Masking, precision, KL and reduction are the same for all losses: `core.columns`.
A rollout weighs what it weighs in the *whole* optimiser step: `token_weights` runs before the
split into micro-batches, so no split, accumulation or world size changes a gradient. The packer
calls `token_weights` once per step, the learner calls the loss once per micro-batch.

Shape suffixes: B rollouts of the step, T tokens of a micro-batch (any shape, all columns alike).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import torch
from torch import Tensor

from searchrl.core.columns import (
    LOG_RATIO_MAX,
    LossStats,
    clamped,
    finite_mask,
    masked_columns,
)

__all__ = [
    "LOG_RATIO_MAX",
    "LossStats",
    "Reduction",
    "finite_mask",
    "ppo_clip_loss",
    "token_weights",
]


class Reduction(StrEnum):
    """How token objectives become one number. n_i: model tokens of rollout i, S: rollouts with any.

    Which one is chosen decides whose tokens count, not how fast training goes.
    """

    TOKEN_MEAN = "token-mean"
    """Every model token weighs 1 / sum n_i: long rollouts count more (DAPO)."""
    SEQUENCE_MEAN = "sequence-mean"
    """1 / (S n_i): every rollout counts alike, tokens of long ones less (original GRPO)."""
    CONSTANT = "constant"
    """1 / (S * constant): the sum over tokens without a length bias (Dr. GRPO)."""


def token_weights(
    num_tokens_B: Sequence[int], reduction: Reduction, *, constant: int | None = None
) -> list[float]:
    """Return the weight of one model token of each rollout, so that loss = -sum_t weight_t J_t.

    `num_tokens_B` are the trainable model tokens of every rollout of the whole optimiser step,
    over all micro-batches and workers; 0 for a rollout that takes no part (unscored, or in a dead
    group at beta 0). Those get weight 0 and enter no denominator; a step without any token is all
    zeros. `constant` is the token budget that `Reduction.CONSTANT` divides by (no other reads it).
    Workers that *average* gradients must multiply the loss by their number.

    >>> token_weights([1, 3, 0], Reduction.SEQUENCE_MEAN)
    [0.5, 0.16666666666666666, 0.0]
    """
    if any(num_tokens < 0 for num_tokens in num_tokens_B):
        raise ValueError(f"token counts cannot be negative, got {list(num_tokens_B)}")
    reduction = Reduction(reduction)
    num_tokens_step = sum(num_tokens_B)
    num_rollouts = sum(num_tokens > 0 for num_tokens in num_tokens_B)

    def weight(num_tokens: int) -> float:
        match reduction:
            case Reduction.TOKEN_MEAN:
                return 1.0 / num_tokens_step
            case Reduction.SEQUENCE_MEAN:
                return 1.0 / (num_rollouts * num_tokens)
            case Reduction.CONSTANT:
                if constant is None or constant <= 0:
                    raise ValueError(
                        "reduction 'constant' needs constant > 0 (the token budget to divide by), "
                        f"got {constant!r}"
                    )
                return 1.0 / (num_rollouts * constant)

    return [weight(num_tokens) if num_tokens else 0.0 for num_tokens in num_tokens_B]


def ppo_clip_loss(
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
) -> tuple[Tensor, LossStats]:
    """Return the loss of one micro-batch (a scalar to call `backward` on) and its statistics.

    Columns of one shape: log-probs of the sampled tokens under the current policy, the one at the
    start of the update, the reference and the sampler (nats, at the sampling temperature),
    advantage, bool mask (True: written by the model and trained), `token_weights` spread over
    tokens, and an integer that tells the rollouts of the micro-batch apart. A rollout is whole
    within one micro-batch. All losses take these; this one reads neither `sampler_logp_T` (None:
    equal to `old_logp_T`), which is measured only, nor `rollout_T`. What stands at masked
    positions is never read. Gradients flow into `logp_T` only. GRPO is `clip_low == clip_high`,
    clip-higher is `clip_high > clip_low`. With `beta` 0 a reference is measured, not trained on.

    A token whose log-prob (or reference log-prob, if beta > 0) is not finite is dropped and
    counted; see `finite_mask`. At the first update every ratio is 1 and the loss is
    -sum_t weight_t A_t: 0 for centred advantages of equally weighted rollouts, and still the
    right gradient. An empty mask gives a loss of 0 that can be differentiated.

    Raises ValueError for columns that do not fit and numbers out of range; see `masked_columns`.
    """
    columns = masked_columns(
        logp_T, old_logp_T, adv_T, mask_T, weight_T, clip_low=clip_low, clip_high=clip_high,
        beta=beta, ref_logp_T=ref_logp_T, sampler_logp_T=sampler_logp_T, rollout_T=rollout_T,
    )  # fmt: skip
    ratio_T = torch.exp(clamped(columns.logp_T - columns.old_logp_T))
    surr1_T = ratio_T * columns.adv_T
    surr2_T = ratio_T.clamp(1.0 - clip_low, 1.0 + clip_high) * columns.adv_T
    objective_T = torch.minimum(surr1_T, surr2_T)
    return columns.reduce(objective_T, ratio_T, is_clipped_T=surr2_T < surr1_T)
