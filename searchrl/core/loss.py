"""The GRPO loss: ratio, surr1, surr2, the KL to the reference, and one masked reduction.

    ratio_t = exp(logp_t - old_logp_t)                            PPO, arXiv 1707.06347, sec. 3
    surr1_t = ratio_t * A_t                                       PPO, eq. 6
    surr2_t = clip(ratio_t, 1 - clip_low, 1 + clip_high) * A_t    PPO, eq. 7; clip_high > clip_low:
                                                                  DAPO, arXiv 2503.14476, sec. 3.1
    J_t     = min(surr1_t, surr2_t) - beta * k3_t                 GRPO, arXiv 2402.03300, eq. 3, 4
    loss    = - sum_t weight_t * J_t                              `token_weights`, below

Left out: the value loss (the core has no critic), the entropy bonus (clip-higher serves the same
end), sequence-level ratios and truncated importance sampling (losses of their own, same columns).
A rollout weighs what it weighs in the *whole* optimiser step: `token_weights` runs before the
split into micro-batches, so no split, accumulation or world size changes a gradient. The packer
calls `token_weights` once per step, the learner calls `ppo_clip_loss` once per micro-batch.

Shape suffixes: B rollouts of the step, T tokens of a micro-batch (any shape, all columns alike).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum

import torch
from torch import Tensor

from searchrl.core.kl import is_kl_clamped, k3

LOG_RATIO_MAX = 20.0
"""Log-ratios are clamped to +-20 before exp: beyond it the ratio is flat and its gradient 0."""


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


def finite_mask(mask_T: Tensor, *columns_T: Tensor) -> Tensor:
    """Return `mask_T` without the tokens at which any column is NaN or infinite.

    Which denominators it leaves depends on when it is known. Sampler log-probs are known when the
    step is packed, so a packer drops their tokens *before* `token_weights` counts. Current
    log-probs are not: by the forward pass of one micro-batch, earlier ones have been divided by
    the step's denominator already. A token that `ppo_clip_loss` drops therefore leaves the
    numerator only: nothing takes over its weight, and `num_nonfinite` counts it.
    """
    for column_T in columns_T:
        mask_T = mask_T & torch.isfinite(column_T)
    return mask_T


@dataclass(frozen=True, slots=True)
class LossStats:
    """Sums over the tokens that entered a loss; add them over micro-batches, then read the means.

    `loss` adds up to the loss of the optimiser step, because weights are of the step.
    """

    loss: float = 0.0
    num_tokens: int = 0
    """Tokens that entered: in the mask and finite."""
    num_clipped_low: int = 0
    """A < 0 and ratio below 1 - clip_low: the policy already left this token alone."""
    num_clipped_high: int = 0
    """A > 0 and ratio above 1 + clip_high: the policy already took this token up."""
    num_nonfinite: int = 0
    """Tokens in the mask dropped for a log-prob that is NaN or infinite."""
    num_kl: int = 0
    """Tokens with a finite reference log-prob: what `sum_kl` runs over. 0 without a reference."""
    num_kl_clamped: int = 0
    """Tokens the policy all but gave up: reference log-prob above its own by more than 20."""
    sum_ratio: float = 0.0
    sum_kl: float = 0.0
    """k3 of the policy to the reference."""
    sum_approx_kl: float = 0.0
    """k3 of the sampling policy to the current one: how far this step has moved already."""
    max_abs_log_ratio: float = 0.0
    """Largest |logp - old_logp| before the clamp; 0 at the first update, or something is wrong."""

    def __add__(self, other: LossStats) -> LossStats:
        """Return the statistics of both micro-batches together."""
        if not isinstance(other, LossStats):
            return NotImplemented
        both = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        both["max_abs_log_ratio"] = max(self.max_abs_log_ratio, other.max_abs_log_ratio)
        return LossStats(**both)

    @property
    def num_clipped(self) -> int:
        """Tokens at which the clip bites (surr2 < surr1): they give no policy gradient."""
        return self.num_clipped_low + self.num_clipped_high

    @property
    def clip_frac(self) -> float:
        """Share of tokens at which the clip bites."""
        return _mean(self.num_clipped, self.num_tokens)

    @property
    def ratio_mean(self) -> float:
        """Mean importance ratio; near 1 while sampler and trainer agree."""
        return _mean(self.sum_ratio, self.num_tokens)

    @property
    def kl(self) -> float:
        """Mean k3 to the reference in nats per token; 0 if no reference was given (`num_kl`)."""
        return _mean(self.sum_kl, self.num_kl)

    @property
    def approx_kl(self) -> float:
        """Mean k3 from the sampling to the current policy, in nats per token."""
        return _mean(self.sum_approx_kl, self.num_tokens)

    def means(self) -> dict[str, float]:
        """Return what a tracker shows. A mean over no token is 0.0."""
        return {
            "loss": self.loss,
            "clip_frac": self.clip_frac,
            "clip_low_frac": _mean(self.num_clipped_low, self.num_tokens),
            "clip_high_frac": _mean(self.num_clipped_high, self.num_tokens),
            "ratio_mean": self.ratio_mean,
            "kl": self.kl,
            "kl_clamped_frac": _mean(self.num_kl_clamped, self.num_kl),
            "approx_kl": self.approx_kl,
            "max_abs_log_ratio": self.max_abs_log_ratio,
            "nonfinite_frac": _mean(self.num_nonfinite, self.num_tokens + self.num_nonfinite),
        }


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
) -> tuple[Tensor, LossStats]:
    """Return the loss of one micro-batch (a scalar to call `backward` on) and its statistics.

    Columns of one shape: log-probs of the sampled tokens under the current, the sampling and the
    reference policy (nats, at the sampling temperature), advantage, bool mask (True: written by
    the model and trained) and `token_weights` spread over tokens. What stands at masked positions
    is never read. Gradients flow into `logp_T` only. GRPO is `clip_low == clip_high`, clip-higher
    is `clip_high > clip_low`. With `beta` 0 a reference is measured but not trained on.

    A token whose log-prob (or reference log-prob, if beta > 0) is not finite is dropped and
    counted; see `finite_mask`. At the first update every ratio is 1 and the loss is
    -sum_t weight_t A_t: 0 for centred advantages of equally weighted rollouts, and still the
    right gradient. An empty mask gives a loss of 0 that can be differentiated.

    Raises ValueError for columns of different shape, a mask that is not bool, a negative
    `clip_low`, `clip_high` or `beta`, and beta > 0 without a reference.
    """
    _ensure_columns(logp_T, old_logp_T, adv_T, mask_T, weight_T, ref_logp_T)
    if clip_low < 0 or clip_high < 0 or beta < 0:
        raise ValueError(f"expected {clip_low=}, {clip_high=} and {beta=} to be >= 0")
    if beta > 0 and ref_logp_T is None:
        raise ValueError(f"beta {beta} needs ref_logp_T, the log-probs of the reference policy")

    # fp32 for everything below (bf16 log-probs would make ratios of 1.00 +- 0.01 out of noise);
    # float64 stays float64, which is how the gradients are tested.
    dtype = torch.float64 if logp_T.dtype == torch.float64 else torch.float32
    needed = (logp_T, old_logp_T) if beta == 0 else (logp_T, old_logp_T, ref_logp_T)
    is_kept_T = finite_mask(mask_T, *(column_T for column_T in needed if column_T is not None))
    zero = torch.zeros((), dtype=dtype, device=logp_T.device)

    def kept(column_T: Tensor) -> Tensor:
        # `where` before `exp`, never a product with the mask: inf * 0 is NaN.
        return torch.where(is_kept_T, column_T.to(dtype), zero)

    logp_T = kept(logp_T)
    old_logp_T, adv_T, weight_T = (kept(c.detach()) for c in (old_logp_T, adv_T, weight_T))

    log_ratio_T = logp_T - old_logp_T
    ratio_T = torch.exp(log_ratio_T.clamp(-LOG_RATIO_MAX, LOG_RATIO_MAX))
    surr1_T = ratio_T * adv_T
    surr2_T = ratio_T.clamp(1.0 - clip_low, 1.0 + clip_high) * adv_T
    objective_T = torch.minimum(surr1_T, surr2_T)

    has_ref_T = torch.zeros_like(is_kept_T)
    kl_T = is_clamped_T = None
    if ref_logp_T is not None:
        has_ref_T = finite_mask(is_kept_T, ref_logp_T)
        ref_logp_T = torch.where(has_ref_T, ref_logp_T.detach().to(dtype), logp_T.detach())
        kl_T = k3(logp_T, ref_logp_T)
        is_clamped_T = is_kl_clamped(logp_T, ref_logp_T)
        if beta > 0:
            objective_T = objective_T - beta * kl_T

    # Mask, denominator and reduction in one line: weight_T is 0 outside the mask and carries the
    # denominator of the whole step; every factor is finite, so no product can be NaN.
    loss = -(weight_T * objective_T).sum()

    with torch.no_grad():
        is_clipped_T = surr2_T < surr1_T
        sums: dict[str, Tensor] = {
            "loss": loss,
            "num_tokens": is_kept_T.sum(),
            "num_clipped_low": (is_clipped_T & (ratio_T < 1)).sum(),
            "num_clipped_high": (is_clipped_T & (ratio_T > 1)).sum(),
            "num_nonfinite": (mask_T & ~is_kept_T).sum(),
            "num_kl": has_ref_T.sum(),
            "num_kl_clamped": zero if is_clamped_T is None else is_clamped_T.sum(),
            "sum_ratio": kept(ratio_T).sum(),
            "sum_kl": zero if kl_T is None else kl_T.sum(),
            "sum_approx_kl": k3(old_logp_T, logp_T).sum(),
            "max_abs_log_ratio": log_ratio_T.abs().max() if log_ratio_T.numel() else zero,
        }
        # One transfer for all of them: each .item() would wait for the device on its own.
        values = torch.stack([value.to(dtype) for value in sums.values()]).tolist()
    named = dict(zip(sums, values, strict=True))
    return loss, LossStats(**{k: int(v) if k.startswith("num_") else v for k, v in named.items()})


def _mean(total: float, count: int) -> float:
    return total / count if count else 0.0


def _ensure_columns(logp_T: Tensor, *others_T: Tensor | None) -> None:
    names = ("old_logp_T", "adv_T", "mask_T", "weight_T", "ref_logp_T")
    for name, column_T in zip(names, others_T, strict=True):
        if column_T is None:
            continue
        if column_T.shape != logp_T.shape:
            raise ValueError(
                f"expected {name} of logp_T's shape {tuple(logp_T.shape)}, "
                f"got {tuple(column_T.shape)}: broadcasting would train the wrong tokens"
            )
        if name == "mask_T" and column_T.dtype != torch.bool:
            raise ValueError(f"expected mask_T of dtype torch.bool, got {column_T.dtype}")
