"""The memory of this machine: what a device could give now, and what a run has really taken."""

from __future__ import annotations

import os
import platform
import resource
import sys
from pathlib import Path
from typing import Any

import torch


def available(device: torch.device) -> int | None:
    """Bytes that a device could give now; None where that cannot be found out."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type != "cpu":
        return None
    rooms = (_status_fields(Path("/proc/meminfo")).get("MemAvailable"), _cgroup_room())
    return min((room for room in rooms if room is not None), default=None)


def describe_machine(device: torch.device) -> dict[str, Any]:
    """Processor, cores, memory in bytes and, if a run trains there, the GPU."""
    facts: dict[str, Any] = {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "memory": _status_fields(Path("/proc/meminfo")).get("MemTotal"),
        "gpu": None,
    }
    if device.type == "cuda":
        card = torch.cuda.get_device_properties(device)
        facts |= {"gpu": card.name, "gpu_memory": card.total_memory, "cuda": torch.version.cuda}
    elif device.type != "cpu":
        facts["gpu"] = device.type
    return facts


def _cpu_name() -> str:
    """The model of the processor, or its architecture where the system does not name it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()


def _cgroup_room() -> int | None:
    """Bytes that the container of this process may still take."""
    folder = Path("/sys/fs/cgroup")
    try:
        limit = (folder / "memory.max").read_text("ascii").strip()
        used = (folder / "memory.current").read_text("ascii").strip()
    except OSError:
        return None
    return int(limit) - int(used) if limit.isdigit() else None


def _status_fields(path: Path) -> dict[str, int]:
    """Bytes by name of a file of Linux's process information; empty elsewhere."""
    try:
        lines = path.read_text("ascii", "replace").splitlines()
    except OSError:
        return {}
    pairs = (line.split() for line in lines if line.endswith(" kB"))
    return {pair[0].rstrip(":"): 1024 * int(pair[1]) for pair in pairs}


def peak_memory(device: torch.device) -> int:
    """Most bytes held so far: of the GPU's memory there, of the process elsewhere."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
