"""Times of a report of ten thousand rollouts in a headless Chromium, and the heap of the page.

    python benchmarks/bench_report.py RUN [--rollouts 10000] [--rounds 5] [--json FILE]

The rollouts are those of RUN, a real run, copied with new names until there are enough; questions
stay as they are. Every time is that of a page opened from disk: `index` until the list of all
rollouts is shown, `rollout` until the tokens of one are, each in a data file that was not loaded
before. Needs Chromium and chromedriver.
"""

from __future__ import annotations

import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measuring import finish, make_parser, print_table

from searchrl.report.folder import write_report
from searchrl.run_folder import Run, RunWriter

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "report"))

LIMITS = {"index_s": 2.0, "rollout_s": 0.5}
"""What the page promises for ten thousand rollouts."""


def main() -> None:
    """Measure, print, write."""
    parser = make_parser(__doc__ or "", rounds=5)
    parser.add_argument("run", help="a run folder with rollouts")
    parser.add_argument("--rollouts", type=int, default=10_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = copy_run(Run.open(args.run), Path(folder) / "run", args.rollouts)
        began = time.perf_counter()
        report = write_report([run], Path(folder) / "report")
        result: dict[str, Any] = {
            "num_rollouts": report.num_rollouts,
            "num_bytes": report.num_bytes,
            "write_s": time.perf_counter() - began,
            **look(report.page, args.rounds),
        }
    rows = [[name, f"{result[name]:.2f}", f"{limit:g}"] for name, limit in LIMITS.items()]
    rows += [[name, f"{result[name]:,.1f}", ""] for name in ("write_s", "num_rollouts")]
    print_table(["figure", "measured", "limit"], rows)
    finish(args, result)


def copy_run(run: Run, folder: Path, num_rollouts: int) -> Run:
    """A run with as many rollouts, made of those of a real one; each copy is a group of its own."""
    writer = RunWriter.create(run.config, folder)
    shutil.copy(run.path / "metrics.jsonl", folder)
    if (run.path / "policy").is_dir():
        (folder / "policy").mkdir()
        shutil.copy(run.path / "policy" / "tokenizer.json", folder / "policy")
    rows = list(run.rollouts())
    for number in range(0, num_rollouts, len(rows)):
        copies = [
            row | {name: f"{row[name]}-{number}" for name in ("rollout_id", "group_id")}
            for row in rows[: num_rollouts - number]
        ]
        writer.write_rollouts(f"copy_{number:06d}", copies, compress=False)
    return Run.open(folder)


def look(page: Path, rounds: int) -> dict[str, float]:
    """Open the page and some rollouts of it, each round in a browser of its own; the medians."""
    from browser import Browser

    index_s, rollout_s, heap = [], [], []
    for number in range(rounds):
        with Browser() as window:
            index_s.append(window.open(page, "#/rollouts"))
            size = window.run("return SEARCHRL.lists.index.size")
            for _ in range(10):
                chosen = random.Random(f"{number}/{len(rollout_s)}").randrange(size)
                link = window.run("return SEARCHRL.lists.link(arguments[0])", chosen)
                rollout_s.append(window.go(link) / 1000)
            heap.append(window.heap() / 1e6)
    return {
        "index_s": statistics.median(index_s),
        "index_max_s": max(index_s),
        "rollout_s": statistics.median(rollout_s),
        "rollout_max_s": max(rollout_s),
        "heap_mb": max(heap),
    }


if __name__ == "__main__":
    main()
