"""The columns of a micro-batch as every loss reads them, and the one masked reduction.

    loss = - sum_t weight_t * J_t

Owns what all losses have in common: which tokens enter, the precision, the reduction and the
statistics. The engine calls `loss_columns` once per micro-batch and hands the result to the loss of
the algorithm. A loss of `core.loss` or `core.losses` computes its J_t and ends with
`LossColumns.reduce`.

Shape suffixes: T tokens of a micro-batch (any shape, all columns alike), S its segments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from searchrl.core.kl import is_kl_clamped, k3

LOG_RATIO_MAX = 20.0
"""Log-ratios are clamped to +-20 before exp: beyond it the ratio is flat and its gradient 0."""

_LEAST_SPREAD = 1e-5
"""Least spread of targets, as a share of their squares. Below it, 32-bit sums are rounding."""


@dataclass(frozen=True, slots=True)
class LossStats:
    """Sums over the tokens that entered a loss; add them over micro-batches, then read the means.

    `loss` adds up to the loss of the optimiser step, because weights are of the step. A sum whose
    count is 0 was not measured.
    """

    loss: float = 0.0
    num_tokens: int = 0
    """Tokens that entered: of a weight above 0, and finite."""
    num_clippable: int = 0
    """Tokens that a clip could act on: all, or none where the loss has no clip (CISPO)."""
    num_clipped_low: int = 0
    """A < 0 and ratio below 1 - clip_low: the policy already left this token alone."""
    num_clipped_high: int = 0
    """A > 0 and ratio above 1 + clip_high: the policy already took this token up."""
    num_nonfinite: int = 0
    """Tokens dropped for a log-prob that is NaN or infinite."""
    num_kl: int = 0
    """Tokens in `sum_kl`: those with a reference log-prob. 0 without a reference."""
    num_kl_clamped: int = 0
    """Tokens whose reference log-prob is above the policy's by more than 20."""
    num_cuttable: int = 0
    """Tokens whose importance weight has a cap or a band. 0 for losses without one."""
    num_cut: int = 0
    """Tokens whose importance weight hit its cap (CISPO, TIS) or left its band (masked TIS)."""
    num_sampler: int = 0
    """Tokens in `sum_sampler_ratio`: those with a sampler log-prob apart from the old one."""
    num_value: int = 0
    """Tokens in `sum_square_error`: those with a value and a target. 0 without a critic."""
    num_off: int = 0
    """Tokens that were not sampled in this step: only the mean of the loss has them."""
    num_held: int = 0
    """Tokens in `sum_drop`: those that LLDS watches. 0 for other losses."""
    sum_ratio: float = 0.0
    sum_kl: float = 0.0
    """k3 of the policy to the reference."""
    sum_approx_kl: float = 0.0
    """k3 of the old policy to the current one: how far this step has moved already."""
    sum_sampler_ratio: float = 0.0
    """Ratio of the policy at the start of the update to the sampler's record, before any cap."""
    sum_drop: float = 0.0
    """Nats of likelihood lost at tokens that LLDS watches."""
    sum_value_error: float = 0.0
    """Sum of target minus value."""
    sum_square_error: float = 0.0
    sum_target: float = 0.0
    sum_square_target: float = 0.0
    max_abs_log_ratio: float = 0.0
    """Largest |logp - old_logp| before the clamp; 0 at the first update, or something is wrong."""
    is_clipped_T: Tensor | None = field(default=None, compare=False, repr=False)
    """Tokens of one micro-batch whose gradient the clip took; None for a loss without a clip. On
    the CPU, as are the two below."""
    factor_T: Tensor | None = field(default=None, compare=False, repr=False)
    """Factor on weight times advantage of each token of one micro-batch; None: 1."""
    host_columns: tuple[Tensor, ...] = field(default=(), compare=False, repr=False)
    """`LossColumns.host_columns`, of one micro-batch."""

    def __add__(self, other: LossStats) -> LossStats:
        if not isinstance(other, LossStats):
            return NotImplemented
        names = [one.name for one in fields(self) if one.compare]
        both = {name: getattr(self, name) + getattr(other, name) for name in names}
        both["max_abs_log_ratio"] = max(self.max_abs_log_ratio, other.max_abs_log_ratio)
        return LossStats(**both)

    @property
    def num_on(self) -> int:
        """Tokens that entered and were sampled in this step."""
        return self.num_tokens - self.num_off

    @property
    def num_clipped(self) -> int:
        """Tokens at which the clip bites (surr2 < surr1): they give no policy gradient."""
        return self.num_clipped_low + self.num_clipped_high

    def means(self) -> dict[str, float]:
        """Return figures for a tracker. One that was not measured (count 0) is absent, never 0.

        Keys: `loss`; `clip_frac`, `clip_low_frac`, `clip_high_frac`, shares of tokens at which the
        clip bites; `ratio_mean`; `approx_kl`, k3 from the old to the current policy, and `kl`, k3
        to the reference, in nats per token; `kl_clamped_frac`; `max_abs_log_ratio`;
        `sampler_ratio_mean`, trainer over sampler; `cut_frac`; `likelihood_drop` in nats per token
        that LLDS watches; `nonfinite_frac`; of a critic, `value_loss` (mean square of target minus
        value) and `explained_variance`, 1 - Var(target - value) / Var(target).
        """
        num_in, num_offered = self.num_on, self.num_tokens + self.num_nonfinite
        measured = {
            "loss": (self.loss, min(1, self.num_tokens + self.num_held)),
            "clip_frac": (self.num_clipped, self.num_clippable),
            "clip_low_frac": (self.num_clipped_low, self.num_clippable),
            "clip_high_frac": (self.num_clipped_high, self.num_clippable),
            "ratio_mean": (self.sum_ratio, num_in),
            "kl": (self.sum_kl, self.num_kl),
            "kl_clamped_frac": (self.num_kl_clamped, self.num_kl),
            "approx_kl": (self.sum_approx_kl, num_in),
            "max_abs_log_ratio": (self.max_abs_log_ratio, min(1, num_in)),
            "sampler_ratio_mean": (self.sum_sampler_ratio, self.num_sampler),
            "cut_frac": (self.num_cut, self.num_cuttable),
            "likelihood_drop": (self.sum_drop, self.num_held),
            "nonfinite_frac": (self.num_nonfinite, num_offered),
            "off_frac": (self.num_off, self.num_off and self.num_tokens),
            "value_loss": (self.sum_square_error, self.num_value),
        }
        means = {name: total / count for name, (total, count) in measured.items() if count}
        # Variance of the targets that values do not explain; none if targets are equal.
        left = self.sum_square_error - self.sum_value_error**2 / max(1, self.num_value)
        spread = self.sum_square_target - self.sum_target**2 / max(1, self.num_value)
        if spread > _LEAST_SPREAD * self.sum_square_target:
            means["explained_variance"] = 1 - left / spread
        return means


@dataclass(frozen=True, slots=True)
class LossColumns:
    """Columns that a loss reads: finite everywhere, 0 at tokens that do not enter.

    `loss_columns` makes them. Log-probs are in nats.
    """

    logp_T: Tensor
    """Log-prob under the current policy. It carries the gradient."""
    old_logp_T: Tensor
    """Log-prob at the start of the update."""
    sampler_logp_T: Tensor
    """Log-prob as sampled; equal to `old_logp_T` unless the trainer recomputed that one."""
    adv_T: Tensor
    weight_T: Tensor
    """Weight with the denominator of the whole step; 0: the token is not in the surrogate."""
    is_kept_T: Tensor
    """Tokens that enter: with a weight, and finite in every column."""
    num_dropped: Tensor
    """Tokens with a weight that are not finite."""
    ref_logp_T: Tensor | None
    """Log-prob under the reference; None without one."""
    segment_T: Tensor | None
    """Number of the token's segment, the text that the model saw at once. A segment is whole in
    one micro-batch; most rollouts have one."""
    num_segments: int | None
    """None: numbers are any, and counting them waits for the device."""
    has_sampler: bool
    """True where `sampler_logp_T` was given."""
    entropy_T: Tensor | None = None
    """Entropy of the policy's whole distribution at this token, in nats; None if not computed. It
    has a gradient only for an algorithm that asks for it (`Ask.ENTROPY`)."""
    value_T: Tensor | None = None
    """Expectation of the critic; None without one. It carries a gradient."""
    rollout_T: Tensor | None = None
    """Number of the token's rollout, whose segments may be in several micro-batches: a sum over
    a rollout depends on the split."""
    is_off_T: Tensor | None = None
    """True at tokens of a demonstration (`old_logp_T` is 0: its author was certain) or a replay
    (`old_logp_T` is the sampler's); None: none is. Only for an algorithm that is `off_policy`."""
    extra: Mapping[str, Tensor] = field(default_factory=dict)
    """Columns of the algorithm (`Algorithm.columns`) by name; `turn` beside a critic of turns."""
    host_columns: tuple[Tensor, ...] = ()
    """Columns that the caller wants on the CPU: they go there with the statistics."""

    def __getitem__(self, name: str) -> Tensor:
        """Return a column of the algorithm.

        Raises ValueError for one that it did not add.
        """
        if name not in self.extra:
            raise ValueError(f"this loss needs the column {name!r}; Algorithm.columns must add it")
        return self.extra[name]

    def sum_per_segment(self, column_T: Tensor) -> Tensor:
        """Return, at every token, the sum of `column_T` over the kept tokens of its segment.

        Raises ValueError without `segment_T`. Sums row by row and not by scattering, whose order,
        and so whose last bit, differs from run to run on a GPU.
        """
        if self.segment_T is None:
            raise ValueError("this loss needs segment_T: which segment each token belongs to")
        index_T, num_segments = self.segment_T, self.num_segments
        if num_segments is None:
            ids_S, index_T = torch.unique(self.segment_T, return_inverse=True)
            num_segments = len(ids_S)
        rows_S = torch.arange(num_segments, device=index_T.device)
        is_of_ST = index_T.flatten() == rows_S[:, None]
        is_in_ST = is_of_ST & self.is_kept_T.flatten()
        return torch.where(is_in_ST, column_T.flatten(), 0.0).sum(1)[index_T]

    def reduce(
        self,
        objective_T: Tensor,
        ratio_T: Tensor,
        *,
        is_clipped_T: Tensor | None = None,
        is_cut_T: Tensor | None = None,
        extra_loss: Tensor | None = None,
        factor_T: Tensor | None = None,
        extra_sums: Mapping[str, Tensor] | None = None,
    ) -> tuple[Tensor, LossStats]:
        """Return - sum_t weight_t objective_t, plus `extra_loss`, and the statistics.

        The other columns are only counted: `ratio_T` is the clip's argument, `is_clipped_T` marks
        gradients that the clip took, `is_cut_T` importance weights that were cut, `factor_T` are
        factors of weights for the record. None: the loss has no such column, and it is not
        measured. Off-policy tokens are in no mean. `extra_sums` are fields of `LossStats` that only
        this loss knows.
        """
        # Mask, denominator and reduction in one line: weight_T is 0 outside the mask and carries
        # the denominator of the whole step; every factor is finite, so no product can be NaN.
        loss = -(self.weight_T * objective_T).sum()
        if extra_loss is not None:
            loss = loss + extra_loss

        with torch.no_grad():
            is_in_T = self.weight_T > 0
            num_all = is_in_T.sum()
            if self.is_off_T is not None:
                is_in_T = is_in_T & ~self.is_off_T
            num_tokens = is_in_T.sum()

            def total(column_T: Tensor) -> Tensor:
                return torch.where(is_in_T, column_T, 0).sum()

            sums: dict[str, Tensor] = {
                "loss": loss,
                "num_tokens": num_all,
                "num_off": num_all - num_tokens,
                "num_nonfinite": self.num_dropped,
                "sum_ratio": total(ratio_T),
                "sum_approx_kl": total(k3(self.old_logp_T, self.logp_T)),
            }
            log_ratio_T = torch.where(is_in_T, self.logp_T - self.old_logp_T, 0.0)
            if log_ratio_T.numel():
                sums["max_abs_log_ratio"] = log_ratio_T.abs().max()
            if is_clipped_T is not None:
                sums["num_clippable"] = num_tokens
                sums["num_clipped_low"] = total(is_clipped_T & (ratio_T < 1))
                sums["num_clipped_high"] = total(is_clipped_T & (ratio_T > 1))
            if self.ref_logp_T is not None:
                sums["num_kl"] = num_tokens
                sums["num_kl_clamped"] = total(is_kl_clamped(self.logp_T, self.ref_logp_T))
                sums["sum_kl"] = total(k3(self.logp_T, self.ref_logp_T))
            if self.has_sampler:
                sampler_ratio_T = torch.exp(clamped(self.old_logp_T - self.sampler_logp_T))
                sums["num_sampler"] = num_tokens
                sums["sum_sampler_ratio"] = total(sampler_ratio_T)
            if is_cut_T is not None:
                sums["num_cuttable"], sums["num_cut"] = num_tokens, total(is_cut_T)
            target_T = self.extra.get("target")
            if self.value_T is not None and target_T is not None:
                sums["num_value"] = num_tokens
                sums["sum_value_error"] = total(target_T - self.value_T)
                sums["sum_square_error"] = total((target_T - self.value_T).square())
                sums["sum_target"] = total(target_T)
                sums["sum_square_target"] = total(target_T.square())
            sums |= extra_sums or {}
            if is_clipped_T is not None:
                is_clipped_T = is_clipped_T & is_in_T
            values, (is_clipped_T, factor_T, *also) = _on_cpu(
                loss.dtype, [*sums.values()], [is_clipped_T, factor_T, *self.host_columns]
            )
        named = dict(zip(sums, values.tolist(), strict=True))
        counted: Any = {k: int(v) if k.startswith("num_") else v for k, v in named.items()}
        columns: Any = {"is_clipped_T": is_clipped_T, "factor_T": factor_T}
        return loss, LossStats(**counted, **columns, host_columns=tuple(also))


def loss_columns(
    logp_T: Tensor,
    old_logp_T: Tensor,
    adv_T: Tensor,
    weight_T: Tensor,
    *,
    ref_logp_T: Tensor | None = None,
    sampler_logp_T: Tensor | None = None,
    segment_T: Tensor | None = None,
    num_segments: int | None = None,
    rollout_T: Tensor | None = None,
    entropy_T: Tensor | None = None,
    value_T: Tensor | None = None,
    is_off_T: Tensor | None = None,
    extra: Mapping[str, Tensor] | None = None,
    terms: Collection[str] = (),
    host_columns: tuple[Tensor, ...] = (),
) -> LossColumns:
    """Check the columns of a micro-batch and bring them into the form that losses read.

    Args:
        logp_T: log-probs of the trained tokens under the current policy, in nats, at the sampling
            temperature, like all log-probs here. Gradients flow into this column, and into
            `entropy_T` and `value_T` if they have some; into no other.
        old_logp_T: at the start of the update: the sampler's record, or the trainer's own.
        adv_T: advantages.
        weight_T: `token_weights` of each token's rollout; 0 for a token that is not trained.
        ref_logp_T: under the reference; None: there is none, and no KL is measured.
        sampler_logp_T: the sampler's record, where `old_logp_T` is not that record.
        segment_T: number of each token's segment; a segment is whole within one micro-batch.
        num_segments: numbers are below it. None: they may be any.
        rollout_T: number of each token's rollout; its segments may be in several micro-batches.
        entropy_T: of the policy's distribution, in nats, at the sampling temperature. One that is
            not finite (probabilities of exactly 0) becomes 0 and drops no token.
        value_T: of a critic; it has a gradient. One that is not finite drops its token.
        is_off_T: True at tokens of demonstrations and replays; None: none is.
        extra: columns of the algorithm by name.
        terms: names of the columns that weigh a further term of the loss, like `weight_T`.
        host_columns: columns to bring to the CPU with the statistics.

    Values at a token without a weight are never read. A token with a log-prob that is not finite is
    dropped and counted. It leaves the numerator only: earlier micro-batches were divided by the
    step's denominator already. (The packer drops tokens of such sampler log-probs before.)

    Raises ValueError for columns of different shape and segments or rollouts that are no integers.
    """
    extra = extra or {}
    given = {
        "old_logp_T": old_logp_T,
        "adv_T": adv_T,
        "weight_T": weight_T,
        "ref_logp_T": ref_logp_T,
        "sampler_logp_T": sampler_logp_T,
        "segment_T": segment_T,
        "rollout_T": rollout_T,
        "entropy_T": entropy_T,
        "value_T": value_T,
        "is_off_T": is_off_T,
    }
    _ensure_columns(logp_T, [*given.items(), *extra.items()])
    has_weight_T = weight_T > 0
    for name in terms:
        has_weight_T = has_weight_T | (extra[name] > 0)
    is_kept_T = has_weight_T
    for column_T in (logp_T, old_logp_T, sampler_logp_T, ref_logp_T, value_T):
        if column_T is not None:
            is_kept_T = is_kept_T & torch.isfinite(column_T)
    # fp32 for everything below (bf16 log-probs would make ratios of 1.00 +- 0.01 out of noise);
    # float64 stays float64, which is how the gradients are tested.
    dtype = torch.float64 if logp_T.dtype == torch.float64 else torch.float32
    zero = torch.zeros((), dtype=dtype, device=logp_T.device)

    def kept(column_T: Tensor) -> Tensor:
        # `where` before `exp`, never a product with the mask: inf * 0 is NaN.
        return torch.where(is_kept_T, column_T.to(dtype), zero)

    old_logp_T = kept(old_logp_T.detach())
    return LossColumns(
        logp_T=kept(logp_T),
        old_logp_T=old_logp_T,
        sampler_logp_T=old_logp_T if sampler_logp_T is None else kept(sampler_logp_T.detach()),
        adv_T=kept(adv_T.detach()),
        weight_T=kept(weight_T.detach()),
        is_kept_T=is_kept_T,
        num_dropped=(has_weight_T & ~is_kept_T).sum(),
        ref_logp_T=None if ref_logp_T is None else kept(ref_logp_T.detach()),
        segment_T=segment_T,
        num_segments=num_segments,
        rollout_T=rollout_T,
        has_sampler=sampler_logp_T is not None,
        entropy_T=None if entropy_T is None else kept(_finite(entropy_T)),
        value_T=None if value_T is None else kept(value_T),
        is_off_T=is_off_T,
        extra={
            name: kept(one_T.detach()) if one_T.is_floating_point() else one_T
            for name, one_T in extra.items()
        },
        host_columns=host_columns,
    )


def _on_cpu(
    dtype: torch.dtype, sums: Sequence[Tensor], columns: Sequence[Tensor | None]
) -> tuple[Tensor, list[Any]]:
    """Sums and columns on the CPU, by one transfer: each would wait for the device on its own."""
    given = [one for one in columns if one is not None]
    flat_F = torch.cat([one.detach().to(dtype).flatten() for one in (*sums, *given)]).cpu()
    values, *parts = flat_F.split([len(sums), *(one.numel() for one in given)])
    made = iter(part.to(of.dtype).view(of.shape) for part, of in zip(parts, given, strict=True))
    return values, [None if one is None else next(made) for one in columns]


def _finite(column_T: Tensor) -> Tensor:
    return torch.where(torch.isfinite(column_T), column_T, torch.zeros_like(column_T))


def clamped(log_ratio_T: Tensor) -> Tensor:
    """Return the log-ratios within +-`LOG_RATIO_MAX`, ready for `exp`."""
    # `where` and not clamp, whose gradient on the bound itself differs between torch versions.
    below_T = torch.where(log_ratio_T > LOG_RATIO_MAX, LOG_RATIO_MAX, log_ratio_T)
    return torch.where(below_T < -LOG_RATIO_MAX, -LOG_RATIO_MAX, below_T)


def _ensure_columns(logp_T: Tensor, others: Iterable[tuple[str, Tensor | None]]) -> None:
    for name, column_T in others:
        if column_T is None:
            continue
        if column_T.shape != logp_T.shape:
            raise ValueError(
                f"expected {name} of logp_T's shape {tuple(logp_T.shape)}, "
                f"got {tuple(column_T.shape)}: broadcasting would train the wrong tokens"
            )
        is_integer = not (column_T.is_floating_point() or column_T.dtype == torch.bool)
        if name in ("segment_T", "rollout_T") and not is_integer:
            raise ValueError(f"expected {name} of an integer dtype, got {column_T.dtype}")
