"""Algorithms: an advantage function, a loss function and a reduction, passed as functions.

Owns the `Algorithm` record and the built-in GRPO, Dr. GRPO and RLOO. The mathematics lives in
`core`; nothing here chooses a loss by string inside a loop. Torch is imported by the factories,
not by this module, so that listing algorithms stays light. The learner calls all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from searchrl.core.advantage import (
    AdvantageFn,
    dr_grpo_advantages,
    grpo_advantages,
    rloo_advantages,
)

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Parameter

    from searchrl.core.loss import LossStats

    LossFn = Callable[..., tuple[Tensor, LossStats]]


def _keep_groups(groups: Sequence[Any], step: int) -> Sequence[Any]:
    return groups


def _no_parameters() -> Iterable[Parameter]:
    return ()


def _no_state() -> Mapping[str, Any]:
    return {}


def _ignore_state(state: Mapping[str, Any]) -> None:
    """Nothing to restore."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """What turns scored rollouts into a gradient.

    `advantages` sees the whole optimiser step and returns one per rollout, turn or token. `loss`
    has the signature of `core.loss.ppo_clip_loss`. `reduction` names a `core.loss.Reduction`;
    `constant` divides by `rollout.max_total_tokens`. `extend` may add rollouts to groups,
    `parameters` may add trainable ones, `state_dict` is checkpointed and `load_state_dict`
    restores it; all of these do nothing by default.
    """

    name: str
    advantages: AdvantageFn
    loss: LossFn
    reduction: str = "sequence-mean"
    extend: Callable[[Sequence[Any], int], Sequence[Any]] = _keep_groups
    parameters: Callable[[], Iterable[Parameter]] = _no_parameters
    state_dict: Callable[[], Mapping[str, Any]] = _no_state
    load_state_dict: Callable[[Mapping[str, Any]], None] = _ignore_state


def make_grpo() -> Algorithm:
    """GRPO (DeepSeekMath, arXiv 2402.03300): sequence-mean of token-mean, PPO-clip, k3 KL."""
    from searchrl.core.loss import ppo_clip_loss

    return Algorithm("grpo", grpo_advantages, ppo_clip_loss, "sequence-mean")


def make_dr_grpo() -> Algorithm:
    """Dr. GRPO (arXiv 2503.20783): no division by std, a constant instead of the length."""
    from searchrl.core.loss import ppo_clip_loss

    return Algorithm("dr_grpo", dr_grpo_advantages, ppo_clip_loss, "constant")


def make_rloo() -> Algorithm:
    """RLOO (arXiv 2402.14740): each rollout against the mean of the others."""
    from searchrl.core.loss import ppo_clip_loss

    return Algorithm("rloo", rloo_advantages, ppo_clip_loss, "token-mean")
