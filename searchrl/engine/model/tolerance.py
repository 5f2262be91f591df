"""Limits for the difference of sampler and trainer log-probs: rounding, and nothing else.

Measured with the embedded model, the mean difference was 0.3 unit roundoffs in bfloat16, 0.2 in
float16 and 2 in float32, the largest about 20. The limits are 10 roundoffs, and 0.001 nats for
float32, which GPUs may multiply with the mantissa of float16. Faults (another temperature, a stale
cache) are tenths of a nat.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

_MEAN = {torch.float16: 0.005, torch.bfloat16: 0.04}
_MEAN_ELSE = 0.001
_TOKEN = 50.0
"""One token may differ by so many times the mean: rounding has outliers where logits are large."""


class Tolerance(NamedTuple):
    """Limits in nats."""

    mean: float
    """Largest mean difference per token."""
    token: float
    """Largest difference at one token."""


def tolerance_of(dtype: torch.dtype, mean: float | None = None) -> Tolerance:
    """The limits for a model that computes in `dtype`; `mean` replaces the one of the dtype."""
    limit = _MEAN.get(dtype, _MEAN_ELSE) if mean is None else mean
    return Tolerance(limit, _TOKEN * limit)
