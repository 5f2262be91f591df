"""Inputs for the tests of the losses: columns over tokens, by hand and at random."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from searchrl.core.columns import LossColumns, LossStats, loss_columns
from searchrl.core.llds import llds_loss
from searchrl.core.loss import ppo_clip_loss
from searchrl.core.losses import cispo_loss, gspo_loss, masked_tis_loss, tis_loss
from searchrl.core.reduction import LossSettings, Reduction, token_weights

LossFn = Callable[[LossColumns, LossSettings], tuple[Tensor, LossStats]]
F64 = torch.float64

LOSSES: dict[str, LossFn] = {
    "ppo_clip": ppo_clip_loss,
    "gspo": gspo_loss,
    "cispo": cispo_loss,
    "tis": functools.partial(tis_loss, cap=1.2),
    "masked_tis": functools.partial(masked_tis_loss, low=0.8, high=1.25),
    "llds": functools.partial(llds_loss, coefficient=0.3),
}
# Of the random steps: wide enough for GSPO that not every rollout is clipped.
KNOBS = {"gspo": {"clip_low": 0.1, "clip_high": 0.1}, "cispo": {"clip_high": 0.3}}


@dataclass(frozen=True)
class Step:
    """The arguments of `loss_columns`, one entry per token. Weight 0: not a trained token."""

    logp_T: Tensor
    old_logp_T: Tensor
    adv_T: Tensor
    weight_T: Tensor
    ref_logp_T: Tensor
    sampler_logp_T: Tensor
    segment_T: Tensor

    def take(self, index: Any) -> Step:
        return Step(*(getattr(self, f.name)[index] for f in fields(self)))

    def to(self, dtype: torch.dtype) -> Step:
        columns = [getattr(self, f.name) for f in fields(self)]
        return Step(*(c.to(dtype) if c.is_floating_point() else c for c in columns))


def run(loss: str | LossFn, step: Step, **knobs: float) -> tuple[Tensor, Tensor, LossStats]:
    """Loss, its gradient in logp_T, statistics; a reference is given where `beta` is."""
    fn = LOSSES[loss] if isinstance(loss, str) else loss
    settings = LossSettings(**(KNOBS.get(str(loss), {}) | knobs))
    columns = {f.name: getattr(step, f.name) for f in fields(step)}
    columns["logp_T"] = logp_T = step.logp_T.detach().clone().requires_grad_()
    if not settings.beta:
        columns.pop("ref_logp_T")
    total, stats = fn(loss_columns(**columns), settings)
    (gradient_T,) = torch.autograd.grad(total, logp_T)
    return total.detach(), gradient_T, stats


def hand(
    ratios: list[float],
    advantages: list[float],
    *,
    rollouts: list[int] | None = None,
    sampler_ratios: list[float] | None = None,
) -> Step:
    """Tokens of given pi / old, advantage, rollout and old / sampler; weight 1 / N, old_logp -2."""
    n = len(ratios)
    old_logp_T = torch.full((n,), -2.0, dtype=F64)
    return Step(
        logp_T=old_logp_T + torch.tensor(ratios, dtype=F64).log(),
        old_logp_T=old_logp_T,
        adv_T=torch.tensor(advantages, dtype=F64),
        weight_T=torch.full((n,), 1 / max(n, 1), dtype=F64),
        ref_logp_T=old_logp_T,
        sampler_logp_T=old_logp_T - torch.tensor(sampler_ratios or [1.0] * n, dtype=F64).log(),
        segment_T=torch.tensor(rollouts or [0] * n, dtype=torch.long),
    )


LABELS = (7, 3, 11, 0, 5, 2)
"""Of the rollouts of a random step: any integers, in any order."""


def random_step(
    seed: int, reduction: Reduction = Reduction.SEQUENCE_MEAN, dtype: torch.dtype = F64
) -> Step:
    """Six rollouts, some empty, with untrained tokens between, and a sampler that disagrees."""
    rng = torch.Generator().manual_seed(seed)

    def noise(scale: float) -> Tensor:
        return scale * torch.randn(sum(lengths), generator=rng, dtype=F64)

    lengths = torch.randint(0, 9, (6,), generator=rng).tolist()
    lengths[0] = 5
    repeats = torch.tensor(lengths)
    logp_T = -3 * torch.rand(sum(lengths), generator=rng, dtype=F64) - 0.1
    old_logp_T = logp_T + noise(0.4)
    is_trained_T = torch.rand(sum(lengths), generator=rng) < 0.7
    is_trained_T[0] = True
    adv_B = torch.randn(6, generator=rng, dtype=F64)
    counts = [int(part.sum()) for part in is_trained_T.split(lengths)]
    weight_B = torch.tensor(token_weights(counts, reduction, constant=16), dtype=F64)
    step = Step(
        logp_T=logp_T,
        old_logp_T=old_logp_T,
        adv_T=adv_B.repeat_interleave(repeats),
        weight_T=weight_B.repeat_interleave(repeats) * is_trained_T,
        ref_logp_T=logp_T + noise(0.3),
        sampler_logp_T=old_logp_T - noise(0.3),
        segment_T=torch.tensor(LABELS).repeat_interleave(repeats),
    )
    return step.to(dtype)
