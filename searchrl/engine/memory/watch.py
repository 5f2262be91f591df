"""The memory of a training run: what it will take, before it begins, and what it took.

Owns the order: count the model, predict, refuse what cannot fit, measure the peak, compare. How
much each part takes is `forecast`. Callers: `train`, and `--dry-run`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from searchrl.config import RunConfig
from searchrl.engine.memory.footprint import find_footprint
from searchrl.engine.memory.forecast import ensure_fits, make_plan
from searchrl.engine.memory.machine import PeakMeter
from searchrl.engine.memory.plan import MemoryPlan, format_bytes
from searchrl.engine.model.loading import ResolvedModel
from searchrl.errors import PolicyError


def plan_memory(
    config: RunConfig,
    model: ResolvedModel,
    device: torch.device,
    *,
    has_reference: bool,
    is_offline: bool = False,
    must_fit: bool = False,
) -> MemoryPlan | str:
    """What training with a resolved config will take, or why that is not known; loads no weight.

    Args:
        has_reference: whether the algorithm compares with the weights it began with (KL).
        is_offline: read nothing but local files.
        must_fit: refuse a run that does not.

    Raises:
        PolicyError: if it has to fit and cannot; names settings that would.
    """
    try:
        footprint = find_footprint(config.model, model, device, is_offline=is_offline)
    except PolicyError as error:
        return f"not predicted ({error})"
    plan = make_plan(config, footprint, device, has_reference=has_reference)
    if must_fit:
        ensure_fits(plan, config, footprint, device, has_reference=has_reference)
    return plan


@dataclass(frozen=True, slots=True)
class MemoryWatch:
    """The plan of a run, and the meter of what it really takes."""

    plan: MemoryPlan | str
    meter: PeakMeter

    def tell_peak(self, on_note: Callable[[str], None]) -> None:
        """Compare what was taken until now with the plan, where both are known."""
        plan, peak = self.plan, self.meter.peak_bytes()
        if isinstance(plan, MemoryPlan) and peak is not None:
            on_note(f"memory: predicted {format_bytes(plan.total)}, peak {format_bytes(peak)}")


def watch_memory(
    config: RunConfig, model: ResolvedModel, device: torch.device, *, has_reference: bool
) -> MemoryWatch:
    """Plan a training run that is about to begin, and measure from here on.

    Raises:
        PolicyError: if it cannot fit; names settings that would.
    """
    plan = plan_memory(config, model, device, has_reference=has_reference, must_fit=True)
    return MemoryWatch(plan, PeakMeter(device))
