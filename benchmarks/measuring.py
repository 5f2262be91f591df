"""What the benchmarks share: arguments, taking turns, medians, peak memory, tables and JSON.

Times are compared within one run only. The sides take turns, step by step, so that whatever else
the machine does hits all of them; the first step of each is not timed; a figure is a median.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

MIB = 1 << 20
STANDARD_OUTPUT = Path("-")


def make_parser(doc: str, *, threads: int = 1, rounds: int = 5) -> argparse.ArgumentParser:
    """A parser with the arguments every benchmark takes."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=threads, help="CPU threads of torch")
    parser.add_argument("--rounds", type=int, default=rounds, help="timed steps of each side")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--json",
        type=Path,
        nargs="?",
        action=_Json,
        metavar="FILE",
        help="write the result here; without FILE, to standard output (tables: standard error)",
    )
    return parser


class _Json(argparse.Action):
    """`--json FILE`, or `--json` alone: the tables then go to standard error."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: Any = None) -> None:
        """Keep the file, or make room on standard output."""
        if values is None:
            sys.stdout = sys.stderr
        setattr(namespace, self.dest, values or STANDARD_OUTPUT)


def set_threads(count: int) -> None:
    """Give torch `count` threads, in this thread and in those that are started later."""
    os.environ["OMP_NUM_THREADS"] = str(count)
    import torch

    torch.set_num_threads(count)


@dataclass(frozen=True, slots=True)
class Timing:
    """Medians over the timed steps of one side."""

    wall_s: float
    cpu_s: float
    """Of all threads. On a machine with other work this is the steadier of the two."""
    walls: tuple[float, ...]
    """Every timed step."""

    def facts(self) -> dict[str, Any]:
        """For the JSON."""
        return {"wall_s": self.wall_s, "cpu_s": self.cpu_s, "walls": list(self.walls)}


def take_turns(sides: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, Timing]:
    """Time `rounds` steps of each side after one that is not counted: A B, then B A, and so on.

    Who comes second in a round may find things warm; so no side always does.
    """
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        in_turn = list(sides.items())
        for name, step in in_turn[:: -1 if number % 2 else 1]:
            wall, cpu = time.perf_counter(), time.process_time()
            step()
            taken = (time.perf_counter() - wall, time.process_time() - cpu)
            if number:
                seen[name].append(taken)
    timings = {}
    for name, pairs in seen.items():
        walls, cpus = zip(*pairs, strict=True)
        timings[name] = Timing(statistics.median(walls), statistics.median(cpus), walls)
    return timings


def peak_bytes() -> int:
    """Most memory this process has held."""
    import torch

    from searchrl.engine.memory.machine import peak_memory

    return peak_memory(torch.device("cpu"))


def resident_bytes() -> int:
    """Memory of this process now (Linux; elsewhere its peak)."""
    try:
        lines = Path("/proc/self/status").read_text("ascii").splitlines()
    except OSError:
        return peak_bytes()
    return next((int(one.split()[1]) * 1024 for one in lines if one.startswith("VmRSS:")), 0)


def restart_peak() -> None:
    """Let `peak_bytes` begin again with what is held now (Linux; elsewhere it goes on).

    Freed memory goes back to the system first, or it would hide what is taken next.
    """
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5", "ascii")


def measure_alone(script: str, side: str, argv: Sequence[str]) -> dict[str, Any]:
    """Run a script in a process of its own with `--only SIDE`; the JSON it writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "alone.json"
        command = [sys.executable, script, *argv, "--only", side, "--json", str(path)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        result: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return result


def machine_facts() -> dict[str, Any]:
    """Where and with what a result was measured."""
    import torch

    packages = {}
    for name in ("torch", "transformers", "peft", "trl", "vllm", "searchrl"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = "not installed"
    facts = {
        "date": date.today().isoformat(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 2),
        **packages,
    }
    if torch.cuda.is_available():
        facts |= {"gpu": torch.cuda.get_device_name(), "cuda": torch.version.cuda}
    return facts


def processor_name() -> str:
    """The processor's name where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def print_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows under a header, as a Markdown table."""
    cells = [list(map(str, header)), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = [
        "| " + " | ".join(value.rjust(width) for value, width in zip(row, widths, strict=True))
        for row in cells
    ]
    lines.insert(1, "| " + " | ".join("-" * (width - 1) + ":" for width in widths))
    print("\n".join(f"{line} |" for line in lines))


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str("" if value is None else value)


def finish(args: argparse.Namespace, result: Mapping[str, Any]) -> None:
    """Print where this was measured, and write the JSON if asked to."""
    machine = write_json(args, result)["machine"]
    print(
        f"\n{machine['date']}, {machine.get('gpu', machine['processor'])}, {machine['cores']} "
        f"cores, {machine['threads']} threads, load {machine['load']}; torch {machine['torch']}, "
        f"transformers {machine['transformers']}, trl {machine['trl']}"
    )


def write_json(args: argparse.Namespace, result: Mapping[str, Any]) -> dict[str, Any]:
    """Write a result where `--json` says; return it with the machine and the settings."""
    whole = {"machine": machine_facts(), "settings": _settings(args), **result}
    text = json.dumps(whole, indent=2) + "\n"
    if args.json == STANDARD_OUTPUT:
        (sys.__stdout__ or sys.stdout).write(text)
    elif args.json is not None:
        new = args.json.with_name(args.json.name + ".new")
        new.write_text(text, "utf-8")
        new.replace(args.json)
    return whole


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    return {k: v for k, v in vars(args).items() if isinstance(v, int | float | str | list)}
