"""Optimiser steps on packed rows: mini-batches, the gradient of all processes, clipping, the step.

Owns what learners have in common. Which rows there are, and what their loss is, a learner knows.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from searchrl.core.group import Group
from searchrl.core.reduction import Reduction
from searchrl.engine.learning.batches import MicroBatch, micro_batches, share_groups, without
from searchrl.engine.learning.packing import WEIGHT, PackedRow, weigh
from searchrl.engine.learning.workers import Workers
from searchrl.engine.model.policy import Policy
from searchrl.engine.model.sharding import shard_state, whole
from searchrl.errors import PolicyError

T = TypeVar("T")

LEAST_SCALE = 2.0**-14
"""Floor of the loss scale, for a float16 model whose gradients overflow in every step."""


class Updater:
    """Takes optimiser steps; a learner computes the loss.

    Args:
        policy: its weights are updated.
        optimizer: over the trained parameters; the learner sets the rates of its groups.
        max_grad_norm: the gradient of each group is clipped to it.
        micro_batch_tokens: most tokens of a forward and backward pass.
        workers: the processes: each computes the gradient of its groups, and all take the same
            optimiser step.
    """

    temperature = 1.0
    """Temperature of all log-probs; the sampler's."""
    packing_fault: str | None
    """Why rows are padded instead of packed; None: they are packed."""

    def __init__(
        self,
        policy: Policy,
        optimizer: Optimizer,
        max_grad_norm: float,
        micro_batch_tokens: int,
        workers: Workers,
    ) -> None:
        self.policy = policy
        self.optimizer = optimizer
        self.max_grad_norm = max_grad_norm
        self.micro_batch_tokens = micro_batch_tokens
        """Smaller than the setting once memory has run out."""
        self.workers = workers
        self.parameters = [one for group in optimizer.param_groups for one in group["params"]]
        is_half = policy.dtype == torch.float16
        self.loss_scale = torch.amp.GradScaler(policy.device.type, enabled=is_half)
        """Keeps the gradients of a float16 model above the smallest float16."""
        self.step = 0
        self.is_halfway = False
        """True if a training step changed weights but did not finish: not worth keeping."""

    def ensure_same_weights(self, when: str) -> None:
        """Check that all processes hold the same weights; see `Workers.ensure_same`."""
        self.workers.ensure_same(self.parameters, when)

    def accumulate(
        self,
        groups: Sequence[Group[PackedRow]],
        compute: Callable[[MicroBatch], tuple[Tensor, T]],
    ) -> tuple[list[T], int]:
        """Leave the gradient of one optimiser step in `.grad`, times the loss scale.

        `compute` returns the loss of a micro-batch, whose weights carry the denominator of the
        step, and its figures. The gradient is the sum over processes. Each micro-batch has its own
        `.grad` until the end of its backward pass: one that runs out of memory leaves nothing
        behind. Returns the figures of this process, and how often memory ran out.
        """
        totals: list[Tensor | None] = [None] * len(self.parameters)
        # Here and not at the loss: a process without rows must know the scale, too.
        scale = self.loss_scale.scale(torch.ones((), device=self.policy.device))

        def run(batch: MicroBatch) -> T:
            self.optimizer.zero_grad(set_to_none=True)
            loss, figures = compute(batch)
            (loss * scale).backward()
            for number, parameter in enumerate(self.parameters):
                total = totals[number]
                if parameter.grad is not None:
                    totals[number] = parameter.grad if total is None else total.add_(parameter.grad)
            return figures

        made = self.in_micro_batches(groups, run)
        self.workers.sum_gradients(self.parameters, totals)
        for parameter, total in zip(self.parameters, totals, strict=True):
            parameter.grad = total
        return made

    def in_micro_batches(
        self, groups: Sequence[Group[PackedRow]], run: Callable[[MicroBatch], T]
    ) -> tuple[list[T], int]:
        """Return the results of `run` for this process's rows, and how often memory ran out.

        A batch too large for memory is split and run again. All processes gather sharded weights at
        once: a process that is done goes on with an empty batch, and none can split a batch.
        """
        is_packed, is_sharded = self.packing_fault is None, self.policy.is_sharded
        waiting = share_groups(groups, self.workers, is_packed=is_packed)
        made: list[T] = []
        num_splits = 0
        while any(self.workers.gather(bool(waiting))) if is_sharded else waiting:
            size, device = self.micro_batch_tokens, self.policy.device
            batch = next(micro_batches(waiting or groups, size, device, is_packed=is_packed))
            try:
                with self.workers.in_lockstep() if is_sharded else nullcontext():
                    if waiting:
                        made.append(run(batch))
                    else:
                        run(batch.without_weights())
                waiting = without(waiting, set(batch.row_ids))
                continue
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                if is_sharded or len(batch.rows) == 1:
                    most = max(len(row.ids) for row in batch.rows)
                    why = "over sharded weights" if is_sharded else "of a single rollout"
                    raise PolicyError(
                        f"memory ran out, and a micro-batch {why} is not split (rollouts of up to "
                        f"{most:,} tokens): set model.gradient_checkpointing: true, lower "
                        f"micro_batch_tokens ({size:,}) of optim or sft, or "
                        "rollout.max_total_tokens, or train with model.adapter: lora"
                    ) from error
            # Not in the except block: the exception keeps tensors alive.
            self.micro_batch_tokens = max(1, min(size, batch.layout.num_computed) // 2)
            num_splits += 1
            torch.cuda.empty_cache()
        return made, num_splits

    def take_step(self, *, is_good: bool = True, is_frozen: bool = False) -> tuple[float, bool]:
        """Clip the gradient and take the optimiser step, unless it is not finite.

        `is_good` is False for a step that must not be taken; with `is_frozen` the first group of
        parameters stays as it is. Returns the norm of that group's gradient before clipping, and
        True if the step was taken.
        """
        self.loss_scale.unscale_(self.optimizer)
        # Each group by itself: the gradient of a critic may be much larger.
        found = [
            torch.nn.utils.clip_grad_norm_(group["params"], self.max_grad_norm)
            for group in self.optimizer.param_groups
        ]
        norms: list[float] = whole(torch.stack(found)).tolist()
        self.loss_scale.update()
        if self.loss_scale.is_enabled() and self.loss_scale.get_scale() < LEAST_SCALE:
            self.loss_scale.update(LEAST_SCALE)  # at 0 every gradient would be NaN
        is_taken = is_good and all(map(math.isfinite, norms))
        if is_frozen:
            for parameter in self.optimizer.param_groups[0]["params"]:
                parameter.grad = None
        if is_taken:
            self.is_halfway = True
            self.optimizer.step()
            self.policy.version += 1
        self.optimizer.zero_grad(set_to_none=True)
        return norms[0], is_taken

    def state_dict(self) -> dict[str, Any]:
        """Optimiser, step counter and loss scale (not the weights)."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "version": self.policy.version,
            "loss_scale": self.loss_scale.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` wrote."""
        self.optimizer.load_state_dict(shard_state(self.optimizer, state["optimizer"]))
        self.step = int(state["step"])
        self.policy.version = int(state["version"])
        self.loss_scale.load_state_dict(state["loss_scale"])


def is_out_of_memory(error: RuntimeError) -> bool:
    """Return True if memory ran out: CUDA has an exception for it, the CPU only a text."""
    text = str(error)
    return isinstance(error, torch.OutOfMemoryError) or any(
        part in text for part in ("can't allocate memory", "not enough memory")
    )


def mini_batches(
    groups: Sequence[Group[PackedRow]],
    num_batches: int,
    reduction: Reduction,
    *,
    constant: int,
    key: int,
) -> list[tuple[Group[PackedRow], ...]]:
    """Split a training step into optimiser steps of whole groups, each with its own denominator.

    At most `num_batches`, as even as groups allow; `key` decides which groups meet. Groups that
    are only in other terms make no step of their own.
    """
    in_loss = [
        group.id for group in groups if any(r.columns[WEIGHT].values[0] for r in group.rollouts)
    ]
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
