"""The learner: scored trajectories in, one optimiser step out.

Owns the micro-batch loop, the reference pass, gradient clipping, AdamW and its schedule. The
mathematics is `core.loss`; what enters the step is `packing`. Old log-probs are the sampler's
own: a step is exactly on-policy, so no extra forward pass is needed and the first ratio is 1 up
to rounding (`max_abs_log_ratio` shows it). Dropout is off in every pass here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import AdamW

from searchrl.algorithms import Algorithm
from searchrl.core.loss import LossStats, Reduction
from searchrl.engine.packing import MicroBatch, TrainItem, micro_batches, pack_step
from searchrl.engine.policy import Policy
from searchrl.sections import AlgorithmConfig, OptimConfig, SftStage


class TokenColumns(NamedTuple):
    """What the update saw of one rollout, over its trained tokens in order."""

    advantage: float | tuple[float, ...]
    """One number where the algorithm gave one for the whole rollout."""
    ratio: tuple[float, ...]
    """pi / sampler before the update."""
    entropy: tuple[float, ...]
    """Nats, of the full distribution at the sampling temperature."""


class Learner:
    """Updates a policy.

    Args:
        policy: its trainable parameters are the ones updated.
        algorithm: advantages, loss and reduction.
        settings: clip range, beta, reduction override.
        optim: learning rate, schedule, clipping, micro-batch size.
        max_steps: length of the schedule in steps.
        temperature: the sampler's.
        constant: tokens that the constant reduction divides by.
    """

    def __init__(
        self,
        policy: Policy,
        algorithm: Algorithm,
        settings: AlgorithmConfig,
        optim: OptimConfig,
        *,
        max_steps: int,
        temperature: float = 1.0,
        constant: int = 4096,
    ) -> None:
        self.policy = policy
        self.algorithm = algorithm
        self.settings = settings
        self.optim = optim
        self.max_steps = max_steps
        self.temperature = temperature
        self.constant = constant
        self.reduction = Reduction(
            algorithm.reduction if settings.reduction == "auto" else settings.reduction
        )
        self.step = 0
        self.parameters = [*policy.parameters, *algorithm.parameters()]
        self.optimizer = AdamW(self.parameters, lr=optim.lr, betas=(0.9, 0.999), weight_decay=0.0)
        if settings.beta > 0:
            policy.keep_reference()

    def train_step(
        self,
        items: Sequence[TrainItem],
        on_tokens: Callable[[str, TokenColumns], None] | None = None,
    ) -> dict[str, float]:
        """Do one optimiser step on the rollouts of one sampling phase.

        Args:
            items: all rollouts of the step with their rewards; unscored ones are counted only.
            on_tokens: called per trained rollout with its advantage, ratios and entropies.

        Returns:
            Means over the trained tokens (`loss`, `kl`, `clip_frac`, `entropy`, …), counts of
            what left the step, `grad_norm` before clipping, the learning rate used, and
            `skipped_steps` 1 if the gradient was not finite and nothing was updated. Without
            anything to train on nothing is updated either, and the means are 0.
        """
        packed = pack_step(
            items,
            self.algorithm.advantages,
            self.reduction,
            keep_dead_groups=self.settings.beta > 0,
            constant=self.constant,
            owner=f"algorithm '{self.algorithm.name}'",
        )
        lr = learning_rate(self.optim.lr, self.step, self.optim, self.max_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.zero_grad(set_to_none=True)
        stats, sum_entropy = LossStats(), 0.0
        with self.policy.updating():
            for batch in micro_batches(
                packed.rollouts, self.optim.micro_batch_tokens, self.policy.device
            ):
                loss, batch_stats, entropy_N = self._forward(batch, on_tokens)
                loss.backward()
                stats = stats + batch_stats
                sum_entropy += float(entropy_N.nansum())
        grad_norm, is_skipped = 0.0, False
        if packed.rollouts:
            norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.optim.max_grad_norm)
            is_skipped = not bool(torch.isfinite(norm))
            if not is_skipped:
                grad_norm = float(norm)
                self.optimizer.step()
                self.policy.version += 1
                # Here only: a step that was not taken must not move the schedule.
                self.step += 1
        self.optimizer.zero_grad(set_to_none=True)
        return {
            **stats.means(),
            "entropy": sum_entropy / stats.num_tokens if stats.num_tokens else 0.0,
            "num_tokens": stats.num_tokens,
            "num_rollouts": len(packed.rollouts),
            "num_unscored": packed.num_unscored,
            "num_groups": packed.num_groups,
            "num_dead_groups": packed.num_dead_groups,
            "num_nonfinite": stats.num_nonfinite + packed.num_nonfinite,
            "skipped_steps": float(is_skipped),
            "grad_norm": grad_norm,
            "lr": lr,
        }

    def _forward(
        self, batch: MicroBatch, on_tokens: Callable[[str, TokenColumns], None] | None
    ) -> tuple[Tensor, LossStats, Tensor]:
        """Loss of one micro-batch over its trained tokens, flattened in row-major order."""
        mask_BT = batch.mask_BT
        logp_N, entropy_N = self.policy.token_logps(
            batch.ids_BT, mask_BT, temperature=self.temperature, with_entropy=True
        )
        assert entropy_N is not None
        ref_logp_N = None
        if self.settings.beta > 0:
            with torch.no_grad():
                ref_logp_N, _ = self.policy.token_logps(
                    batch.ids_BT, mask_BT, temperature=self.temperature, reference=True
                )
        old_logp_N = batch.sampler_logp_BT[mask_BT]
        loss, stats = self.algorithm.loss(
            logp_N,
            old_logp_N,
            batch.adv_BT[mask_BT],
            torch.ones_like(logp_N, dtype=torch.bool),
            batch.weight_BT[mask_BT],
            clip_low=self.settings.clip_low,
            clip_high=self.settings.clip_high,
            beta=self.settings.beta,
            ref_logp_T=ref_logp_N,
        )
        if on_tokens is not None:
            ratio_N = (logp_N.detach() - old_logp_N).exp()
            _report_tokens(batch, ratio_N, entropy_N, on_tokens)
        return loss, stats, entropy_N

    def state_dict(self) -> dict[str, Any]:
        """Optimiser, step counter and the algorithm's own state (not the weights)."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "version": self.policy.version,
            "algorithm": dict(self.algorithm.state_dict()),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` wrote."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = int(state["step"])
        self.policy.version = int(state["version"])
        self.algorithm.load_state_dict(state["algorithm"])


def _report_tokens(
    batch: MicroBatch,
    ratio_N: Tensor,
    entropy_N: Tensor,
    on_tokens: Callable[[str, TokenColumns], None],
) -> None:
    ratios, entropies = ratio_N.tolist(), entropy_N.tolist()
    start = 0
    counts = batch.mask_BT.sum(dim=1).tolist()
    for row, (rollout_id, count) in enumerate(zip(batch.rollout_ids, counts, strict=True)):
        part = slice(start, start + count)
        advantage = batch.advantages[row]
        if isinstance(advantage, tuple):
            is_trained = batch.mask_BT[row, : len(advantage)].tolist()
            kept = zip(advantage, is_trained, strict=True)
            advantage = tuple(value for value, trained in kept if trained)
        on_tokens(rollout_id, TokenColumns(advantage, tuple(ratios[part]), tuple(entropies[part])))
        start += count


def learning_rate(
    peak: float, step: int, settings: OptimConfig | SftStage, max_steps: int
) -> float:
    """Linear warm-up over `settings.warmup_steps`, then constant or cosine to zero.

    `step` counts from 0.
    """
    if step < settings.warmup_steps:
        return peak * (step + 1) / (settings.warmup_steps + 1)
    if settings.schedule == "constant":
        return peak
    span = max(1, max_steps - settings.warmup_steps)
    progress = min(1.0, (step - settings.warmup_steps) / span)
    return peak * 0.5 * (1.0 + math.cos(math.pi * progress))
