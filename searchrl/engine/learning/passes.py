"""Passes over the rollouts of this process, in micro-batches that memory holds.

Owns what happens when memory runs out, and that processes which hold sharded weights make as many
passes as each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import torch

from searchrl.core.group import Group
from searchrl.engine.learning.batches import MicroBatch, micro_batches, without
from searchrl.engine.learning.packing import PackedRollout
from searchrl.engine.learning.sharing import share_groups
from searchrl.errors import PolicyError

if TYPE_CHECKING:
    from searchrl.engine.learning.learner import Learner

T = TypeVar("T")


def in_micro_batches(
    learner: Learner, groups: Sequence[Group[PackedRollout]], run: Callable[[MicroBatch], T]
) -> tuple[list[T], int]:
    """What `run` makes of the rollouts of this process, and how often memory ran out.

    What memory does not hold is split and run again.
    """
    is_packed = learner.packing_fault is None
    waiting = share_groups(groups, learner.workers, is_packed=is_packed)
    if learner.policy.is_sharded:
        return _in_lockstep(learner, groups, waiting, run), 0
    made: list[T] = []
    num_splits = 0
    while waiting:
        size, device = learner.micro_batch_tokens, learner.policy.device
        batch = next(micro_batches(waiting, size, device, is_packed=is_packed))
        try:
            made.append(run(batch))
            waiting = without(waiting, set(batch.row_ids))
            continue
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            if len(batch.rollouts) == 1:
                raise PolicyError(
                    f"memory ran out for a single rollout of {len(batch.rollouts[0].ids):,} "
                    "tokens, which cannot be split: set model.gradient_checkpointing: true, "
                    "lower rollout.max_total_tokens, or train with model.adapter: lora"
                ) from error
        # Not in the except block: the exception keeps tensors alive.
        learner.micro_batch_tokens = max(1, min(size, batch.layout.num_computed) // 2)
        num_splits += 1
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return made, num_splits


def _in_lockstep(
    learner: Learner,
    groups: Sequence[Group[PackedRollout]],
    own: Sequence[Group[PackedRollout]],
    run: Callable[[MicroBatch], T],
) -> list[T]:
    """The same where every pass gathers weights from all processes.

    One with fewer micro-batches than another runs a small one more, without weight, and forgets
    what comes of it. Nothing is split when memory runs out: the others would wait.
    """
    split = partial(
        micro_batches, device=learner.policy.device, is_packed=learner.packing_fault is None
    )
    batches = list(split(own, learner.micro_batch_tokens))
    num_spare = max(learner.workers.gather(len(batches))) - len(batches)
    with learner.workers.in_lockstep():
        try:
            made = [run(batch) for batch in batches]
            for _ in range(num_spare):
                # All processes know all groups.
                spare = min(split(groups, 1), key=lambda batch: batch.layout.num_computed)
                nothing = torch.zeros_like(spare.weight_N)
                run(replace(spare, weight_N=nothing, hold_weight_N=nothing))
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise PolicyError(
                "memory ran out, and micro-batches over sharded weights are not split: lower "
                f"optim.micro_batch_tokens ({learner.micro_batch_tokens:,}), or set "
                "model.gradient_checkpointing: true"
            ) from error
    return made


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether memory ran out: CUDA has an exception for it, the CPU allocator only a text."""
    text = str(error)
    return isinstance(error, torch.OutOfMemoryError) or any(
        part in text for part in ("can't allocate memory", "not enough memory")
    )
