"""The built-in algorithms, each a factory. Torch is imported by them, not by this module.

So listing algorithms stays light.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from pydantic import Field

from searchrl.algorithms.record import Algorithm, Ask
from searchrl.core import advantage
from searchrl.core.advantage import (
    AdvantageFn,
    dr_grpo_advantages,
    grpo_advantages,
    reinforce_pp_baseline_advantages,
    rloo_advantages,
    turn_advantages,
)

AtLeastZero = Annotated[float, Field(ge=0)]
AtLeastOne = Annotated[float, Field(ge=1)]
Count = Annotated[int, Field(ge=1)]


def _clipped(
    name: str, advantages: AdvantageFn, reduction: str = "sequence-mean", **more: Any
) -> Algorithm:
    from searchrl.core.loss import ppo_clip_loss

    return Algorithm(name, advantages, ppo_clip_loss, reduction, **more)


def make_grpo() -> Algorithm:
    """GRPO (DeepSeekMath, arXiv 2402.03300): sequence-mean of token-mean, PPO-clip, k3 KL."""
    return _clipped("grpo", grpo_advantages)


def make_grpo_turns() -> Algorithm:
    """GRPO with process rewards (arXiv 2402.03300, section 4.1.3): an advantage for every turn."""
    return _clipped("grpo_turns", turn_advantages, asks=[Ask.TURN_REWARDS])


def make_dr_grpo() -> Algorithm:
    """Dr. GRPO (arXiv 2503.20783): no division by std, a constant instead of the length."""
    return _clipped("dr_grpo", dr_grpo_advantages, "constant")


def make_rloo() -> Algorithm:
    """RLOO (arXiv 2402.14740): each rollout against the mean of the others."""
    return _clipped("rloo", rloo_advantages, "token-mean")


def make_reinforce_pp() -> Algorithm:
    """REINFORCE++-baseline (arXiv 2501.03262): GRPO with the standard deviation of the step."""
    return _clipped("reinforce_pp", reinforce_pp_baseline_advantages)


def make_dapo(
    *,
    max_refills: Annotated[int, Field(ge=0)] = 3,
    overlong_limit: Count | None = None,
    overlong_buffer: Count | None = None,
    overlong_penalty: AtLeastZero = 1.0,
) -> Algorithm:
    """DAPO (arXiv 2503.14476): clip-higher, token-mean, no KL, dynamic sampling, overlong penalty.

    Args:
        max_refills: how often the groups of a step whose reward is constant are replaced.
        overlong_limit: tokens written by the model at which the penalty is whole; by default
            `rollout.max_total_tokens`.
        overlong_buffer: over how many tokens before the limit it rises; by default a fifth of
            the limit, as in the paper.
        overlong_penalty: what the whole penalty takes from the reward; 0 for none.
    """

    def penalty(num_tokens: int, max_total_tokens: int) -> float:
        limit = overlong_limit or max_total_tokens
        buffer, weight = overlong_buffer or max(1, limit // 5), overlong_penalty
        return advantage.overlong_penalty(num_tokens, limit=limit, buffer=buffer, weight=weight)

    return _clipped(
        "dapo",
        grpo_advantages,
        "token-mean",
        clip_high=0.28,
        beta=0.0,
        max_refills=max_refills,
        length_penalty=penalty if overlong_penalty else None,
    )


def make_gspo() -> Algorithm:
    """GSPO (arXiv 2507.18071): the ratio of a rollout, clipped as a whole; no KL."""
    from searchrl.core.losses import gspo_loss

    # Against the sampler's record, rounding alone leaves so narrow a range: in bf16 nearly half of
    # all tokens would be clipped before anything was learned.
    return Algorithm(
        "gspo", grpo_advantages, gspo_loss, clip_low=3e-4, clip_high=4e-4, beta=0.0,
        asks=[Ask.TRAINER_LOGPS],
    )  # fmt: skip


def make_cispo() -> Algorithm:
    """CISPO (arXiv 2506.13585): weights capped at 1 + clip_high, none from below; no KL.

    The paper does not give its cap; 5 is in the range in which ScaleRL (arXiv 2510.13786) used it.
    """
    from searchrl.core.losses import cispo_loss

    return Algorithm(
        "cispo", grpo_advantages, cispo_loss, "token-mean", clip_low=1.0, clip_high=4.0, beta=0.0
    )


def make_tis(*, cap: AtLeastOne = 2.0) -> Algorithm:
    """GRPO with truncated importance sampling (Yao et al. 2025) against another sampler.

    Args:
        cap: largest weight of a token, trainer over sampler.
    """
    from searchrl.core.losses import tis_loss

    return Algorithm(
        "tis", grpo_advantages, partial(tis_loss, cap=cap),
        asks=[Ask.TRAINER_LOGPS], corrects_sampler=True,
    )  # fmt: skip


def make_masked_tis(
    *, low: Annotated[float, Field(ge=0, le=1)] = 0.5, high: AtLeastOne = 5.0
) -> Algorithm:
    """GRPO with masked importance sampling (IcePop, arXiv 2510.18855).

    Args:
        low: a token whose trainer over sampler is below gives no policy gradient.
        high: nor does one above.
    """
    from searchrl.core.losses import masked_tis_loss

    return Algorithm(
        "masked_tis",
        grpo_advantages,
        partial(masked_tis_loss, low=low, high=high),
        asks=[Ask.TRAINER_LOGPS],
        corrects_sampler=True,
    )


def make_llds(*, coefficient: AtLeastZero = 0.1) -> Algorithm:
    """GRPO with LLDS (arXiv 2512.04220), against the collapse of search agents.

    Args:
        coefficient: pull on tokens of good rollouts that became less likely; 0.1 to 0.2.
    """
    from searchrl.core.llds import hold_columns, llds_loss

    # Against the sampler's record, rounding would count as a fall in half of all rollouts.
    return Algorithm(
        "llds", grpo_advantages, partial(llds_loss, coefficient=coefficient),
        asks=[Ask.TRAINER_LOGPS], columns=hold_columns, terms=["hold"],
    )  # fmt: skip
