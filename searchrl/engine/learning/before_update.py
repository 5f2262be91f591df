"""What is known of rollouts before the first update on them: one number per token, turn or end.

Owns the passes that an algorithm may ask for: the trainer's own log-probs, the values of a critic,
the KL to the reference. Without a gradient, in micro-batches, shared between processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from searchrl.core.group import Group, Trainable, TrainItem
from searchrl.core.trajectory import Trajectory
from searchrl.engine.learning.batches import MicroBatch, without
from searchrl.engine.learning.packing import (
    PackedRollout,
    RowId,
    last_segment,
    members,
    point_rows,
)
from searchrl.engine.model.layout import Layout

if TYPE_CHECKING:
    from searchrl.engine.learning.learner import Learner

Columns = dict[str, list[float]]
"""Numbers of rollouts, by their names."""


def values(learner: Learner, groups: Sequence[Group[Trainable]]) -> Columns | None:
    """What the critic expects at every turn or token; None: there is no critic.

    Where an episode was cut there is one more at the end, of what was seen last.
    """
    if (critic := learner.critic) is None or learner.algorithm.critic is None:
        return None
    rows = point_rows(groups, per_token=learner.algorithm.critic.per_token, with_end=True)
    hidden_states = learner.policy.hidden_states
    found, _ = _columns(learner, rows, lambda layout: critic(hidden_states(layout).float()))
    columns = _joined(found)
    for item in members(groups):
        if item.is_cut and (trajectory := item.trajectory).turns:
            name = trajectory.rollout_id
            before = (found[name, n] for n in range(last_segment(trajectory) + 1))
            columns[name].append(columns[name].pop(sum(map(len, before)) - 1))
    return columns


def token_kl(learner: Learner, groups: Sequence[Group[Trainable]]) -> Columns | None:
    """Log-prob minus the reference's of every token that the model wrote; None: not needed."""
    if not learner.algorithm.needs_token_kl:
        return None

    def compute(layout: Layout) -> Tensor:
        ours, theirs = (
            learner.policy.logps(layout, temperature=learner.temperature, reference=is_reference)
            for is_reference in (False, True)
        )
        return ours.logp_N - theirs.logp_N

    rows = point_rows(groups, per_token=True, with_end=False)
    return _joined(_columns(learner, rows, compute)[0])


def logps(
    learner: Learner, groups: Sequence[Group[PackedRollout]]
) -> tuple[dict[RowId, Tensor], int]:
    """The trainer's own log-probs of trained tokens, and how often memory ran out."""
    policy, temperature = learner.policy, learner.temperature
    found, num_splits = _columns(
        learner, groups, lambda layout: policy.logps(layout, temperature=temperature).logp_N
    )
    columns = {
        name: torch.tensor(one, dtype=torch.float64, device=policy.device)
        for name, one in found.items()
    }
    return columns, num_splits


def mean_entropies(learner: Learner, trajectories: Sequence[Trajectory]) -> list[float]:
    """The mean entropy of the tokens that the model wrote, in nats; 0 without any."""
    groups = [Group(one.rollout_id, (TrainItem(one, 0.0),)) for one in trajectories]
    rows = point_rows(groups, per_token=True, with_end=False)

    def compute(layout: Layout) -> Tensor:
        told = learner.policy.logps(layout, temperature=learner.temperature, with_entropy=True)
        assert told.entropy_N is not None
        return told.entropy_N

    found = _joined(_columns(learner, rows, compute)[0]).values()
    return [sum(column) / max(1, len(column)) for column in found]


def _columns(
    learner: Learner, groups: Sequence[Group[PackedRollout]], compute: Callable[[Layout], Tensor]
) -> tuple[dict[RowId, list[float]], int]:
    """A number for each marked token of each row, and how often memory ran out."""

    def run(batch: MicroBatch) -> dict[RowId, list[float]]:
        with torch.no_grad():
            parts = compute(batch.layout).cpu().split(batch.num_tokens)
        return {name: p.tolist() for name, p in zip(batch.row_ids, parts, strict=True)}

    found: dict[RowId, list[float]] = {row.row_id: [] for row in members(groups)}
    unmarked = {row.row_id for row in members(groups) if not any(row.mask)}
    asked = without(groups, unmarked)
    num_splits = 0
    for parts, splits in learner.workers.gather(learner.in_micro_batches(asked, run)):
        num_splits += splits
        for part in parts:
            found |= part
    return found, num_splits


def _joined(found: dict[RowId, list[float]]) -> Columns:
    """Those of whole rollouts: a segment's behind those of the one before."""
    columns: Columns = {}
    for (name, _), own in found.items():
        columns.setdefault(name, []).extend(own)
    return columns
