"""What a machine will do with a configuration: a few training steps on the clock.

Owns the measurement and its figures. The steps are those of `train` (same environment, rollouts,
rewards and update), but nothing is evaluated, recorded or kept: the weights are thrown away.
Caller: `searchrl bench`.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from searchrl.algorithms import Algorithm
from searchrl.config import RunConfig
from searchrl.engine.episodes.prompts import PromptStream
from searchrl.engine.episodes.world import make_worlds
from searchrl.engine.learning.learner import Learner
from searchrl.engine.learning.step_groups import sample_groups, train_item
from searchrl.engine.sampling.slot_generator import SlotGenerator
from searchrl.plugins import Registry
from searchrl.programs.evaluate import FailureLimit, make_driver, save_beside
from searchrl.programs.planning import ensure_whole_distribution, load_planned_policy


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
    peak_memory_bytes: int | None
    """Of the process; on a GPU, what was taken there. None: the system does not tell."""
    device: str
    model: str

    def to_dict(self) -> dict[str, Any]:
        """For JSON: what was not measured has no key."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, slots=True)
class _Step:
    num_rollouts: int
    num_tokens: int
    num_trained: int
    sample_s: float
    update_s: float


def measure(
    config: RunConfig,
    registry: Registry,
    num_steps: int,
    *,
    on_step: Callable[[int, int], None] = lambda done, total: None,
    on_note: Callable[[str], None] = lambda text: None,
) -> Measured:
    """Take `num_steps` training steps after one that is not timed.

    Args:
        config: a resolved config (`plan_run`).
        registry: loaded plugins.
        num_steps: at least 1.
        on_step: told how many steps of how many are done.
        on_note: told why `auto` had to take the plain generator, and of failed episodes.

    Raises:
        SearchRLError: for anything wrong with names, data or weights.
        FailureLimitError: if more than `rollout.max_failure_frac` of a step's episodes failed.
    """
    ensure_whole_distribution(config)
    worlds = make_worlds(config, registry)
    try:
        for world in worlds:
            world.num_tasks("train")
        algorithm: Algorithm = registry.get("algorithm", config.algorithm.name).make(
            **config.algorithm.settings
        )
        policy = load_planned_policy(config, trainable=True)
        rollout = config.rollout
        learner = Learner(
            policy,
            algorithm,
            config.algorithm,
            config.optim,
            max_steps=config.max_steps,
            temperature=rollout.temperature,
            constant=rollout.max_total_tokens,
            seed=config.seed,
        )
        sampler = make_driver(
            policy, config, registry, rollout.temperature, rollout.batch_size, on_note
        )
        prompts = PromptStream(worlds, config.seed, rollout.prompts_per_step, rollout.group_size)
        penalty = algorithm.length_penalty_of(rollout.max_total_tokens)
        limit = FailureLimit("bench", rollout.max_failure_frac, save_beside, on_note)

        def take(number: int) -> _Step:
            started = _now(policy.device)
            sampler.generator.sync(policy)
            drawn = sample_groups(sampler, prompts, number, max_refills=algorithm.max_refills or 0)
            sampled = _now(policy.device)
            limit.ensure(drawn.rollouts, f"step {number + 1}", f"step_{number + 1:06d}")
            groups = algorithm.extend(drawn.groups, number)
            items = [train_item(r, penalty) for group in groups for r in group.rollouts]
            _empty_cache(policy.device)
            before = _now(policy.device)
            stats = learner.train_step(items)
            updated = _now(policy.device)
            _empty_cache(policy.device)
            return _Step(
                num_rollouts=len(drawn.rollouts),
                num_tokens=sum(r.trajectory.num_model_tokens for r in drawn.rollouts),
                num_trained=int(stats["num_tokens"]),
                sample_s=sampled - started,
                update_s=updated - before,
            )

        if policy.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        take(0)
        on_step(1, num_steps + 1)
        generator = sampler.generator
        counted = generator.stats if isinstance(generator, SlotGenerator) else None
        if counted is not None:
            counted.restart()
        steps = []
        for number in range(num_steps):
            steps.append(take(number + 1))
            on_step(number + 2, num_steps + 1)
    finally:
        for world in worlds:
            world.close()
    step_s = statistics.median(one.sample_s + one.update_s for one in steps)
    sample_s = sum(one.sample_s for one in steps)
    num_trained = sum(one.num_trained for one in steps)
    return Measured(
        num_steps=num_steps,
        rollouts_per_step=round(statistics.median(one.num_rollouts for one in steps)),
        model_tokens_per_step=statistics.median(one.num_tokens for one in steps),
        sample_s=statistics.median(one.sample_s for one in steps),
        update_s=statistics.median(one.update_s for one in steps),
        step_s=step_s,
        steps_per_hour=3600 / step_s,
        rollouts_per_s=statistics.median(one.num_rollouts for one in steps) / step_s,
        sample_tokens_per_s=sum(one.num_tokens for one in steps) / sample_s,
        train_tokens_per_s=num_trained / sum(s.update_s for s in steps) if num_trained else None,
        slot_use=None if counted is None else counted.slot_use,
        peak_memory_bytes=peak_memory(policy.device),
        device=str(policy.device),
        model=policy.source,
    )


def peak_memory(device: torch.device) -> int | None:
    """Most bytes held so far: of the GPU's memory there, of the process elsewhere."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return process_peak()


def process_peak() -> int | None:
    """Most bytes this process has held; None where the system does not tell."""
    with suppress(OSError):  # first choice: `ru_maxrss` begins with what the parent held
        for line in Path("/proc/self/status").read_text("ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _empty_cache(device: torch.device) -> None:
    """As `train` does between sampling and updating."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
