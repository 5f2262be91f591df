"""The speed of a machine with a configuration: a few training steps are timed.

The steps are those of `train`, but nothing is evaluated, recorded or kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from statistics import median
from typing import Any

import torch

from searchrl.engine.learning.workers import ALONE
from searchrl.engine.memory.machine import peak_memory
from searchrl.engine.metrics.failures import FailureLimit
from searchrl.engine.sampling.slot_generator import SlotStats
from searchrl.plugins import Registry
from searchrl.programs.setup.planning import Plan
from searchrl.programs.setup.session import Session
from searchrl.run_folder import save_beside


def measure(
    plan: Plan,
    registry: Registry,
    num_steps: int,
    *,
    on_step: Callable[[int, int], None] = lambda done, total: None,
    on_note: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Take `num_steps` training steps after one that is not timed; `on_step` is told how many.

    Returns figures by name, medians over the steps; tokens are those the model wrote. What was not
    measured has no key: training where every group was dead, slots of a plain generator.
    FailureLimitError if more than `rollout.max_failure_frac` of a step's episodes failed.
    """
    with closing(Session(plan, registry, ALONE, on_note)) as session:
        device, config = session.policy.device, session.config
        limit = FailureLimit("bench", config.rollout.max_failure_frac, save_beside, on_note)

        def take(number: int) -> tuple[int, int, int, float, float]:
            """Rollouts, tokens sampled and trained on, seconds of sampling and of the update."""
            started = _now(device)
            drawn = session.sample(number)
            sampled = _now(device)
            limit.ensure(drawn.rollouts, f"step {number}", f"step_{number:06d}")
            limit.ensure_scored(drawn.rollouts, f"step {number}")
            before = _now(device)
            learned = session.update(drawn, number)
            num_tokens = sum(r.trajectory.num_model_tokens for r in drawn.rollouts)
            num_trained, update_s = int(learned.metrics["num_tokens"]), _now(device) - before
            on_step(number, num_steps + 1)
            return len(drawn.rollouts), num_tokens, num_trained, sampled - started, update_s

        take(1)
        stats = session.sampler.stats
        if isinstance(stats, SlotStats):
            stats.restart()
        steps = [take(number) for number in range(2, num_steps + 2)]
    num_rollouts, num_tokens, num_trained, sample_s, update_s = zip(*steps, strict=True)
    step_s = median(map(sum, zip(sample_s, update_s, strict=True)))
    trained_on = {"train_tokens_per_s": sum(num_trained) / sum(update_s)}
    return {
        "model": plan.model.label,
        "device": str(device),
        "num_steps": num_steps,
        "rollouts_per_step": round(median(num_rollouts)),
        "model_tokens_per_step": median(num_tokens),
        "step_s": step_s,
        "sample_s": median(sample_s),
        "update_s": median(update_s),
        "steps_per_hour": 3600 / step_s,
        "rollouts_per_s": median(num_rollouts) / step_s,
        "sample_tokens_per_s": sum(num_tokens) / sum(sample_s),
        **(trained_on if any(num_trained) else {}),
        **({"slot_use": stats.slot_use} if isinstance(stats, SlotStats) else {}),
        "peak_memory_bytes": peak_memory(device),
    }


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
