"""What an update saw of each rollout, token by token: what a record shows beside the text.

Owns the record and how it is read off a micro-batch. The learner reports it, `records` writes it.
Shapes: N trained tokens of a micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from searchrl.engine.learning.packing import MicroBatch


class TokenColumns(NamedTuple):
    """What the first update on a rollout saw of it, over its trained tokens in order."""

    advantage: float | tuple[float, ...]
    """One number where the algorithm gave one for the whole rollout."""
    ratio: tuple[float, ...]
    """pi / sampler before that update."""
    entropy: tuple[float, ...]
    """Nats, of the full distribution at the sampling temperature."""


OnTokens = Callable[[str, TokenColumns], None]


def report_tokens(
    batch: MicroBatch, logp_N: Tensor, entropy_N: Tensor, on_tokens: OnTokens
) -> None:
    """Call `on_tokens` for each rollout of a micro-batch with what the update saw of it."""
    ratio_N = (logp_N - batch.sampler_logp_N).exp()
    counts = batch.num_tokens
    parts = zip(ratio_N.split(counts), entropy_N.split(counts), strict=True)
    for rollout, (ratios, entropies) in zip(batch.rollouts, parts, strict=True):
        on_tokens(
            rollout.rollout_id,
            TokenColumns(rollout.advantage, tuple(ratios.tolist()), tuple(entropies.tolist())),
        )
