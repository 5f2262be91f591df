"""Costs per million passages, and those of the 21 million of Wikipedia, from what was measured.

    python per_million.py --costs FOLDER

Owns the way from a measurement to a larger corpus; it measures nothing. `--costs` is the `--work`
of `bench_costs`. Of two sizes it is the line through both. Of one, seconds, bytes on disk and
milliseconds grow with the passages, and of memory what is above that before anything was opened.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from measured import print_table

MILLION = 1_000_000
WIKIPEDIA = 21_015_324
"""Passages of the dump of 2018 that DPR and Search-R1 search."""

Row = Mapping[str, Any]

GROWING = ("build_cpu_s", "disk_mib", "disk_index_mib", "query_ms", "batch_query_ms")
MEMORY = {"build_peak_mib": "build_peak_before_mib", "peak_mib": "peak_before_mib"}
"""Peaks, and what the process had before."""

COLUMNS = {
    "name": "",
    "count": "measured at",
    "build_cpu_s": "build CPU-s",
    "build_peak_mib": "build peak MiB",
    "disk_index_mib": "index MiB",
    "disk_mib": "with texts MiB",
    "query_ms": "ms a query",
    "batch_query_ms": "in batches of 64",
    "peak_mib": "search peak MiB",
}


def main() -> None:
    """Print a table per million and one for Wikipedia."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--costs", type=Path, action="append", default=[])
    args = parser.parse_args()
    groups: dict[str, list[Row]] = {}
    for folder in args.costs:
        for row in _read(folder):
            groups.setdefault(row["retriever"], []).append(row)
    for total in (MILLION, WIKIPEDIA):
        print(f"\n{total:,} passages")
        rows = [{"name": name, **scale(measured, total)} for name, measured in groups.items()]
        print_table(rows, COLUMNS)


def scale(measured: Sequence[Row], total: int) -> dict[str, Any]:
    """The cost of `total` passages, from one or several sizes of one retriever."""
    ordered = sorted(measured, key=lambda row: row["count"])
    small, large = ordered[0], ordered[-1]
    count = large["count"]
    found: dict[str, Any] = {"count": count}
    for key in (*GROWING, *MEMORY):
        if key not in large:
            continue
        if small["count"] < count:
            found[key] = _on_line(small, large, key, total)
        else:
            before = large.get(MEMORY.get(key, ""), 0.0)
            found[key] = before + (large[key] - before) * total / count
    return found


def _on_line(small: Row, large: Row, key: str, total: int) -> float:
    """The value at `total` on the line through two sizes."""
    slope = (large[key] - small[key]) / (large["count"] - small["count"])
    return float(large[key] + slope * (total - large["count"]))


def _read(folder: Path) -> list[Row]:
    return [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))]


if __name__ == "__main__":
    main()
