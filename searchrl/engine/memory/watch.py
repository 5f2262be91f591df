"""The memory of a training run: what it will take, before it begins, and what it took.

Owns the order: count the model, predict, refuse what cannot fit, measure the peak, compare. How
much each part takes is `forecast`. Callers: `train`, and `--dry-run`, which asks for an `Outlook`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from searchrl.config import RunConfig
from searchrl.engine.memory.footprint import find_footprint
from searchrl.engine.memory.forecast import ensure_fits, find_remedy, make_plan
from searchrl.engine.memory.machine import PeakMeter
from searchrl.engine.memory.plan import MemoryPlan, format_bytes
from searchrl.engine.memory.rehearsal import rehearse_update
from searchrl.engine.model.loading import ResolvedModel
from searchrl.errors import PolicyError

_AGREEMENT = 0.1
"""Plan and rehearsal agree if they differ by no more than this share."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a dry run knows of the memory of a run.

    `remedy`: settings that would fit; empty if it fits. `rehearsed`: bytes of the run at the peak
    of a rehearsed update, why it could not be rehearsed, or None if nobody asked.
    """

    plan: MemoryPlan
    remedy: str
    rehearsed: int | str | None = None

    @property
    def verdict(self) -> str:
        """The first line: whether it fits, and what would."""
        if self.plan.available is None:
            return f"needs {self.plan} (how much this device has is not known)"
        if self.remedy:
            return f"does not fit: {self.plan}. {self.remedy}"
        return f"fits: {self.plan}"

    @property
    def rehearsal(self) -> str | None:
        """How the plan compares with the rehearsal, in one line; None if nobody asked."""
        if self.rehearsed is None:
            return None
        if isinstance(self.rehearsed, str):
            return f"not possible ({self.rehearsed})"
        planned = self._planned
        line = (
            f"one update on tensors without content holds {format_bytes(self.rehearsed)} at its "
            f"peak, the plan says {format_bytes(planned)} ({planned / self.rehearsed - 1:+.0%})"
        )
        is_far = abs(planned / self.rehearsed - 1) > _AGREEMENT
        return f"{line}: they disagree, the larger one counts" if is_far else line

    @property
    def _planned(self) -> int:
        phases = self.plan.phases
        return phases["always"] + phases["update"]

    def to_dict(self) -> dict[str, Any]:
        """Plan, verdict and rehearsal as JSON."""
        return {
            **self.plan.to_dict(),
            "fits": not self.remedy,
            "remedy": self.remedy or None,
            "planned_update": self._planned,
            "rehearsed_update": self.rehearsed,
        }


def foresee_memory(
    config: RunConfig,
    model: ResolvedModel,
    device: torch.device,
    *,
    has_reference: bool,
    room: int | None = None,
) -> Outlook | str:
    """What a dry run says of memory, or why that is not known. Reads local files only.

    Args:
        config: resolved.
        model: its weights.
        device: where it would train.
        has_reference: whether the algorithm compares with the weights it began with (KL).
        room: bytes that a GPU on another machine has for tensors: then an update is rehearsed,
            too. None: this machine is asked, and nothing is rehearsed.
    """
    try:
        footprint = find_footprint(config.model, model, device, is_offline=True)
    except PolicyError as error:
        return f"not predicted ({error})"
    plan = make_plan(config, footprint, device, has_reference=has_reference, room=room)
    rehearsed: int | str | None = None
    needed = plan.total
    if room is not None:
        try:
            rehearsed = rehearse_update(config, model, device, is_offline=True)
        except PolicyError as error:
            rehearsed = str(error)
        else:
            # The optimiser has no state before the first update; a reference is not run here.
            rehearsed += plan.size_of("optimiser state") + plan.size_of("reference")
            needed = max(needed, rehearsed)
    remedy = ""
    if plan.available is not None and needed > plan.available:
        # What the rehearsal found more, other settings will need more, too.
        short = replace(plan, available=int(plan.available * plan.total / needed))
        remedy = find_remedy(short, config, footprint, device, has_reference=has_reference)
    return Outlook(plan, remedy, rehearsed)


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
    config: RunConfig, model: ResolvedModel | None, device: torch.device, *, has_reference: bool
) -> MemoryWatch:
    """Plan a training run that is about to begin, and measure from here on.

    Without a `model` a network of choices is trained, which is small: nothing is planned.

    Raises:
        PolicyError: if it cannot fit; names settings that would.
    """
    if model is None:
        return MemoryWatch("not predicted (a network of choices)", PeakMeter(device))
    try:
        footprint = find_footprint(config.model, model, device, is_offline=False)
    except PolicyError as error:
        return MemoryWatch(f"not predicted ({error})", PeakMeter(device))
    plan = make_plan(config, footprint, device, has_reference=has_reference)
    ensure_fits(plan, config, footprint, device, has_reference=has_reference)
    return MemoryWatch(plan, PeakMeter(device))
