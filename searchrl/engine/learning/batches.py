"""Packed rollouts to tensors, split into mini- and micro-batches.

Owns both splits: mini-batches are optimiser steps of their own, micro-batches change memory only.
Shapes: N trained tokens of a micro-batch.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from searchrl.core.group import Group
from searchrl.core.reduction import Reduction
from searchrl.engine.learning.packing import PackedRollout, RowId, members, weigh
from searchrl.engine.model.layout import Layout, TokenTree, pack, pad, padded_batches


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Some rollouts and the columns that a loss reads: one entry per trained token, in order.

    `layout` is how the rollouts go through the policy; its log-probs stand in the same order.
    """

    rollouts: tuple[PackedRollout, ...]
    layout: Layout
    sampler_logp_N: Tensor
    adv_N: Tensor
    weight_N: Tensor
    hold_weight_N: Tensor
    segment_N: Tensor
    """Position in `rollouts` of the segment that a token belongs to."""
    target_N: Tensor | None = None
    """Critic targets; None without a critic."""
    old_value_N: Tensor | None = None
    """Values before the step; None without a critic."""
    point_N: Tensor | None = None
    """Position of the token before which each token's value is said; None: before itself."""
    is_off_N: Tensor | None = None
    """True for a token that was not sampled in this step; None: all were."""

    @property
    def row_ids(self) -> tuple[RowId, ...]:
        """Names of the rollouts and their segments, in order."""
        return tuple(rollout.row_id for rollout in self.rollouts)

    @property
    def rollout_N(self) -> Tensor:
        """A number for each token that its rollout's other segments have, too."""
        names = [rollout.rollout_id for rollout in self.rollouts]
        numbers = torch.tensor([names.index(name) for name in names], device=self.segment_N.device)
        return numbers[self.segment_N]

    @property
    def num_tokens(self) -> list[int]:
        """Trained tokens of each rollout: how to split a column."""
        return [len(rollout.sampler_logp) for rollout in self.rollouts]


def without(
    groups: Iterable[Group[PackedRollout]], row_ids: Collection[RowId]
) -> list[Group[PackedRollout]]:
    """Groups without the rows that are done."""
    left = (
        Group(group.id, tuple(r for r in group.rollouts if r.row_id not in row_ids))
        for group in groups
    )
    return [group for group in left if group.rollouts]


def mini_batches(
    groups: Sequence[Group[PackedRollout]],
    num_batches: int,
    reduction: Reduction,
    *,
    constant: int,
    key: int,
) -> list[tuple[Group[PackedRollout], ...]]:
    """Split a training step into optimiser steps of whole groups, each with its own denominator.

    At most `num_batches`, and as even as groups are; which groups meet is a function of `key`.
    Groups that only LLDS watches go with the others and make no step of their own.
    """
    in_loss = [group.id for group in groups if any(r.weight for r in group.rollouts)]
    held = [group.id for group in groups if group.id not in set(in_loss)]
    if num_batches == 1 or not in_loss:
        return [tuple(groups)] if in_loss else []
    rng = random.Random(key)
    count = min(num_batches, len(in_loss))
    batch_of: dict[str, int] = {}
    for part in (in_loss, held):
        rng.shuffle(part)
        batch_of |= {name: number * count // len(part) for number, name in enumerate(part)}
    return [
        weigh([group for group in groups if batch_of[group.id] == number], reduction, constant)
        for number in range(count)
    ]


def micro_batches(
    groups: Sequence[Group[PackedRollout]],
    max_tokens: int,
    device: torch.device,
    *,
    is_packed: bool = False,
) -> Iterator[MicroBatch]:
    """Split into batches of at most `max_tokens` tokens that are computed, padding included.

    A rollout longer than `max_tokens` gets a batch of its own. Packed, a group stays together if
    it fits: every part of a group computes again what its rows share. The split changes no
    gradient: weights were fixed over the whole step.
    """
    if is_packed:
        packs = (zip(*part, strict=True) for part in _packs(groups, max_tokens))
        return (_micro_batch(rows, pack(rows, device, names)) for rows, names in packs)
    parts = padded_batches(members(groups), lambda rollout: len(rollout.ids), max_tokens)
    return (_micro_batch(part, pad(part, device)) for part in parts)


def _packs(
    groups: Sequence[Group[PackedRollout]], max_tokens: int
) -> Iterator[list[tuple[PackedRollout, str]]]:
    """Rows with the ids of their groups. In a group that is torn, those that share most meet."""
    part: list[tuple[PackedRollout, str]] = []
    tree = TokenTree()
    for group in groups:
        whole = TokenTree(group.rollouts)
        if part and tree.num_tokens + whole.num_tokens > max_tokens:
            yield part
            part, tree = [], TokenTree()
        rows: Iterable[PackedRollout] = group.rollouts
        if whole.num_tokens > max_tokens:
            whole.lay_out()
            rows = sorted(rows, key=lambda row: whole.indices(row)[-1])
        for row in rows:
            tree.add(row, group.id)
            if part and tree.num_tokens > max_tokens:
                yield part
                part, tree = [], TokenTree([row], [group.id])
            part.append((row, group.id))
    if part:
        yield part


def _micro_batch(rollouts: Sequence[PackedRollout], layout: Layout) -> MicroBatch:
    device = layout.ids_BT.device
    columns: list[list[float]] = [[], [], [], [], [], []]
    owners, points = list[int](), list[int]()
    for number, rollout in enumerate(rollouts):
        num_tokens, advantage = len(rollout.sampler_logp), rollout.advantage
        columns[0] += rollout.sampler_logp
        columns[1] += advantage if isinstance(advantage, tuple) else [advantage] * num_tokens
        columns[2] += [rollout.weight] * num_tokens
        columns[3] += rollout.hold_weights
        for column, said in ((4, rollout.target), (5, rollout.old_value)):
            if said is not None:
                columns[column] += said if isinstance(said, tuple) else [said] * num_tokens
        if rollout.points is not None:
            points += [len(owners) + point for point in rollout.points]
        owners += [number] * num_tokens
    logp_N, adv_N, weight_N, hold_weight_N, target_N, old_value_N = (
        torch.tensor(column, dtype=torch.float32, device=device) for column in columns
    )
    segment_N = torch.tensor(owners, dtype=torch.long, device=device)
    is_off = [rollout.is_off for rollout in rollouts]
    own = (layout, logp_N, adv_N, weight_N, hold_weight_N, segment_N)
    return MicroBatch(
        tuple(rollouts),
        *own,
        target_N=target_N if columns[4] else None,
        old_value_N=old_value_N if columns[5] else None,
        point_N=torch.tensor(points, device=device) if len(points) == len(owners) else None,
        is_off_N=torch.tensor(is_off, device=device)[segment_N] if any(is_off) else None,
    )
