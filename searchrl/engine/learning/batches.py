"""Packed rollouts to tensors: the share of a process, and micro-batches.

Owns both splits, which change time and memory and no gradient: weights were fixed over the whole
optimiser step. Shapes: N trained tokens of a micro-batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from searchrl.core.group import Group
from searchrl.core.trajectory import RowId
from searchrl.engine.learning.packing import TURN, PackedRow, members
from searchrl.engine.learning.workers import Workers
from searchrl.engine.model.layout import Layout, TokenTree, pack, pad, padded_batches


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Some rows and their columns: one entry per trained token, in order.

    `layout` is the form in which the policy reads them; its log-probs are in the same order.
    """

    rows: tuple[PackedRow, ...]
    layout: Layout
    columns: Mapping[str, Tensor]
    """The columns of the rows by name, in float32."""
    segment_N: Tensor
    """Position in `rows` of the segment that a token belongs to."""
    is_off_N: Tensor | None = None
    """True at tokens that were not sampled in this step; None: all were."""
    host: MicroBatch | None = None
    """The same with its columns on the CPU; None: they are there."""

    def __getitem__(self, name: str) -> Tensor:
        return self.columns[name]

    @property
    def terms(self) -> Sequence[str]:
        """The columns that are weights of a term of the loss."""
        return self.rows[0].terms

    @property
    def row_ids(self) -> tuple[RowId, ...]:
        """Names of the rollouts and their segments, in order."""
        return tuple(row.row_id for row in self.rows)

    @property
    def rollout_N(self) -> Tensor:
        """Number of each token's rollout."""
        names = [row.rollout_id for row in self.rows]
        numbers = torch.tensor([names.index(name) for name in names], device=self.segment_N.device)
        return numbers[self.segment_N]

    @property
    def first_N(self) -> Tensor:
        """Position of the first token of each token's turn, by the column `turn`."""
        place_N = torch.arange(len(self.segment_N), device=self.segment_N.device)
        is_first_N = torch.ones_like(place_N, dtype=torch.bool)
        segment_N, turn_N = self.segment_N, self.columns[TURN]
        is_first_N[1:] = (segment_N[1:] != segment_N[:-1]) | (turn_N[1:] != turn_N[:-1])
        return torch.where(is_first_N, place_N, 0).cummax(0).values

    @property
    def num_tokens(self) -> list[int]:
        """Trained tokens of each row: how to split a column."""
        return [row.num_trained for row in self.rows]

    def without_weights(self) -> MicroBatch:
        """Return the batch with a loss, and a gradient, of 0."""
        nothing = {term: torch.zeros_like(self.columns[term]) for term in self.terms}
        host = self.host and self.host.without_weights()
        return replace(self, columns={**self.columns, **nothing}, host=host)


def without(
    groups: Iterable[Group[PackedRow]], row_ids: Collection[RowId]
) -> list[Group[PackedRow]]:
    """Groups without the rows that are done."""
    left = (
        Group(group.id, tuple(r for r in group.rollouts if r.row_id not in row_ids))
        for group in groups
    )
    return [group for group in left if group.rollouts]


def share_groups(
    groups: Sequence[Group[PackedRow]], workers: Workers, *, is_packed: bool
) -> list[Group[PackedRow]]:
    """The groups whose gradient this process computes: even in tokens.

    The longest group goes first, to the process that has the least; equal ones in order, so that
    all processes agree. `is_packed` counts shared tokens of a group once.
    """
    if workers.size == 1:
        return list(groups)
    costs = [
        TokenTree(group.rollouts).num_tokens
        if is_packed
        else sum(len(rollout.ids) for rollout in group.rollouts)
        for group in groups
    ]
    loads = [0] * workers.size
    places = set()
    for place in sorted(range(len(groups)), key=lambda place: -costs[place]):
        owner = loads.index(min(loads))
        loads[owner] += costs[place]
        if owner == workers.rank:
            places.add(place)
    return [group for place, group in enumerate(groups) if place in places]


def micro_batches(
    groups: Sequence[Group[PackedRow]],
    max_tokens: int,
    device: torch.device,
    *,
    is_packed: bool = False,
) -> Iterator[MicroBatch]:
    """Split into batches of at most `max_tokens` tokens that are computed, padding included.

    A rollout longer than `max_tokens` gets a batch of its own. Packed, a group stays together if
    it fits, because every part of it computes the shared tokens again.
    """
    if is_packed:
        packs = (zip(*part, strict=True) for part in _packs(groups, max_tokens))
        return (_micro_batch(rows, pack(rows, device, names)) for rows, names in packs)
    parts = padded_batches(members(groups), lambda row: len(row.ids), max_tokens)
    return (_micro_batch(part, pad(part, device)) for part in parts)


def _packs(
    groups: Sequence[Group[PackedRow]], max_tokens: int
) -> Iterator[list[tuple[PackedRow, str]]]:
    """Rows with the ids of their groups. In a split group, rows that share most stay together."""
    part: list[tuple[PackedRow, str]] = []
    tree = TokenTree()
    for group in groups:
        whole = TokenTree(group.rollouts)
        if part and tree.num_tokens + whole.num_tokens > max_tokens:
            yield part
            part, tree = [], TokenTree()
        rows: Iterable[PackedRow] = group.rollouts
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


def _micro_batch(rows: Sequence[PackedRow], layout: Layout) -> MicroBatch:
    device = layout.ids_BT.device
    owners = [number for number, row in enumerate(rows) for _ in range(row.num_trained)]
    segment_N = torch.tensor(owners, dtype=torch.long)
    is_off = [row.is_off for row in rows]
    columns = {
        name: torch.tensor(
            [one for row in rows for one in row.over_tokens(name)], dtype=torch.float32
        )
        for name in rows[0].columns
    }
    is_off_N = torch.tensor(is_off)[segment_N] if any(is_off) else None
    host = MicroBatch(tuple(rows), layout, columns, segment_N, is_off_N)
    if device.type == "cpu":
        return host
    sent = torch.stack([*columns.values()]).to(device) if columns else ()
    return replace(
        host,
        columns=dict(zip(columns, sent, strict=True)),
        segment_N=segment_N.to(device),
        is_off_N=None if is_off_N is None else is_off_N.to(device),
        host=host,
    )
