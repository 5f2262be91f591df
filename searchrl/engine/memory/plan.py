"""The memory plan as data: the parts of a training run, their sum, and how to say it. No torch.

Sampling and updating take turns, and within an update the head and the backward pass of the layers
do. So the peak is what stays plus the larger of the two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from searchrl.errors import ConfigError

_GIB = 2**30
CUDA_CONTEXT = round(0.6 * _GIB)
"""Memory that CUDA itself takes: kernels and driver, before any tensor."""

_UNITS = {"": _GIB, "gb": _GIB, "gib": _GIB, "mb": 2**20, "mib": 2**20}


class Part(NamedTuple):
    """One line of the plan.

    `phase`: `always`, `sampling`, `update`, or a part of the update that the other part waits for:
    `head` or `layers`.
    """

    name: str
    num_bytes: int
    phase: str
    why: str


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The parts of a run. `available` None: the device does not say."""

    parts: tuple[Part, ...]
    available: int | None
    num_slots: int
    micro_batch_tokens: int
    is_checkpointing: bool
    quantize: str
    is_cold_start: bool
    num_processes: int = 1
    is_sharded: bool = False
    remedy: str = ""
    """Settings that would fit, where this does not."""
    has_remedy: bool = True
    """False if nothing would."""

    @property
    def phases(self) -> dict[str, int]:
        """Bytes that are there always, and at the peak of `sampling` and of `update` besides."""
        update = self._of("update") + max(self._of("head"), self._of("layers"))
        return {"always": self._of("always"), "sampling": self._of("sampling"), "update": update}

    @property
    def total(self) -> int:
        """Bytes at the peak."""
        phases = self.phases
        return phases["always"] + max(phases["sampling"], phases["update"])

    @property
    def fits(self) -> bool:
        """True if the prediction is within what is available."""
        return self.available is None or self.total <= self.available

    def _of(self, phase: str) -> int:
        return sum(part.num_bytes for part in self.parts if part.phase == phase)

    @property
    def verdict(self) -> str:
        """The outcome, and what would fit, in one line."""
        if self.available is None:
            return f"needs {self} (how much this device has is not known)"
        return f"fits: {self}" if self.fits else f"does not fit: {self}. {self.remedy}"

    def __str__(self) -> str:
        room = "" if self.available is None else f" of {format_bytes(self.available)}"
        # Short enough for one line; each part stands in `parts`.
        more = ", checkpointing" if self.is_checkpointing else ""
        more += "" if self.quantize == "none" else f", {self.quantize}"
        more += f", fsdp2 over {self.num_processes} GPUs" if self.is_sharded else ""
        return (
            f"{format_bytes(self.total)}{room}, {self.num_slots} slots, "
            f"micro-batches of {self.micro_batch_tokens:,} tokens{more}"
        )

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON."""
        return {
            "parts": {part.name: part.num_bytes for part in self.parts},
            "phases": self.phases,
            "total": self.total,
            "available": self.available,
            "fits": self.fits,
            "remedy": self.remedy or None,
            "num_slots": self.num_slots,
            "micro_batch_tokens": self.micro_batch_tokens,
            "is_checkpointing": self.is_checkpointing,
            "quantize": self.quantize,
        }


def parse_bytes(text: str) -> int:
    """Bytes of a size such as `24GB`, `24` or `8192 MB`, of 1024 each; else ConfigError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    if match is None or match[2] not in _UNITS or not float(match[1]):
        raise ConfigError(f"'{text}' is no size of memory: expected one such as 24GB or 8192MB")
    return round(float(match[1]) * _UNITS[match[2]])


def format_bytes(num_bytes: float) -> str:
    """In GB, MB or kB, of 1024 each."""
    if num_bytes >= _GIB / 10:
        return f"{num_bytes / _GIB:.1f} GB"
    if num_bytes >= 2**20 / 10:
        return f"{num_bytes / 2**20:.1f} MB"
    return f"{num_bytes / 2**10:.1f} kB"
