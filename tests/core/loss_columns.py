"""Inputs for the tests of the loss: columns over tokens, by hand and at random."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from searchrl.core.loss import LossStats, Reduction, ppo_clip_loss, token_weights


@dataclass(frozen=True)
class Columns:
    """The arguments of the loss, one entry per token."""

    logp_T: Tensor
    old_logp_T: Tensor
    adv_T: Tensor
    mask_T: Tensor
    weight_T: Tensor
    ref_logp_T: Tensor

    def take(self, index: Any) -> Columns:
        return Columns(**{f.name: getattr(self, f.name)[index] for f in fields(self)})

    def to(self, dtype: torch.dtype) -> Columns:
        cast = {f.name: getattr(self, f.name).to(dtype) for f in fields(self)}
        return Columns(**{**cast, "mask_T": self.mask_T})


def run(columns: Columns, **knobs: float) -> tuple[Tensor, Tensor, LossStats]:
    """Loss, its gradient in logp_T, statistics."""
    logp_T = columns.logp_T.detach().clone().requires_grad_()
    loss, stats = ppo_clip_loss(
        logp_T,
        columns.old_logp_T,
        columns.adv_T,
        columns.mask_T,
        columns.weight_T,
        ref_logp_T=columns.ref_logp_T if knobs.get("beta") else None,
        **knobs,
    )
    (gradient_T,) = torch.autograd.grad(loss, logp_T)
    return loss.detach(), gradient_T, stats


def four_tokens(ratios: list[float], advantages: list[float]) -> Columns:
    old_logp_T = torch.full((len(ratios),), -2.0, dtype=torch.float64)
    return Columns(
        logp_T=old_logp_T + torch.tensor(ratios, dtype=torch.float64).log(),
        old_logp_T=old_logp_T,
        adv_T=torch.tensor(advantages, dtype=torch.float64),
        mask_T=torch.ones(len(ratios), dtype=torch.bool),
        weight_T=torch.full((len(ratios),), 1 / max(len(ratios), 1), dtype=torch.float64),
        ref_logp_T=old_logp_T,
    )


def random_step(
    seed: int, reduction: Reduction = Reduction.TOKEN_MEAN, dtype: torch.dtype = torch.float64
) -> tuple[Columns, list[range]]:
    """A step of 6 rollouts with environment tokens between model tokens; spans of the rollouts."""
    rng = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, 9, (6,), generator=rng).tolist()
    lengths[0] = 5
    spans, start = [], 0
    for length in lengths:
        spans.append(range(start, start + length))
        start += length
    logp_T = -3 * torch.rand(start, generator=rng, dtype=torch.float64) - 0.1
    old_logp_T = logp_T + 0.4 * torch.randn(start, generator=rng, dtype=torch.float64)
    mask_T = torch.rand(start, generator=rng) < 0.7
    mask_T[0] = True
    adv_B = torch.randn(6, generator=rng, dtype=torch.float64)
    counts = [int(mask_T[list(span)].sum()) if len(span) else 0 for span in spans]
    weight_B = token_weights(counts, reduction, constant=16)
    columns = Columns(
        logp_T=logp_T,
        old_logp_T=old_logp_T,
        adv_T=torch.cat([adv_B[i].expand(n) for i, n in enumerate(lengths)]),
        mask_T=mask_T,
        weight_T=torch.tensor(
            [w for w, n in zip(weight_B, lengths, strict=True) for _ in range(n)],
            dtype=torch.float64,
        ),
        ref_logp_T=logp_T + 0.3 * torch.randn(start, generator=rng, dtype=torch.float64),
    )
    return columns.to(dtype), spans
