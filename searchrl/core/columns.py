"""The columns of a micro-batch as every loss reads them, and the one masked reduction.

    loss = - sum_t weight_t * (J_t - beta * k3_t)

Owns what all losses have in common: which tokens enter, the precision, the KL to the reference, the
reduction and the statistics. A loss of `core.loss` or `core.losses` adds its J_t and nothing else:
it begins with `masked_columns` and ends with `LossColumns.reduce`.

Shape suffixes: T tokens of a micro-batch (any shape, all columns alike), R its rollouts.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from searchrl.core.kl import is_kl_clamped, k3

LOG_RATIO_MAX = 20.0
"""Log-ratios are clamped to +-20 before exp: beyond it the ratio is flat and its gradient 0."""


def finite_mask(mask_T: Tensor, *columns_T: Tensor) -> Tensor:
    """Return `mask_T` without the tokens at which any column is NaN or infinite.

    Which denominators it leaves depends on when it is known. Sampler log-probs are known when the
    step is packed, so a packer drops their tokens *before* `token_weights` counts. Current
    log-probs are not: by the forward pass of one micro-batch, earlier ones have been divided by
    the step's denominator already. A token that a loss drops therefore leaves the
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
    num_cut: int = 0
    """Tokens whose importance weight hit its cap (CISPO, TIS) or left its band (masked TIS)."""
    sum_sampler_ratio: float = 0.0
    """Start of the update over what the sampler recorded, before any cap."""
    sum_drop: float = 0.0
    """Nats by which likelihood fell where LLDS holds it up."""
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

    @property
    def sampler_ratio_mean(self) -> float:
        """Mean ratio of trainer to sampler; near 1, or they compute different distributions."""
        return _mean(self.sum_sampler_ratio, self.num_tokens)

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
            "sampler_ratio_mean": self.sampler_ratio_mean,
            "cut_frac": _mean(self.num_cut, self.num_tokens),
            "likelihood_drop": _mean(self.sum_drop, self.num_tokens),
            "nonfinite_frac": _mean(self.num_nonfinite, self.num_tokens + self.num_nonfinite),
        }


@dataclass(frozen=True, slots=True)
class LossColumns:
    """What `masked_columns` makes of the arguments of a loss: finite everywhere, 0 outside."""

    logp_T: Tensor
    """The only column that carries a gradient."""
    old_logp_T: Tensor
    sampler_logp_T: Tensor
    adv_T: Tensor
    weight_T: Tensor
    is_kept_T: Tensor
    num_dropped: Tensor
    ref_logp_T: Tensor | None
    has_ref_T: Tensor
    rollout_T: Tensor | None
    beta: float

    def kept(self, column_T: Tensor) -> Tensor:
        """Return `column_T` with 0 at the tokens that do not enter."""
        return torch.where(self.is_kept_T, column_T, torch.zeros_like(column_T))

    def sum_per_rollout(self, column_T: Tensor) -> Tensor:
        """Return, at every token, the sum of `column_T` over the kept tokens of its rollout.

        Raises ValueError without `rollout_T`. Sums row by row and not by scattering, whose order,
        and so whose last bit, differs from run to run on a GPU.
        """
        if self.rollout_T is None:
            raise ValueError("this loss needs rollout_T: which rollout each token belongs to")
        ids_R, index_T = torch.unique(self.rollout_T, return_inverse=True)
        rows_R = torch.arange(len(ids_R), device=index_T.device)
        is_of_RT = index_T.flatten() == rows_R[:, None]
        kept_T = self.kept(column_T).flatten()
        return torch.where(is_of_RT, kept_T, torch.zeros_like(kept_T)).sum(1)[index_T]

    def reduce(
        self,
        objective_T: Tensor,
        ratio_T: Tensor,
        *,
        is_clipped_T: Tensor | None = None,
        is_cut_T: Tensor | None = None,
        drop_T: Tensor | None = None,
    ) -> tuple[Tensor, LossStats]:
        """Return - sum_t weight_t (objective_t - beta k3_t) and the statistics.

        `objective_T` has no KL term yet. The other columns are only counted: `ratio_T` is what a
        clip acts on, `is_clipped_T` where it took the gradient away, `is_cut_T` where an importance
        weight was cut, `drop_T` the likelihood that was lost.
        """
        zero = torch.zeros((), dtype=self.logp_T.dtype, device=self.logp_T.device)
        kl_T = is_clamped_T = None
        if self.ref_logp_T is not None:
            kl_T = k3(self.logp_T, self.ref_logp_T)
            is_clamped_T = is_kl_clamped(self.logp_T, self.ref_logp_T)
            if self.beta > 0:
                objective_T = objective_T - self.beta * kl_T

        # Mask, denominator and reduction in one line: weight_T is 0 outside the mask and carries
        # the denominator of the whole step; every factor is finite, so no product can be NaN.
        loss = -(self.weight_T * objective_T).sum()

        with torch.no_grad():
            log_ratio_T = self.logp_T - self.old_logp_T
            sampler_ratio_T = torch.exp(clamped(self.old_logp_T - self.sampler_logp_T))
            is_clipped_T = _none_of(self.is_kept_T) if is_clipped_T is None else is_clipped_T
            sums: dict[str, Tensor] = {
                "loss": loss,
                "num_tokens": self.is_kept_T.sum(),
                "num_clipped_low": (is_clipped_T & (ratio_T < 1)).sum(),
                "num_clipped_high": (is_clipped_T & (ratio_T > 1)).sum(),
                "num_nonfinite": self.num_dropped,
                "num_kl": self.has_ref_T.sum(),
                "num_kl_clamped": zero if is_clamped_T is None else is_clamped_T.sum(),
                "num_cut": zero if is_cut_T is None else (self.is_kept_T & is_cut_T).sum(),
                "sum_ratio": self.kept(ratio_T).sum(),
                "sum_kl": zero if kl_T is None else kl_T.sum(),
                "sum_approx_kl": k3(self.old_logp_T, self.logp_T).sum(),
                "sum_sampler_ratio": self.kept(sampler_ratio_T).sum(),
                "sum_drop": zero if drop_T is None else drop_T.sum(),
                "max_abs_log_ratio": log_ratio_T.abs().max() if log_ratio_T.numel() else zero,
            }
            # One transfer for all of them: each .item() would wait for the device on its own.
            values = torch.stack([value.to(zero.dtype) for value in sums.values()]).tolist()
        named = dict(zip(sums, values, strict=True))
        counted = {k: int(v) if k.startswith("num_") else v for k, v in named.items()}
        return loss, LossStats(**counted)


def masked_columns(
    logp_T: Tensor,
    old_logp_T: Tensor,
    adv_T: Tensor,
    mask_T: Tensor,
    weight_T: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    beta: float,
    ref_logp_T: Tensor | None,
    sampler_logp_T: Tensor | None,
    rollout_T: Tensor | None,
) -> LossColumns:
    """Check the arguments of a loss and bring them into one form; `core.loss` says what they are.

    A token at which the log-prob, the old one, the sampler's (if given) or the reference's (if
    beta > 0) is not finite is dropped and counted.

    Raises ValueError for columns of different shape, a mask that is not bool, a `rollout_T` that
    is not integer, a negative `clip_low`, `clip_high` or `beta`, and beta > 0 without a reference.
    """
    _ensure_columns(
        logp_T,
        old_logp_T=old_logp_T,
        adv_T=adv_T,
        mask_T=mask_T,
        weight_T=weight_T,
        ref_logp_T=ref_logp_T,
        sampler_logp_T=sampler_logp_T,
        rollout_T=rollout_T,
    )
    if clip_low < 0 or clip_high < 0 or beta < 0:
        raise ValueError(f"expected {clip_low=}, {clip_high=} and {beta=} to be >= 0")
    if beta > 0 and ref_logp_T is None:
        raise ValueError(f"beta {beta} needs ref_logp_T, the log-probs of the reference policy")

    # fp32 for everything below (bf16 log-probs would make ratios of 1.00 +- 0.01 out of noise);
    # float64 stays float64, which is how the gradients are tested.
    dtype = torch.float64 if logp_T.dtype == torch.float64 else torch.float32
    needed = (logp_T, old_logp_T, sampler_logp_T, ref_logp_T if beta > 0 else None)
    is_kept_T = finite_mask(mask_T, *(column_T for column_T in needed if column_T is not None))
    zero = torch.zeros((), dtype=dtype, device=logp_T.device)

    def kept(column_T: Tensor) -> Tensor:
        # `where` before `exp`, never a product with the mask: inf * 0 is NaN.
        return torch.where(is_kept_T, column_T.to(dtype), zero)

    logp_T = kept(logp_T)
    old_logp_T, adv_T, weight_T = (kept(c.detach()) for c in (old_logp_T, adv_T, weight_T))
    has_ref_T = _none_of(is_kept_T)
    if ref_logp_T is not None:
        has_ref_T = finite_mask(is_kept_T, ref_logp_T)
        ref_logp_T = torch.where(has_ref_T, ref_logp_T.detach().to(dtype), logp_T.detach())
    return LossColumns(
        logp_T=logp_T,
        old_logp_T=old_logp_T,
        sampler_logp_T=old_logp_T if sampler_logp_T is None else kept(sampler_logp_T.detach()),
        adv_T=adv_T,
        weight_T=weight_T,
        is_kept_T=is_kept_T,
        num_dropped=(mask_T & ~is_kept_T).sum(),
        ref_logp_T=ref_logp_T,
        has_ref_T=has_ref_T,
        rollout_T=rollout_T,
        beta=beta,
    )


def clamped(log_ratio_T: Tensor) -> Tensor:
    """Return the log-ratios within +-`LOG_RATIO_MAX`, ready for `exp`."""
    return log_ratio_T.clamp(-LOG_RATIO_MAX, LOG_RATIO_MAX)


def _none_of(mask_T: Tensor) -> Tensor:
    return torch.zeros_like(mask_T)


def _mean(total: float, count: int) -> float:
    return total / count if count else 0.0


def _ensure_columns(logp_T: Tensor, **others_T: Tensor | None) -> None:
    for name, column_T in others_T.items():
        if column_T is None:
            continue
        if column_T.shape != logp_T.shape:
            raise ValueError(
                f"expected {name} of logp_T's shape {tuple(logp_T.shape)}, "
                f"got {tuple(column_T.shape)}: broadcasting would train the wrong tokens"
            )
        if name == "mask_T" and column_T.dtype != torch.bool:
            raise ValueError(f"expected mask_T of dtype torch.bool, got {column_T.dtype}")
        is_integer = not (column_T.is_floating_point() or column_T.dtype == torch.bool)
        if name == "rollout_T" and not is_integer:
            raise ValueError(f"expected rollout_T of an integer dtype, got {column_T.dtype}")
