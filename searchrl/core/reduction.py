"""Settings of a loss, and the weights that its reduction gives the tokens of a step.

Owns the clip range, beta and the reduction (`LossSettings`), and the weight of a token
(`token_weights`). A rollout weighs what it weighs in the *whole* optimiser step: weights are taken
before the split into micro-batches, so no split, accumulation or world size changes a gradient.
The packer calls `token_weights` once per step. Standard library only: configuration and checks
read these names without importing torch.

Shape suffix: B rollouts of the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Reduction(StrEnum):
    """Weights of tokens. n_i: model tokens of rollout i, S: rollouts with any.

    The choice decides whose tokens count, not how fast training goes.
    """

    TOKEN_MEAN = "token-mean"
    """Every model token weighs 1 / sum n_i: long rollouts count more (DAPO)."""
    SEQUENCE_MEAN = "sequence-mean"
    """1 / (S n_i): every rollout counts alike, tokens of long ones less (original GRPO)."""
    CONSTANT = "constant"
    """1 / (S * constant): the sum over tokens without a length bias (Dr. GRPO)."""


@dataclass(frozen=True, slots=True)
class LossSettings:
    """The numbers of a loss that a run can set. The defaults are GRPO's, without a reference.

    Raises ValueError for a negative `clip_low`, `clip_high` or `beta`.
    """

    clip_low: float = 0.2
    """A ratio is clipped below 1 - clip_low ..."""
    clip_high: float = 0.2
    """... and above 1 + clip_high."""
    beta: float = 0.0
    """Weight of the KL to the reference; above 0 the columns need `ref_logp_T`."""
    reduction: str = "sequence-mean"
    """Name of a `Reduction`. No loss reads it: the weights of the columns contain it."""

    def __post_init__(self) -> None:
        clip_low, clip_high, beta = self.clip_low, self.clip_high, self.beta
        if not (clip_low >= 0 and clip_high >= 0 and beta >= 0):
            raise ValueError(f"expected {clip_low=}, {clip_high=} and {beta=} to be >= 0")

    def describe(self) -> str:
        """One line for a person: `clip 0.2/0.28, beta 0, token-mean`."""
        clip = f"clip {self.clip_low:g}/{self.clip_high:g}"
        return f"{clip}, beta {self.beta:g}, {self.reduction}"


def token_weights(
    num_tokens_B: Sequence[int], reduction: Reduction, *, constant: int | None = None
) -> list[float]:
    """Return the weight of one model token of each rollout, so that loss = -sum_t weight_t J_t.

    `num_tokens_B` are the trainable model tokens of every rollout of the whole optimiser step,
    over all micro-batches and workers; 0 for a rollout that takes no part (unscored, or in a dead
    group at beta 0). Those get weight 0 and enter no denominator. `Reduction.CONSTANT` alone reads
    `constant`, the token budget. Workers that *average* gradients must multiply the loss by their
    number.

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
