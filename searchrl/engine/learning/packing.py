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

from searchrl.core.advantage import Advantage, AdvantageFn, StepScores, dead_groups, solved_groups
from searchrl.core.reduction import Reduction, token_weights
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
    """Of a token in the loss; 0: the rollout is here for LLDS alone."""
    hold_weight: float = 0.0
    """Of a token with A >= 0 in the LLDS term; 0: LLDS does not watch this rollout."""

    @property
    def hold_weights(self) -> list[float]:
        """The LLDS weight of each trained token."""
        column = self.advantage
        if not isinstance(column, tuple):
            column = (column,) * len(self.sampler_logp)
        return [self.hold_weight if value >= 0 else 0.0 for value in column]


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
    hold_weight_N: Tensor
    rollout_N: Tensor
    """Position in `rollouts` of the rollout that a token belongs to."""

    @property
    def rollout_ids(self) -> tuple[str, ...]:
        """Names of the rollouts, in order."""
        return tuple(rollout.rollout_id for rollout in self.rollouts)

    @property
    def num_tokens(self) -> list[int]:
        """Trained tokens of each rollout: how to split a column."""
        return [len(rollout.sampler_logp) for rollout in self.rollouts]


def pack_step(
    items: Sequence[TrainItem],
    advantages: AdvantageFn,
    reduction: Reduction,
    *,
    keep_dead_groups: bool,
    constant: int,
    holds_solved_groups: bool = False,
    owner: str = "the algorithm",
) -> PackedStep:
    """Decide advantages, mask, denominator and reduction for one whole optimiser step.

    Args:
        items: all rollouts of the step; groups may be of any size.
        advantages: sees every score of the step at once.
        reduction: how tokens become one number.
        keep_dead_groups: True when beta > 0: the KL term still has a gradient there.
        constant: token budget for the constant reduction.
        holds_solved_groups: True where LLDS may act: good rollouts get a `hold_weight`, those of
            all-correct groups too, which are dead and may be in no other term.
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
    in_loss = set(groups) if keep_dead_groups else set(groups) - dead
    held = set(groups) - (dead - solved_groups(scores)) if holds_solved_groups else set()
    entering = [
        (item, value, _trained(item.trajectory))
        for item, value, scored in zip(items, values, is_scored, strict=True)
        if scored and item.trajectory.group_id in in_loss | held
    ]
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
            weight=float(item.trajectory.group_id in in_loss),
            hold_weight=float(item.trajectory.group_id in held),
        )
        for item, value, mask in entering
        if any(mask)
    ]
    return PackedStep(
        rollouts=_weighed(packed, reduction, constant),
        advantages={
            item.trajectory.rollout_id: value for item, value in zip(items, values, strict=True)
        },
        num_unscored=is_scored.count(False),
        num_groups=len(set(groups)),
        num_dead_groups=len(dead),
        num_nonfinite=sum(
            item.trajectory.num_model_tokens - sum(mask) for item, _, mask in entering
        ),
    )


def _weighed(
    rollouts: Sequence[PackedRollout], reduction: Reduction, constant: int
) -> tuple[PackedRollout, ...]:
    """The rollouts of one optimiser step with their weights: one denominator for each term.

    A weight of 0 stays 0: the rollout is not in that term.
    """
    in_loss = [len(r.sampler_logp) if r.weight else 0 for r in rollouts]
    held = [sum(weight > 0 for weight in r.hold_weights) for r in rollouts]
    columns = (token_weights(counts, reduction, constant=constant) for counts in (in_loss, held))
    return tuple(
        replace(rollout, weight=weight, hold_weight=hold_weight)
        for rollout, weight, hold_weight in zip(rollouts, *columns, strict=True)
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
    Groups that only LLDS watches go with the others and make no step of their own.
    """
    groups = list(dict.fromkeys(rollout.group_id for rollout in rollouts if rollout.weight))
    if num_batches == 1 or not groups:
        return [tuple(rollouts)] if groups else []
    held = list(dict.fromkeys(r.group_id for r in rollouts if r.group_id not in set(groups)))
    rng = random.Random(key)
    count = min(num_batches, len(groups))
    batch_of: dict[str, int] = {}
    for part in (groups, held):
        rng.shuffle(part)
        batch_of |= {group: number * count // len(part) for number, group in enumerate(part)}
    return [
        _weighed([r for r in rollouts if batch_of[r.group_id] == number], reduction, constant)
        for number in range(count)
    ]


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
    columns: list[list[float]] = [[], [], [], []]
    owners: list[int] = []
    for number, rollout in enumerate(rollouts):
        num_tokens, advantage = len(rollout.sampler_logp), rollout.advantage
        columns[0] += rollout.sampler_logp
        columns[1] += advantage if isinstance(advantage, tuple) else [advantage] * num_tokens
        columns[2] += [rollout.weight] * num_tokens
        columns[3] += rollout.hold_weights
        owners += [number] * num_tokens
    layout = pack(rollouts, device) if is_packed else _padded(rollouts, device)
    logp_N, adv_N, weight_N, hold_weight_N = (
        torch.tensor(column, dtype=torch.float32, device=device) for column in columns
    )
    rollout_N = torch.tensor(owners, dtype=torch.long, device=device)
    return MicroBatch(tuple(rollouts), layout, logp_N, adv_N, weight_N, hold_weight_N, rollout_N)


def _padded(rollouts: Sequence[PackedRollout], device: torch.device) -> Layout:
    shape = (len(rollouts), max(len(rollout.ids) for rollout in rollouts))
    ids_BT = torch.zeros(shape, dtype=torch.long)
    mask_BT = torch.zeros(shape, dtype=torch.bool)
    for row, rollout in enumerate(rollouts):
        ids_BT[row, : len(rollout.ids)] = torch.tensor(rollout.ids)
        mask_BT[row, : len(rollout.ids)] = torch.tensor(rollout.mask)
    return padded_layout(ids_BT.to(device), mask_BT.to(device))
