"""Figures of a step before its first update, when trainer and sampler have the same weights.

Owns the gap between sampler and trainer on the sampled tokens, and the likelihood of the rollouts
that did well. Shape: N tokens of a micro-batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import torch
from torch import Tensor

from searchrl.core.advantage import Column, Per
from searchrl.core.columns import LossStats
from searchrl.core.kl import k3
from searchrl.core.trajectory import RowId, TokenColumns
from searchrl.engine.learning.batches import MicroBatch
from searchrl.engine.learning.packing import ADVANTAGE, LOGP, WEIGHT


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """Sums over the trained tokens; add those of micro-batches and processes, then read `means`."""

    num_tokens: float = 0.0
    sum_gap: float = 0.0
    sum_k3: float = 0.0
    num_good: float = 0.0
    sum_good_logp: float = 0.0
    max_gap: float = 0.0
    """Infinite if a log-prob is not finite."""

    @staticmethod
    def measure(
        logp_N: Tensor,
        sampler_logp_N: Tensor,
        adv_N: Tensor,
        weight_N: Tensor,
        is_own_N: Tensor | None = None,
        is_off_N: Tensor | None = None,
    ) -> SampledTokens:
        """The sums of one micro-batch.

        Args:
            logp_N: the trainer's log-probs, before any update of the step.
            sampler_logp_N: the sampler's record.
            adv_N: advantages.
            weight_N: weights in the loss; tokens of weight 0 are left out, and so are those with a
                log-prob that is not finite.
            is_own_N: tokens that these weights sampled: only those are compared with the record.
                None: all of them.
            is_off_N: tokens of demonstrations and replays, which are left out.
        """
        with torch.no_grad():
            logp_N, sampler_logp_N = logp_N.float(), sampler_logp_N.float()
            has_weight_N = weight_N > 0 if is_off_N is None else (weight_N > 0) & ~is_off_N
            is_in_N = has_weight_N & torch.isfinite(logp_N) & torch.isfinite(sampler_logp_N)
            is_good_N = is_in_N & (adv_N > 0)
            if is_own_N is not None:
                is_in_N, has_weight_N = is_in_N & is_own_N, has_weight_N & is_own_N
            gap_N = (logp_N - sampler_logp_N).abs()
            most_N = torch.where(has_weight_N, gap_N.nan_to_num(torch.inf, torch.inf), 0.0)

            def total(column_N: Tensor, is_in_N: Tensor = is_in_N) -> Tensor:
                return torch.where(is_in_N, column_N, 0.0).sum()

            one_N = torch.ones_like(logp_N)
            sums = torch.stack(
                (
                    total(one_N),
                    total(gap_N),
                    total(k3(sampler_logp_N, logp_N)),
                    total(one_N, is_good_N),
                    total(sampler_logp_N, is_good_N),
                    most_N.max() if len(most_N) else gap_N.sum(),
                )
            ).tolist()
        return SampledTokens(*sums)

    def __add__(self, other: SampledTokens) -> SampledTokens:
        both = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        return SampledTokens(**both | {"max_gap": max(self.max_gap, other.max_gap)})

    @property
    def mean_gap(self) -> float:
        """Mean of |trainer - sampler| in nats; 0 if no token was compared."""
        return self.sum_gap / self.num_tokens if self.num_tokens else 0.0

    def means(self) -> dict[str, float]:
        """Figures for a tracker, in nats per token; one that was not measured is absent."""
        means = {}
        if self.num_tokens:
            means["mismatch"] = self.mean_gap
            means["mismatch_max"] = self.max_gap
            means["mismatch_k3"] = self.sum_k3 / self.num_tokens
        if self.num_good:
            means["good_logp"] = self.sum_good_logp / self.num_good
        return means


def token_columns(
    batch: MicroBatch, logp_N: Tensor, entropy_N: Tensor, stats: LossStats
) -> dict[RowId, TokenColumns]:
    """Figures of each segment of each rollout at an update."""
    sizes = batch.num_tokens
    ratio_N = (logp_N - batch[LOGP]).exp()
    figures = {}
    none: list[Tensor | None] = [None] * len(sizes)
    clipped, factors = (
        none if column_N is None else column_N.split(sizes)
        for column_N in (stats.is_clipped_T, stats.factor_T)
    )
    columns = ratio_N.split(sizes), entropy_N.split(sizes), clipped, factors
    for row, ratio, entropy, cut, factor in zip(batch.rows, *columns, strict=True):
        advantage, weight = _plain(row.columns[ADVANTAGE]), _plain(row.columns[WEIGHT])
        if factor is not None:
            each = tuple((row.columns[WEIGHT].values[0] * factor).tolist())
            weight = each if row.is_off else each[0]
        figures[row.row_id] = TokenColumns(
            advantage,
            tuple(ratio.tolist()),
            tuple(entropy.tolist()),
            weight,
            None if cut is None else tuple(cut.nonzero().flatten().tolist()),
        )
    return figures


def _plain(column: Column) -> float | tuple[float, ...]:
    return column.values[0] if column.per is Per.ROLLOUT else tuple(column.values)


@dataclass(slots=True)
class Sums:
    """Sums over the updates of one training step, and the tokens' figures at the first one."""

    stats: LossStats = field(default_factory=LossStats)
    sampled: SampledTokens = field(default_factory=SampledTokens)
    entropy: float = 0.0
    tokens: dict[RowId, TokenColumns] = field(default_factory=dict)
    """Figures of the segments that were trained on."""
    num_splits: int = 0
    """Times that memory ran out."""

    def take_in(self, share: Sums) -> None:
        """Add the sums of a micro-batch, or of one process."""
        self.stats = self.stats + share.stats
        self.sampled = self.sampled + share.sampled
        self.entropy += share.entropy
        self.tokens |= share.tokens
        self.num_splits += share.num_splits
