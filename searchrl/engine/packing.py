"""Trajectories to tensors: the columns a loss reads, split into micro-batches.

Owns what enters an optimiser step (unscored rollouts and, without a KL term, dead groups leave
it), the token weights, which carry the denominator of the whole step and are fixed before any
split, and the padding. Only MODEL tokens with a finite sampler log-prob are in the mask. The
learner is its only caller. Shapes: B rollouts, T tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from searchrl.core.advantage import AdvantageFn, StepScores, dead_groups
from searchrl.core.loss import Reduction, token_weights
from searchrl.core.trajectory import Author, Origin, Trajectory, is_finite


@dataclass(frozen=True, slots=True)
class TrainItem:
    """One rollout offered to a step. `reward` None: unscored, never trained on."""

    trajectory: Trajectory
    reward: float | None
    turn_scores: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class PackedRollout:
    """One rollout's columns over its tokens; `mask` marks the tokens that are trained."""

    rollout_id: str
    ids: list[int]
    mask: list[bool]
    sampler_logp: list[float]
    advantage: float
    weight: float


@dataclass(frozen=True, slots=True)
class PackedStep:
    """Everything one optimiser step trains on, and what left it."""

    rollouts: tuple[PackedRollout, ...]
    advantages: dict[str, float]
    num_unscored: int
    num_groups: int
    num_dead_groups: int
    num_nonfinite: int


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Right-padded columns of some rollouts; padding is outside the mask and never read."""

    rollout_ids: tuple[str, ...]
    ids_BT: Tensor
    mask_BT: Tensor
    sampler_logp_BT: Tensor
    adv_BT: Tensor
    weight_BT: Tensor


def pack_step(
    items: Sequence[TrainItem],
    advantages: AdvantageFn,
    reduction: Reduction,
    *,
    keep_dead_groups: bool,
    constant: int,
) -> PackedStep:
    """Decide advantages, mask, denominator and reduction for one whole optimiser step.

    Args:
        items: all rollouts of the step; groups may be of any size.
        advantages: sees every score of the step at once.
        reduction: how tokens become one number.
        keep_dead_groups: True when beta > 0: the KL term still has a gradient there.
        constant: token budget for the constant reduction.

    Raises:
        ValueError: if a demonstration is offered (it has no sampler log-probs).
    """
    for item in items:
        if item.trajectory.origin is Origin.DEMONSTRATION:
            raise ValueError(
                f"rollout {item.trajectory.rollout_id} is a demonstration: it has no sampler "
                "log-probs and cannot enter a ratio; use sft"
            )
    groups = [item.trajectory.group_id for item in items]
    is_scored = [item.reward is not None for item in items]
    has_turns = any(item.turn_scores is not None for item in items)
    scores = StepScores(
        rewards=[0.0 if item.reward is None else item.reward for item in items],
        group_ids=groups,
        is_scored=is_scored,
        turn_scores=[item.turn_scores or () for item in items] if has_turns else None,
    )
    values = advantages(scores)
    dead = dead_groups(values, groups, is_scored)
    enters = [
        scored and (keep_dead_groups or group not in dead)
        for scored, group in zip(is_scored, groups, strict=True)
    ]
    masks = [
        _trained(item.trajectory) if enter else []
        for item, enter in zip(items, enters, strict=True)
    ]
    weights = token_weights([sum(mask) for mask in masks], reduction, constant=constant)
    packed = [
        PackedRollout(
            item.trajectory.rollout_id,
            list(item.trajectory.ids),
            mask,
            [logp or 0.0 for logp in item.trajectory.sampler_logps],
            value,
            weight,
        )
        for item, mask, value, weight in zip(items, masks, values, weights, strict=True)
        if any(mask)
    ]
    return PackedStep(
        rollouts=tuple(packed),
        advantages={
            item.trajectory.rollout_id: value for item, value in zip(items, values, strict=True)
        },
        num_unscored=is_scored.count(False),
        num_groups=len(set(groups)),
        num_dead_groups=len(dead),
        num_nonfinite=sum(
            item.trajectory.num_model_tokens - sum(mask)
            for item, mask, enter in zip(items, masks, enters, strict=True)
            if enter
        ),
    )


def _trained(trajectory: Trajectory) -> list[bool]:
    """True at the tokens the model wrote and whose sampler log-prob is finite."""
    return [
        author is Author.MODEL and is_finite(logp)
        for author, logp in zip(trajectory.authors, trajectory.sampler_logps, strict=True)
    ]


def micro_batches(
    rollouts: Sequence[PackedRollout], max_tokens: int, device: torch.device
) -> Iterator[MicroBatch]:
    """Split into right-padded batches of at most `max_tokens` padded tokens, longest first.

    A rollout longer than `max_tokens` gets a batch of its own. The split changes no gradient:
    weights were fixed over the whole step.
    """
    ordered = sorted(rollouts, key=lambda r: -len(r.ids))
    start = 0
    while start < len(ordered):
        width = len(ordered[start].ids)
        stop = start + max(1, max_tokens // width)
        yield _pad(ordered[start:stop], width, device)
        start = stop


def _pad(rollouts: Sequence[PackedRollout], width: int, device: torch.device) -> MicroBatch:
    shape = (len(rollouts), width)
    ids_BT = torch.zeros(shape, dtype=torch.long)
    mask_BT = torch.zeros(shape, dtype=torch.bool)
    logp_BT, adv_BT, weight_BT = (torch.zeros(shape) for _ in range(3))
    for row, rollout in enumerate(rollouts):
        length = len(rollout.ids)
        ids_BT[row, :length] = torch.tensor(rollout.ids)
        mask_BT[row, :length] = torch.tensor(rollout.mask)
        logp_BT[row, :length] = torch.tensor(rollout.sampler_logp)
        adv_BT[row, :length] = rollout.advantage
        weight_BT[row, :length] = rollout.weight
    return MicroBatch(
        tuple(rollout.rollout_id for rollout in rollouts),
        *(t.to(device) for t in (ids_BT, mask_BT, logp_BT, adv_BT, weight_BT)),
    )
