"""How fast a machine trains with a configuration: a few training steps are timed.

Owns the measurement and its figures. The steps are those of `train` (same environment, rollouts,
rewards and update), but nothing is evaluated, recorded or kept: the weights are thrown away.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
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


@dataclass(frozen=True, slots=True)
class Measured:
    """Medians over the timed steps; None: not measured. Tokens are those the model wrote."""

    num_steps: int
    rollouts_per_step: int
    """Those sampled, replaced ones among them."""
    model_tokens_per_step: float
    sample_s: float
    update_s: float
    step_s: float
    steps_per_hour: float
    rollouts_per_s: float
    sample_tokens_per_s: float
    train_tokens_per_s: float | None
    """None: every group was dead, so nothing was trained on."""
    slot_use: float | None
    """Share of decoded rows that were sampled from; None: the generator does not count."""
    peak_memory_bytes: int
    """Of the process; on a GPU, what was taken there. None: the system does not tell."""
    device: str
    model: str

    def to_dict(self) -> dict[str, Any]:
        """For JSON: what was not measured has no key."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def measure(
    plan: Plan,
    registry: Registry,
    num_steps: int,
    *,
    on_step: Callable[[int, int], None] = lambda done, total: None,
    on_note: Callable[[str], None] = lambda text: None,
) -> Measured:
    """Take `num_steps` training steps after one that is not timed.

    Args:
        plan: of a training run.
        registry: loaded plugins.
        num_steps: at least 1.
        on_step: told how many steps of how many are done.
        on_note: told why `auto` had to take the plain generator, and of failed episodes.

    Raises:
        SearchRLError: for anything wrong with names, data or weights.
        FailureLimitError: if more than `rollout.max_failure_frac` of a step's episodes failed.
    """
    session = Session(plan, registry, ALONE, on_note)
    try:
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
        counted = stats if isinstance(stats, SlotStats) else None
        if counted is not None:
            counted.restart()
        steps = [take(number) for number in range(2, num_steps + 2)]
    finally:
        session.close()
    num_rollouts, num_tokens, num_trained, sample_s, update_s = zip(*steps, strict=True)
    step_s = median(map(sum, zip(sample_s, update_s, strict=True)))
    return Measured(
        num_steps=num_steps,
        rollouts_per_step=round(median(num_rollouts)),
        model_tokens_per_step=median(num_tokens),
        sample_s=median(sample_s),
        update_s=median(update_s),
        step_s=step_s,
        steps_per_hour=3600 / step_s,
        rollouts_per_s=median(num_rollouts) / step_s,
        sample_tokens_per_s=sum(num_tokens) / sum(sample_s),
        train_tokens_per_s=sum(num_trained) / sum(update_s) if any(num_trained) else None,
        slot_use=None if counted is None else counted.slot_use,
        peak_memory_bytes=peak_memory(device),
        device=str(device),
        model=plan.model.label,
    )


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
