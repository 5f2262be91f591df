"""Times, peak memory, one thread, and tables for the benchmarks of retrieval.

Owns no benchmark. The core's `benchmarks/measuring.py` imports torch, which would be in every
figure of memory here. Called by `bench_costs`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def one_thread() -> dict[str, str]:
    """The environment of a process that computes on one thread."""
    return {**os.environ, **dict.fromkeys(_THREADS, "1")}


def timed(call: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """The result of a call, and its seconds: of the CPU, all threads, and of the clock."""
    wall, cpu = time.perf_counter(), time.process_time()
    made = call()
    return made, {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}


def peak_mib() -> float:
    """Most resident memory this process has had (Linux), mapped pages included.

    `ru_maxrss` would be that of the parent until this process has had more.
    """
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def print_table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> None:
    """Print rows as Markdown: `columns` maps keys to headings; what a row lacks is a dash."""
    print("| " + " | ".join(columns.values()) + " |")
    print("|" + "---|" * len(columns))
    for row in rows:
        print("| " + " | ".join(_cell(row.get(key)) for key in columns) + " |")


def _cell(value: Any) -> str:
    if value is None:
        return "—"
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
