"""Algorithms: an advantage function, a loss function and a reduction, passed as functions.

Owns the `Algorithm` record, the built-in algorithms, and which numbers a run uses where it sets
none. The mathematics lives in `core`; nothing here chooses a loss by string inside a loop. Torch is
imported by the factories, not by this module, so that listing algorithms stays light. The learner
and `train` call all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from searchrl.config.sections import AlgorithmConfig
from searchrl.core import advantage
from searchrl.core.advantage import (
    AdvantageFn,
    TargetFn,
    dr_grpo_advantages,
    grpo_advantages,
    reinforce_pp_baseline_advantages,
    rloo_advantages,
)
from searchrl.core.group import Group, Trainable
from searchrl.core.reduction import LossSettings

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Parameter

    from searchrl.core.columns import LossColumns, LossStats

    LossFn = Callable[[LossColumns, LossSettings], tuple[Tensor, LossStats]]

AtLeastZero = Annotated[float, Field(ge=0)]
AtLeastOne = Annotated[float, Field(ge=1)]
Count = Annotated[int, Field(ge=1)]
Groups = Sequence[Group[Trainable]]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """What turns scored rollouts into a gradient.

    `advantages` sees the whole optimiser step and returns one per rollout, turn or token. `loss` is
    `loss(columns, settings) -> (loss, LossStats)`, like `core.loss.ppo_clip_loss`. `reduction`
    names a `core.reduction.Reduction`; `constant` divides by `rollout.max_total_tokens`. `extend`
    may add rollouts to groups, `parameters` may add trainable ones, `state_dict` is checkpointed
    and `load_state_dict` restores it; all of these do nothing by default. Raises TypeError for
    `targets` without `needs_values`.
    """

    name: str
    advantages: AdvantageFn
    loss: LossFn
    reduction: str = "sequence-mean"
    extend: Callable[[Groups, int], Groups] = lambda groups, step: groups
    parameters: Callable[[], Iterable[Parameter]] = tuple
    state_dict: Callable[[], Mapping[str, Any]] = dict
    load_state_dict: Callable[[Mapping[str, Any]], None] = lambda state: None
    clip_low: float = 0.2
    """Of the algorithm, like `clip_high` and `beta`: used where the run sets none."""
    clip_high: float = 0.2
    beta: float = 1e-3
    needs_trainer_logp: bool = False
    """Old log-probs are recomputed by the trainer before the update, not the sampler's record."""
    trains_entropy: bool = False
    """Gradients flow through `LossColumns.entropy_T` too, which takes a second pass of the head."""
    holds_solved_groups: bool = False
    """All-correct groups, though dead, get a `LossColumns.hold_weight_T`: for LLDS."""
    max_refills: int | None = None
    """Dynamic sampling: how often groups of one constant reward are replaced by other prompts.

    None: never, and no such metric.
    """
    length_penalty: Callable[[int, int], float] | None = None
    """(tokens the model wrote, `rollout.max_total_tokens`) -> added to the reward, at most 0."""
    needs_values: bool = False
    """Its advantages read `StepScores.values`: the policy must have a critic."""
    targets: TargetFn | None = None
    """What values are to become, per turn: `LossColumns.target_T`, beside `value_T`. With
    `needs_values` alone."""

    def __post_init__(self) -> None:
        """Raise TypeError for targets without values."""
        if self.targets is not None and not self.needs_values:
            raise TypeError(
                f"algorithm '{self.name}' has targets, which are what values are to become, and "
                "asks for no values: add needs_values=True"
            )

    @property
    def reads_turn_scores(self) -> bool:
        """Whether its advantages may read the scores of single turns; those of `core` do not."""
        function: Any = self.advantages
        while isinstance(function, partial):
            function = function.func
        return function not in advantage.REWARD_ONLY

    def resolve(self, settings: AlgorithmConfig) -> LossSettings:
        """Return the numbers of a run: its own, and the algorithm's where it sets none."""
        given = settings.clip_low, settings.clip_high, settings.beta
        own = self.clip_low, self.clip_high, self.beta
        clip_low, clip_high, beta = (
            mine if value is None else value for value, mine in zip(given, own, strict=True)
        )
        reduction = self.reduction if settings.reduction == "auto" else settings.reduction
        return LossSettings(clip_low, clip_high, beta, reduction)

    def length_penalty_of(self, max_total_tokens: int) -> Callable[[int], float] | None:
        """Return the length penalty of a run as a function of the tokens alone."""
        penalty = self.length_penalty
        return None if penalty is None else lambda num_tokens: penalty(num_tokens, max_total_tokens)


def _clipped(
    name: str, advantages: AdvantageFn, reduction: str = "sequence-mean", **more: Any
) -> Algorithm:
    """An algorithm with the loss of PPO-clip."""
    from searchrl.core.loss import ppo_clip_loss

    return Algorithm(name, advantages, ppo_clip_loss, reduction, **more)


def make_grpo() -> Algorithm:
    """GRPO (DeepSeekMath, arXiv 2402.03300): sequence-mean of token-mean, PPO-clip, k3 KL."""
    return _clipped("grpo", grpo_advantages)


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
        needs_trainer_logp=True,
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

    return Algorithm("tis", grpo_advantages, partial(tis_loss, cap=cap), needs_trainer_logp=True)


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
        needs_trainer_logp=True,
    )


def make_llds(*, coefficient: AtLeastZero = 0.1) -> Algorithm:
    """GRPO with LLDS (arXiv 2512.04220), against the collapse of search agents.

    Args:
        coefficient: pull on tokens of good rollouts that became less likely; 0.1 to 0.2.
    """
    from searchrl.core.losses import llds_loss

    # Against the sampler's record, rounding would count as a fall in half of all rollouts.
    return Algorithm(
        "llds", grpo_advantages, partial(llds_loss, coefficient=coefficient),
        needs_trainer_logp=True, holds_solved_groups=True,
    )  # fmt: skip
