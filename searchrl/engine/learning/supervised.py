"""The supervised learner: next-token prediction on demonstrations, for the cold start.

Owns the cross-entropy step. Observation tokens are context, never targets, unless `loss_on: all`
asks for them (a model trained from scratch has to learn to read first). `lora_dropout` acts here
and only here. Shapes: B demonstrations, T tokens, N targets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.optim import AdamW

from searchrl.config.sft import SftStage
from searchrl.core.trajectory import Author, Trajectory
from searchrl.engine.learning.loss_scale import LossScale
from searchrl.engine.model.layout import TokenRow, pad, padded_batches
from searchrl.engine.model.optimizers import learning_rate
from searchrl.engine.model.policy import Policy


class SupervisedLearner:
    """Maximises the likelihood of demonstrations; updates the trainable parameters of the policy.

    One forward-backward has at most `micro_batch_tokens` padded tokens, or one segment.
    """

    def __init__(self, policy: Policy, max_grad_norm: float, micro_batch_tokens: int) -> None:
        self.policy = policy
        self.max_grad_norm = max_grad_norm
        self.micro_batch_tokens = micro_batch_tokens
        self.step = 0
        self.parameters = policy.parameters
        self.loss_scale = LossScale(policy.dtype == torch.float16)
        self.optimizer = AdamW(self.parameters, lr=0.0, betas=(0.9, 0.999), weight_decay=0.0)

    def train_step(
        self, trajectories: Sequence[Trajectory], stage: SftStage, stage_step: int, seed: int = 0
    ) -> dict[str, float]:
        """Do one optimiser step; return `loss` (nats per target), `token_accuracy`, `grad_norm`, ….

        A step whose loss or gradient is not finite updates nothing and counts in `skipped_steps`.
        Figures that are not finite are absent, and so are all three without a target.

        Args:
            trajectories: demonstrations of this step.
            stage: learning rate, schedule and the tokens of the loss.
            stage_step: steps done in this stage before.
            seed: of the dropout masks of this step, so that a resumed run draws the same ones.
        """
        lr = learning_rate(stage.lr, stage_step, stage, stage.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.zero_grad(set_to_none=True)
        rows = [row for trajectory in trajectories for row in _rows(trajectory, stage.loss_on)]
        total = sum(sum(row.mask) for row in rows)
        loss_sum, num_right = 0.0, 0
        torch.manual_seed(seed)
        self.policy.model.train()
        for batch in padded_batches(
            rows if total else (), lambda row: len(row.ids), self.micro_batch_tokens
        ):
            layout = pad(batch, self.policy.device)
            logp_N, _, is_right_N, _ = self.policy.logps(layout, with_best=True)
            assert is_right_N is not None
            # One denominator for the whole step, whatever the split into micro-batches.
            loss = -logp_N.sum() / total
            (loss * self.loss_scale.value).backward()
            loss_sum += float(loss.detach())
            num_right += int(is_right_N.sum())
        self.policy.model.eval()
        self.loss_scale.unscale(self.parameters)
        grad_norm = float(torch.nn.utils.clip_grad_norm_(self.parameters, self.max_grad_norm))
        is_skipped = not (math.isfinite(grad_norm) and math.isfinite(loss_sum))
        self.loss_scale.update(math.isfinite(grad_norm))
        if total and not is_skipped:
            self.optimizer.step()
            self.policy.version += 1
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        stats = {"skipped_steps": float(is_skipped), "lr": lr, "num_tokens": float(total)}
        if total and math.isfinite(loss_sum):
            stats |= {"loss": loss_sum, "token_accuracy": num_right / total}
        if total and math.isfinite(grad_norm):
            stats["grad_norm"] = grad_norm
        return stats

    def state_dict(self) -> dict[str, Any]:
        """Optimiser, counters and loss scale (not the weights)."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "version": self.policy.version,
            "loss_scale": self.loss_scale.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` wrote."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = int(state["step"])
        self.policy.version = int(state["version"])
        self.loss_scale.load_state_dict(state["loss_scale"])


def _rows(trajectory: Trajectory, loss_on: str) -> list[TokenRow]:
    """A row for each segment. Targets are the model's tokens, or all but each row's first."""
    rows = []
    for segment in trajectory.segments:
        mask = [author is Author.MODEL for author in segment.authors]
        if loss_on == "all":
            mask = [False] + [True] * (len(segment) - 1)
        rows.append(TokenRow(segment.ids, mask))
    return rows
