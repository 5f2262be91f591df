"""Optimisers by name: AdamW, and AdamW whose state takes eight bits; and the learning rate.

Owns their construction and the schedule, which the learner and supervised training follow. All
have betas 0.9 and 0.999 and no weight decay.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from torch.optim import AdamW, Optimizer

from searchrl.config.sections import OptimConfig
from searchrl.config.sft import SftStage
from searchrl.engine.model.quantization import load_bitsandbytes

OptimizerName = Literal["adamw", "adamw8bit"]

MIN_8BIT_SIZE = 4096
"""Smaller parameters keep fp32 state: for them the error is large and the saving small."""

BLOCK_8BIT = 256
"""Entries of an eight-bit state that share one fp32 scale."""

_BETAS = (0.9, 0.999)


def make_optimizer(name: OptimizerName, groups: Sequence[dict[str, Any]]) -> Optimizer:
    """An optimiser over groups of leaves that require a gradient: their `params` and `lr`.

    `adamw8bit` is that of bitsandbytes, with block-wise quantised state (Dettmers et al., 8-bit
    Optimizers, arXiv 2110.02861).

    Raises:
        PolicyError: if the eight-bit one needs a package that is missing.
    """
    if name == "adamw":
        return AdamW(groups, betas=_BETAS, weight_decay=0.0)
    bitsandbytes = load_bitsandbytes("optim.optimizer: adamw8bit", "optim.optimizer=adamw")
    optimizer: Optimizer = bitsandbytes.optim.AdamW8bit(
        groups, betas=_BETAS, weight_decay=0.0, min_8bit_size=MIN_8BIT_SIZE
    )
    return optimizer


def learning_rate(
    peak: float, step: int, settings: OptimConfig | SftStage, max_steps: int
) -> float:
    """Linear warm-up over `settings.warmup_steps`, then constant, or linear or cosine to zero.

    `step` counts from 0.
    """
    if step < settings.warmup_steps:
        return peak * (step + 1) / (settings.warmup_steps + 1)
    if settings.schedule == "constant":
        return peak
    span = max(1, max_steps - settings.warmup_steps)
    progress = min(1.0, (step - settings.warmup_steps) / span)
    if settings.schedule == "linear":
        return peak * (1.0 - progress)
    return peak * 0.5 * (1.0 + math.cos(math.pi * progress))
