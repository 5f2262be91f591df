"""PPO with a critic for policies that decide: advantages by GAE, a clipped loss, a value loss.

    loss = - J_clip - entropy_weight * H + value_weight * (target - value)^2

J_clip as in Schulman et al. 2017, equation 7. Owns the algorithm `control-ppo`. Advantages are
normalised over all turns of the step that were scored. An episode that was cut goes on in the value
of the last state that is known; one that ended has 0 there. Shape suffix: T tokens of a
micro-batch, which are choices here. Left out: clipped values, and a target KL that ends a step
early.
"""

from __future__ import annotations

import statistics
from functools import partial
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from searchrl.algorithms import Algorithm
from searchrl.core.advantage import StepScores
from searchrl_control.learning.gae import Estimates, estimate

if TYPE_CHECKING:
    from torch import Tensor

    from searchrl.core.columns import LossColumns, LossStats
    from searchrl.core.reduction import LossSettings

Share = Annotated[float, Field(ge=0, le=1)]
AtLeastZero = Annotated[float, Field(ge=0)]

_DELTA = 1e-8


def make_ppo(
    *,
    discount: Share = 1.0,
    decay: Share = 0.95,
    value_weight: AtLeastZero = 0.5,
    entropy_weight: AtLeastZero = 0.01,
) -> Algorithm:
    """The algorithm `control-ppo`.

    Args:
        discount: of later rewards; 1, because episodes have five steps.
        decay: lambda of GAE.
        value_weight: of the value loss.
        entropy_weight: of the entropy over legal actions; it keeps all of them alive.
    """
    return Algorithm(
        "control-ppo",
        partial(advantages, discount=discount, decay=decay),
        partial(loss, value_weight=value_weight, entropy_weight=entropy_weight),
        "token-mean",
        beta=0.0,
        trains_entropy=entropy_weight > 0,
        needs_values=True,
        targets=partial(targets, discount=discount, decay=decay),
    )


def advantages(step: StepScores, *, discount: float, decay: float) -> list[list[float]]:
    """One advantage per turn, normalised over the scored rollouts; zeros for the others."""
    told = [list(one.advantages) for one in _estimate(step, discount, decay)]
    pairs = zip(told, step.is_scored, strict=True)
    scored = [value for one, is_scored in pairs if is_scored for value in one]
    mean = statistics.fmean(scored) if scored else 0.0
    spread = statistics.pstdev(scored) if scored else 0.0
    return [
        [(value - mean) / (spread + _DELTA) if is_scored else 0.0 for value in one]
        for one, is_scored in zip(told, step.is_scored, strict=True)
    ]


def targets(step: StepScores, *, discount: float, decay: float) -> list[list[float]]:
    """What the value of every turn is to become; the value itself where nothing was scored."""
    return [list(one.targets) for one in _estimate(step, discount, decay)]


def loss(
    columns: LossColumns, settings: LossSettings, *, value_weight: float, entropy_weight: float
) -> tuple[Tensor, LossStats]:
    """The loss of one micro-batch and its statistics.

    Raises:
        ValueError: there are no values, or `beta` is above 0 without a reference.
    """
    import torch

    from searchrl.core.columns import clamped
    from searchrl.core.loss import kl_penalty

    if columns.value_T is None or columns.target_T is None:
        raise ValueError("control-ppo needs the values of a critic, and their targets")
    ratio_T = torch.exp(clamped(columns.logp_T - columns.old_logp_T))
    surr1_T = ratio_T * columns.adv_T
    surr2_T = ratio_T.clamp(1 - settings.clip_low, 1 + settings.clip_high) * columns.adv_T
    is_clipped_T = surr2_T < surr1_T
    objective_T = torch.where(is_clipped_T, surr2_T, surr1_T) - kl_penalty(columns, settings)
    if entropy_weight and columns.entropy_T is not None:
        objective_T = objective_T + entropy_weight * columns.entropy_T
    errors_T = (columns.target_T - columns.value_T).square()
    value_loss = value_weight * (columns.weight_T * errors_T).sum()
    return columns.reduce(objective_T, ratio_T, is_clipped_T=is_clipped_T, extra_loss=value_loss)


def _estimate(step: StepScores, discount: float, decay: float) -> list[Estimates]:
    """The estimates of every rollout; of one that is not scored, no reward is read."""
    if step.values is None or step.turn_rewards is None:
        raise ValueError("control-ppo needs a policy with a critic, and the reward of every turn")
    found = []
    cut = step.is_cut or [False] * len(step.values)
    columns = zip(step.values, step.turn_rewards, step.is_scored, cut, strict=True)
    for values, rewards, is_scored, is_cut in columns:
        count = len(rewards)
        before = tuple(values[:count])
        if not is_scored:
            found.append(Estimates((0.0,) * count, before))
            continue
        is_end = [place == count - 1 for place in range(count)]
        after = [values[-1] if is_cut else 0.0] * count
        found.append(estimate(rewards, before, is_end, after, discount=discount, decay=decay))
    return found
