"""Trajectories to tensors: the columns a loss reads, split into mini- and micro-batches.

Owns what enters a training step (unscored rollouts and, without a KL term, dead groups leave it),
the broadcast of advantages onto tokens, the token weights, which carry the denominator of a whole
optimiser step and are fixed before any split, and both splits: mini-batches are optimiser steps
of their own, micro-batches change memory only. Only MODEL tokens with a finite sampler log-prob
are trained. The learner is its only caller. Shapes: B rollouts, T tokens of one, N trained tokens
of a micro-batch.
"""

from __future__ import annotations

import math
import numbers
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from searchrl.core.advantage import Advantage, AdvantageFn, StepScores, dead_groups
from searchrl.core.loss import Reduction, token_weights
from searchrl.core.trajectory import Author, Origin, Trajectory, is_finite
from searchrl.engine.model.layout import Layout, num_suffix_tokens, pack, padded_layout
from searchrl.errors import PluginError


@dataclass(frozen=True, slots=True)
class TrainItem:
    """One rollout offered to a step. `reward` None: unscored, never trained on."""

    trajectory: Trajectory
    reward: float | None
    turn_scores: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class PackedRollout:
    """One rollout: `ids` and `mask` over all its tokens, the other columns over the trained ones.

    `mask` marks the tokens that are trained. `advantage` is one number where the algorithm gave
    one, else a column.
    """

    rollout_id: str
    group_id: str
    num_prompt: int
    ids: list[int]
    mask: list[bool]
    sampler_logp: list[float]
    advantage: float | tuple[float, ...]
    weight: float


@dataclass(frozen=True, slots=True)
class PackedStep:
    """Everything one optimiser step trains on, and what left it."""

    rollouts: tuple[PackedRollout, ...]
    advantages: dict[str, Advantage]
    num_unscored: int
    num_groups: int
    num_dead_groups: int
    num_nonfinite: int


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Some rollouts and the columns that a loss reads: one entry per trained token, in order.

    `layout` says how the rollouts go through the model; its log-probs stand in the same order.
    """

    rollouts: tuple[PackedRollout, ...]
    layout: Layout
    sampler_logp_N: Tensor
    adv_N: Tensor
    weight_N: Tensor
    rollout_N: Tensor
    """Position in `rollouts` of the rollout that a token belongs to."""

    @property
    def rollout_ids(self) -> tuple[str, ...]:
        """Names of the rollouts, in order."""
        return tuple(rollout.rollout_id for rollout in self.rollouts)

    @property
    def num_tokens(self) -> list[int]:
        """Trained tokens of each rollout: how to split a column."""
        return [sum(rollout.mask) for rollout in self.rollouts]


def pack_step(
    items: Sequence[TrainItem],
    advantages: AdvantageFn,
    reduction: Reduction,
    *,
    keep_dead_groups: bool,
    constant: int,
    owner: str = "the algorithm",
) -> PackedStep:
    """Decide advantages, mask, denominator and reduction for one whole optimiser step.

    Args:
        items: all rollouts of the step; groups may be of any size.
        advantages: sees every score of the step at once.
        reduction: how tokens become one number.
        keep_dead_groups: True when beta > 0: the KL term still has a gradient there.
        constant: token budget for the constant reduction.
        owner: who is named for advantages that fit no rollout.

    Raises:
        ValueError: if a demonstration is offered (it has no sampler log-probs).
        PluginError: if the advantages are not one per rollout, per turn or per token.
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
        num_turns=[len(item.trajectory.turns) for item in items],
        num_tokens=[item.trajectory.num_model_tokens for item in items],
    )
    values = _checked(advantages(scores), items, owner)
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
            item.trajectory.group_id,
            item.trajectory.num_prompt_tokens,
            list(item.trajectory.ids),
            mask,
            [
                logp or 0.0
                for logp, is_trained in zip(item.trajectory.sampler_logps, mask, strict=True)
                if is_trained
            ],
            _broadcast(value, item.trajectory, mask),
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


def _checked(values: Any, items: Sequence[TrainItem], owner: str) -> list[Advantage]:
    """The advantages as plain numbers and tuples, each fit for its rollout.

    What stands for an unscored rollout is never read and becomes 0.
    """
    values = _plain(values)
    if not isinstance(values, list) or len(values) != len(items):
        got = len(values) if isinstance(values, list) else type(values).__name__
        raise PluginError(f"{owner}: expected {len(items)} advantages, one per rollout, got {got}")
    checked: list[Advantage] = []
    for value, item in zip(map(_plain, values), items, strict=True):
        if item.reward is None:
            checked.append(0.0)
            continue
        name, trajectory = item.trajectory.rollout_id, item.trajectory
        given = [_plain(one) for one in value] if isinstance(value, list) else [value]
        for one in given:
            if not isinstance(one, numbers.Real) or not math.isfinite(one):
                raise PluginError(f"{owner}: the advantage of {name} is {one!r}; expected a number")
        turns, tokens = len(trajectory.turns), trajectory.num_model_tokens
        if isinstance(value, list) and len(value) not in (turns, tokens):
            raise PluginError(
                f"{owner}: {len(value)} advantages for {name}; expected one number, {turns} (one "
                f"per turn) or {tokens} (one per token the model wrote)"
            )
        column = tuple(float(one) for one in given)
        checked.append(column if isinstance(value, list) else column[0])
    return checked


def _plain(value: Any) -> Any:
    """Lists for tuples, arrays and tensors; anything else as it is."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return list(value) if isinstance(value, tuple) else value


def _broadcast(
    value: Advantage, trajectory: Trajectory, mask: Sequence[bool]
) -> float | tuple[float, ...]:
    """One number as it is; one per turn or per model token as a column over the trained tokens."""
    if not isinstance(value, Sequence):
        return value
    # As many turns as tokens: every turn is one token, and both readings agree.
    if len(value) == len(trajectory.turns):
        lengths = [turn.stop - turn.start for turn in trajectory.turns]
        value = [one for one, n in zip(value, lengths, strict=True) for _ in range(n)]
    authors = zip(trajectory.authors, mask, strict=True)
    is_trained = [trained for author, trained in authors if author is Author.MODEL]
    return tuple(one for one, trained in zip(value, is_trained, strict=True) if trained)


def _trained(trajectory: Trajectory) -> list[bool]:
    """True at the tokens the model wrote and whose sampler log-prob is finite."""
    return [
        author is Author.MODEL and is_finite(logp)
        for author, logp in zip(trajectory.authors, trajectory.sampler_logps, strict=True)
    ]


def mini_batches(
    rollouts: Sequence[PackedRollout],
    num_batches: int,
    reduction: Reduction,
    *,
    constant: int,
    key: int,
) -> list[tuple[PackedRollout, ...]]:
    """Split a training step into optimiser steps of whole groups, each with its own denominator.

    At most `num_batches`, and as even as groups are; which groups meet is a function of `key`.
    """
    if num_batches == 1 or not rollouts:
        return [tuple(rollouts)] if rollouts else []
    groups = list(dict.fromkeys(rollout.group_id for rollout in rollouts))
    random.Random(key).shuffle(groups)
    count = min(num_batches, len(groups))
    batch_of = {group: number * count // len(groups) for number, group in enumerate(groups)}
    batches = []
    for number in range(count):
        chosen = [rollout for rollout in rollouts if batch_of[rollout.group_id] == number]
        weights = token_weights([sum(r.mask) for r in chosen], reduction, constant=constant)
        batches.append(tuple(replace(r, weight=w) for r, w in zip(chosen, weights, strict=True)))
    return batches


def micro_batches(
    rollouts: Sequence[PackedRollout],
    max_tokens: int,
    device: torch.device,
    *,
    is_packed: bool = False,
) -> Iterator[MicroBatch]:
    """Split into batches of at most `max_tokens` tokens that are computed, padding included.

    A rollout longer than `max_tokens` gets a batch of its own. Packed, a group stays together if
    it fits: every part of a group computes the prompt. The split changes no gradient: weights
    were fixed over the whole step.
    """
    parts = _packs(rollouts, max_tokens) if is_packed else _pads(rollouts, max_tokens)
    return (_micro_batch(part, device, is_packed) for part in parts)


def _pads(rollouts: Sequence[PackedRollout], max_tokens: int) -> Iterator[list[PackedRollout]]:
    """Longest first: neighbours of like length need little padding."""
    ordered = sorted(rollouts, key=lambda r: -len(r.ids))
    start = 0
    while start < len(ordered):
        stop = start + max(1, max_tokens // len(ordered[start].ids))
        yield ordered[start:stop]
        start = stop


def _packs(rollouts: Sequence[PackedRollout], max_tokens: int) -> Iterator[list[PackedRollout]]:
    """Group after group."""
    part: list[PackedRollout] = []
    num_tokens = 0
    for group in _sharing(rollouts):
        num_suffixes = [num_suffix_tokens(rollout) for rollout in group]
        num_prompt = group[0].num_prompt
        if part and num_tokens + num_prompt + sum(num_suffixes) > max_tokens:
            yield part
            part, num_tokens = [], 0
        num_tokens += num_prompt
        for rollout, num_suffix in zip(group, num_suffixes, strict=True):
            if part and num_tokens + num_suffix > max_tokens:
                yield part
                part, num_tokens = [], num_prompt
            part.append(rollout)
            num_tokens += num_suffix
    if part:
        yield part


def _sharing(rollouts: Sequence[PackedRollout]) -> list[list[PackedRollout]]:
    """Rollouts that can share a prompt: of one group, and of one prompt to the last token."""
    groups: dict[tuple[str, tuple[int, ...]], list[PackedRollout]] = {}
    for rollout in rollouts:
        prompt = tuple(rollout.ids[: rollout.num_prompt])
        groups.setdefault((rollout.group_id, prompt), []).append(rollout)
    return list(groups.values())


def _micro_batch(
    rollouts: Sequence[PackedRollout], device: torch.device, is_packed: bool
) -> MicroBatch:
    columns: list[list[float]] = [[], [], []]
    owners: list[int] = []
    for number, rollout in enumerate(rollouts):
        num_tokens, advantage = sum(rollout.mask), rollout.advantage
        columns[0] += rollout.sampler_logp
        columns[1] += advantage if isinstance(advantage, tuple) else [advantage] * num_tokens
        columns[2] += [rollout.weight] * num_tokens
        owners += [number] * num_tokens
    layout = pack(rollouts, device) if is_packed else _padded(rollouts, device)
    logp_N, adv_N, weight_N = (torch.tensor(c, dtype=torch.float32, device=device) for c in columns)
    rollout_N = torch.tensor(owners, dtype=torch.long, device=device)
    return MicroBatch(tuple(rollouts), layout, logp_N, adv_N, weight_N, rollout_N)


def _padded(rollouts: Sequence[PackedRollout], device: torch.device) -> Layout:
    shape = (len(rollouts), max(len(rollout.ids) for rollout in rollouts))
    ids_BT = torch.zeros(shape, dtype=torch.long)
    mask_BT = torch.zeros(shape, dtype=torch.bool)
    for row, rollout in enumerate(rollouts):
        ids_BT[row, : len(rollout.ids)] = torch.tensor(rollout.ids)
        mask_BT[row, : len(rollout.ids)] = torch.tensor(rollout.mask)
    return padded_layout(ids_BT.to(device), mask_BT.to(device))
