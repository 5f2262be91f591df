"""The supervised learner: next-token prediction on demonstrations, for the cold start.

Owns the cross-entropy. Observation tokens are context, never targets, unless `loss_on: all`
asks for them (a model trained from scratch has to learn to read first). `lora_dropout` acts here
and only here. Shapes: B demonstrations, T tokens, N targets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from searchrl.config.sft import SftStage
from searchrl.core.advantage import Column, Per
from searchrl.core.group import Group
from searchrl.core.trajectory import Author, Trajectory
from searchrl.engine.learning.batches import MicroBatch
from searchrl.engine.learning.packing import WEIGHT, PackedRow
from searchrl.engine.learning.updater import Updater
from searchrl.engine.learning.workers import ALONE, Workers
from searchrl.engine.model.optimizers import learning_rate, make_optimizer
from searchrl.engine.model.policy import Policy


class SupervisedLearner(Updater):
    """Maximises the likelihood of demonstrations; updates the trainable parameters of the policy.

    One forward-backward has at most `micro_batch_tokens` padded tokens, or one segment.
    """

    packing_fault = "tokens that rows share would share their dropout"

    def __init__(
        self,
        policy: Policy,
        max_grad_norm: float,
        micro_batch_tokens: int,
        workers: Workers = ALONE,
    ) -> None:
        optimizer = make_optimizer("adamw", [{"params": policy.parameters, "lr": 0.0}])
        super().__init__(policy, optimizer, max_grad_norm, micro_batch_tokens, workers)

    def train_step(
        self, trajectories: Sequence[Trajectory], stage: SftStage, stage_step: int, seed: int = 0
    ) -> dict[str, float]:
        """Do one optimiser step; return `loss` (nats per target), `token_accuracy`, `grad_norm`, ….

        A step whose loss or gradient is not finite updates nothing. Figures that were not measured
        are absent.

        Args:
            trajectories: demonstrations of this step, the same in every process.
            stage: learning rate, schedule and the tokens of the loss.
            stage_step: steps done in this stage before.
            seed: of the dropout masks of this step, so that a resumed run draws the same ones.
        """
        lr = learning_rate(stage.lr, stage_step, stage, stage.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        demonstrations = [
            Group(str(number), _rows(trajectory, str(number), stage.loss_on))
            for number, trajectory in enumerate(trajectories)
        ]
        total = sum(row.num_trained for group in demonstrations for row in group.rollouts)
        stats = {"skipped_steps": 0.0, "lr": lr, "num_tokens": float(total)}
        self.step += 1
        if not total:
            return stats

        def compute(batch: MicroBatch) -> tuple[Tensor, tuple[float, int]]:
            logp_N, _, is_right_N, _ = self.policy.logps(batch.layout, with_best=True)
            assert is_right_N is not None
            # One denominator for the whole step, whatever the split into micro-batches.
            loss = -(batch[WEIGHT] * logp_N).sum() / total
            figures = torch.stack((loss.detach(), is_right_N.sum())).tolist()
            return loss, (figures[0], int(figures[1]))

        torch.manual_seed(seed + self.workers.rank)  # no process has the masks of another
        self.policy.model.train()
        shares = self.workers.gather(self.accumulate(demonstrations, compute))
        self.policy.model.eval()
        losses, num_right = zip(*(part for parts, _ in shares for part in parts), strict=True)
        loss = sum(losses)
        norm, is_taken = self.take_step(is_good=math.isfinite(loss))
        self.ensure_same_weights(f"after step {self.step}")
        self.is_halfway = False
        stats["skipped_steps"] = float(not is_taken)
        if math.isfinite(loss):
            stats |= {"loss": loss, "token_accuracy": sum(num_right) / total}
        if math.isfinite(norm):
            stats["grad_norm"] = norm
        if num_splits := sum(splits for _, splits in shares):
            stats["oom_splits"] = float(num_splits)
        return stats


def _rows(trajectory: Trajectory, name: str, loss_on: str) -> tuple[PackedRow, ...]:
    """A row for each segment. Targets are the model's tokens, or all but each row's first."""
    rows = []
    for number, segment in enumerate(trajectory.segments):
        mask = [author is Author.MODEL for author in segment.authors]
        if loss_on == "all":
            mask = [False] + [True] * (len(segment) - 1)
        columns = {WEIGHT: Column([1.0], Per.ROLLOUT)}
        rows.append(PackedRow(list(segment.ids), mask, name, number, True, columns, (WEIGHT,)))
    return tuple(rows)
