"""Figures of rollouts before the first update on them, per token or turn, and of texts behind them.

Owns the passes that an algorithm may ask for: the trainer's own log-probs, the values of a critic,
the KL to the reference, probes. Without a gradient, in micro-batches, shared between processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, islice
from typing import Any

import torch
from torch import Tensor, nn

from searchrl.algorithms.record import Algorithm, Ask
from searchrl.core.advantage import Column, Per
from searchrl.core.group import Group, Trainable
from searchrl.core.trajectory import Probe, Reading, RowId
from searchrl.engine.learning.batches import MicroBatch, without
from searchrl.engine.learning.packing import Known, PackedRow, members
from searchrl.engine.learning.updater import Updater
from searchrl.engine.model.layout import Layout


def look(
    learner: Updater,
    groups: Sequence[Group[Trainable]],
    algorithm: Algorithm,
    critic: nn.Module | None,
) -> Known:
    """Return the critic's values and the KL to the reference, if the algorithm asks for them."""
    values = end_values = kl = None
    if critic is not None and algorithm.critic is not None:
        per = Per.TOKEN if algorithm.critic.per_token else Per.TURN
        hidden_states = learner.policy.hidden_states
        values, end_values = _at_points(
            learner, groups, per, lambda layout: critic(hidden_states(layout).float()), True
        )
    if Ask.TOKEN_KL in algorithm.asks:

        def difference(layout: Layout) -> Tensor:
            ours, theirs = (
                learner.policy.logps(layout, temperature=learner.temperature, reference=is_ref)
                for is_ref in (False, True)
            )
            return ours.logp_N - theirs.logp_N

        kl, _ = _at_points(learner, groups, Per.TOKEN, difference, False)
    return Known(values, end_values, kl)


def logps(learner: Updater, groups: Sequence[Group[PackedRow]]) -> tuple[dict[RowId, Tensor], int]:
    """Return the trainer's own log-probs of trained tokens, and how often memory ran out."""
    policy, temperature = learner.policy, learner.temperature
    figures, num_splits = _compute(
        learner, groups, lambda layout: policy.logps(layout, temperature=temperature).logp_N
    )
    dtype = torch.promote_types(policy.dtype, torch.float32)  # MPS has no float64
    columns = {
        name: torch.tensor(one, dtype=dtype, device=policy.device) for name, one in figures.items()
    }
    return columns, num_splits


def read(learner: Updater, probes: Sequence[Probe]) -> list[Reading]:
    """Return log-prob and entropy of each token of texts behind rollouts."""
    groups: dict[str, list[PackedRow]] = {}
    for number, probe in enumerate(probes):
        trajectory, text = probe.trajectory, probe.text
        ids = learner.policy.renderer.encode_model_text(text) if isinstance(text, str) else text
        prefix = trajectory.segments[probe.segment].ids[: probe.stop]
        mask = [False] * len(prefix) + [True] * len(ids)
        row = PackedRow([*prefix, *ids], mask, str(number))
        groups.setdefault(trajectory.group_id, []).append(row)

    def compute(layout: Layout) -> Tensor:
        output = learner.policy.logps(layout, temperature=learner.temperature, with_entropy=True)
        assert output.entropy_N is not None
        return torch.stack((output.logp_N, output.entropy_N), 1)

    probed = [Group(name, tuple(rows)) for name, rows in groups.items()]
    figures, _ = _compute(learner, probed, compute)
    pairs = (figures[str(number), 0] for number in range(len(probes)))
    return [Reading(*zip(*pair, strict=True)) if pair else Reading((), ()) for pair in pairs]


def _at_points(
    learner: Updater,
    groups: Sequence[Group[Trainable]],
    per: Per,
    compute: Callable[[Layout], Tensor],
    with_end: bool,
) -> tuple[list[Column], list[float | None]]:
    """Return a number before every turn, or every token that the model wrote, of each rollout.

    `with_end` adds one for the last text seen, where a limit cut the episode; None elsewhere.
    """

    def rows(item: Trainable) -> list[PackedRow]:
        trajectory = item.trajectory
        made = []
        for number, (segment, turns) in enumerate(trajectory.by_segment()):
            ids, mask = list(segment.ids), [False] * len(segment)
            for turn in turns:
                stop = turn.stop if per is Per.TOKEN else turn.start + 1
                mask[turn.start : stop] = [True] * (stop - turn.start)
            if with_end and item.is_cut and turns and trajectory.turns[-1] in turns:
                # One more token behind the last segment: its number is that of all text before it.
                ids.append(1)
                mask.append(True)
            made.append(PackedRow(ids, mask, trajectory.rollout_id, number))
        return made

    packed = [Group(group.id, tuple(chain(*map(rows, group.rollouts)))) for group in groups]
    figures, _ = _compute(learner, packed, compute)
    columns, ends = list[Column](), list[float | None]()
    for item in members(groups):
        trajectory, end = item.trajectory, None
        parts: list[list[float]] = [[] for _ in trajectory.turns]
        for number, (_, turns) in enumerate(trajectory.by_segment()):
            values = iter(figures[trajectory.rollout_id, number])
            for turn in turns:
                size = turn.stop - turn.start if per is Per.TOKEN else 1
                parts[turn.index] = list(islice(values, size))
            end = next(values, end)
        columns.append(Column([*chain(*parts)], per))
        ends.append(end)
    return columns, ends


def _compute(
    learner: Updater, groups: Sequence[Group[PackedRow]], compute: Callable[[Layout], Tensor]
) -> tuple[dict[RowId, list[Any]], int]:
    """Figures of the marked tokens of each row, and how often memory ran out."""

    def run(batch: MicroBatch) -> dict[RowId, list[Any]]:
        with torch.no_grad():
            parts = compute(batch.layout).cpu().split(batch.num_tokens)
        return {name: p.tolist() for name, p in zip(batch.row_ids, parts, strict=True)}

    figures: dict[RowId, list[Any]] = {row.row_id: [] for row in members(groups)}
    unmarked = {row.row_id for row in members(groups) if not any(row.mask)}
    marked = without(groups, unmarked)
    num_splits = 0
    for parts, splits in learner.workers.gather(learner.in_micro_batches(marked, run)):
        num_splits += splits
        for part in parts:
            figures |= part
    return figures, num_splits
