"""What is known of rollouts before the first update on them: one number per token, turn or end.

Owns the passes that an algorithm may ask for: the trainer's own log-probs, the values of a critic,
the KL to the reference. Without a gradient, in micro-batches, shared between processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn

from searchrl.algorithms.record import Algorithm
from searchrl.core.group import Group, Trainable
from searchrl.engine.learning.batches import MicroBatch
from searchrl.engine.learning.packing import PackedRollout, point_rows
from searchrl.engine.learning.workers import Workers
from searchrl.engine.model.layout import Layout
from searchrl.engine.model.policy import Policy

Columns = dict[str, list[float]]
"""Numbers of rollouts, by their names."""

T = TypeVar("T")


class RunBatches(Protocol):
    """Makes something of every micro-batch; also returns how often memory ran out."""

    def __call__(
        self, groups: Sequence[Group[PackedRollout]], run: Callable[[MicroBatch], T]
    ) -> tuple[list[T], int]:
        """Run `run` on all of them."""


@dataclass(frozen=True, slots=True)
class BeforeUpdate:
    """Computes columns of whole rollouts with the weights as they are."""

    policy: Policy
    algorithm: Algorithm
    critic: nn.Module | None
    temperature: float
    in_micro_batches: RunBatches
    workers: Workers

    def values(self, groups: Sequence[Group[Trainable]]) -> Columns | None:
        """What the critic expects at every turn or token; None: there is no critic.

        Where an episode was cut there is one more, of what was seen at the end.
        """
        if self.critic is None or self.algorithm.critic is None:
            return None
        critic, per_token = self.critic, self.algorithm.critic.per_token
        rows = point_rows(groups, per_token=per_token, with_end=True)
        return self._columns(rows, lambda own: critic(self.policy.hidden_states(own).float()))[0]

    def token_kl(self, groups: Sequence[Group[Trainable]]) -> Columns | None:
        """Log-prob minus the reference's of every token that the model wrote; None: not needed."""
        if not self.algorithm.needs_token_kl:
            return None

        def compute(layout: Layout) -> Tensor:
            ours, theirs = (
                self.policy.logps(layout, temperature=self.temperature, reference=is_reference)
                for is_reference in (False, True)
            )
            return ours.logp_N - theirs.logp_N

        return self._columns(point_rows(groups, per_token=True, with_end=False), compute)[0]

    def logps(self, groups: Sequence[Group[PackedRollout]]) -> tuple[dict[str, Tensor], int]:
        """The trainer's own log-probs of trained tokens, and how often memory ran out."""
        found, num_splits = self._columns(
            groups, lambda own: self.policy.logps(own, temperature=self.temperature).logp_N
        )
        columns = {
            name: torch.tensor(one, dtype=torch.float64, device=self.policy.device)
            for name, one in found.items()
        }
        return columns, num_splits

    def _columns(
        self, groups: Sequence[Group[PackedRollout]], compute: Callable[[Layout], Tensor]
    ) -> tuple[Columns, int]:
        """A number for each marked token of each rollout, and how often memory ran out."""

        def run(batch: MicroBatch) -> Columns:
            with torch.no_grad():
                parts = compute(batch.layout).cpu().split(batch.num_tokens)
            return {name: p.tolist() for name, p in zip(batch.rollout_ids, parts, strict=True)}

        found: Columns = {row.rollout_id: [] for group in groups for row in group.rollouts}
        asked = [Group(g.id, tuple(row for row in g.rollouts if any(row.mask))) for g in groups]
        num_splits = 0
        for parts, splits in self.workers.gather(self.in_micro_batches(asked, run)):
            num_splits += splits
            for part in parts:
                found |= part
        return found, num_splits
