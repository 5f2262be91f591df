"""LLDS (arXiv 2512.04220): PPO-clip that holds up the likelihood of good rollouts.

    J_t as in PPO-clip, and + coefficient * hold_t * max(0, old_logp - logp) in the loss

Owns the column `hold`, which is the weight of a token in this term, and the term. Its denominator
is its own: the tokens with A >= 0, all-correct groups included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from searchrl.core.advantage import Advantage, StepScores, dead_groups, grpo_advantages
from searchrl.core.columns import LossColumns, LossStats, clamped
from searchrl.core.loss import kl_penalty
from searchrl.core.losses import clipped_surrogate
from searchrl.core.reduction import LossSettings


def hold_columns(step: StepScores) -> Mapping[str, Sequence[Advantage]]:
    """Return the column `hold`: 1 for rollouts with A >= 0 of groups that teach something.

    With one update per step nothing has fallen, so there is nothing to hold, and no column.
    """
    if step.max_updates < 2:
        return {}
    advantages = grpo_advantages(step)
    dead = dead_groups(advantages, step.group_ids, step.is_scored)
    held = set(step.group_ids) - (dead - solved_groups(step))
    pairs = zip(advantages, step.group_ids, strict=True)
    return {"hold": [float(value >= 0 and name in held) for value, name in pairs]}


def solved_groups(step: StepScores) -> set[str]:
    """Return the ids of the groups that are all correct: every scored reward is the step's best.

    Another scored rollout of the step must have less: otherwise the best reward may be that of a
    wrong answer. An all-correct group is dead, because its rewards are equal; LLDS still holds it.

    >>> step = StepScores([1, 1, 0, 0, 1, 0], ["a", "a", "b", "b", "c", "c"], [True] * 6)
    >>> solved_groups(step)
    {'a'}
    """
    rows = zip(step.rewards, step.group_ids, step.is_scored, strict=True)
    scored = [(reward, group_id) for reward, group_id, is_scored in rows if is_scored]
    best = max((reward for reward, _ in scored), default=0.0)
    below = {group_id for reward, group_id in scored if reward < best}
    return {group_id for _, group_id in scored} - below if below else set()


def llds_loss(
    columns: LossColumns, settings: LossSettings, *, coefficient: float = 0.1
) -> tuple[Tensor, LossStats]:
    """Return PPO-clip with LLDS's term, which keeps good rollouts from becoming unlikely.

    A segment whose total log-prob has fallen since the start of the update adds
    coefficient * max(0, old_logp - logp) to the loss at each of its tokens that fell: a pull up of
    constant strength. It acts from the second update on: at the first one nothing has fallen, if
    `old_logp_T` is the trainer's own; the sampler's record differs by rounding, which would pull
    half of the tokens. Needs `segment_T`. Raises ValueError for a negative `coefficient`.
    """
    if not coefficient >= 0:
        raise ValueError(f"expected {coefficient=} to be >= 0")
    hold_T = columns.extra.get("hold")
    if hold_T is None:
        hold_T = torch.where(columns.adv_T >= 0, columns.weight_T, 0.0)
    ratio_T = torch.exp(clamped(columns.logp_T - columns.old_logp_T))
    surrogate_T, is_clipped_T = clipped_surrogate(ratio_T, columns.adv_T, settings)
    fall_T = columns.old_logp_T - columns.logp_T
    is_held_T = hold_T > 0
    has_fallen_T = is_held_T & (columns.sum_per_segment(fall_T.detach()) > 0) & (fall_T > 0)
    # `where` and no clamp at 0: a token that did not move is not pulled.
    drop_T = torch.where(has_fallen_T, fall_T, 0.0)
    objective_T = surrogate_T - kl_penalty(columns, settings)
    pull = coefficient * (hold_T * drop_T).sum()
    sums = {"num_held": is_held_T.sum(), "sum_drop": drop_T.sum()}
    return columns.reduce(
        objective_T, ratio_T, is_clipped_T=is_clipped_T, extra_loss=pull, extra_sums=sums
    )
