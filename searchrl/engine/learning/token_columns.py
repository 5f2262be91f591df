"""What an update saw of each rollout, token by token, read off its micro-batch.

Owns the reading; `TokenColumns` is the result. The learner reports it, `records` writes it.
Shapes: N trained tokens of a micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from searchrl.core.trajectory import TokenColumns
from searchrl.engine.learning.packing import MicroBatch

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
