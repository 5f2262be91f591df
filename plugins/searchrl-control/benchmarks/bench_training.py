"""Episodes per second of `searchrl train`: with an empty cache of embeddings, then with a full one.

    python benchmarks/bench_training.py --collection scifact --data FOLDER --steps 6

Trains the same network twice as a user does: the command line, and the preset of networks. An
episode is counted with all it takes: choosing, searching, scoring, writing its row, and the update.
No position is known at the first step of either run. `rest_s` is what the run takes beside its
steps: what is loaded, the collection with its embeddings, two evaluations of one question. Prints
one JSON object.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def train(given: argparse.Namespace, cache: Path, run: Path) -> dict[str, Any]:
    """One run; its times."""
    settings = {
        "env.collection": given.collection,
        "env.data": given.data or "null",
        "env.cache": str(cache),
        "env.actions": given.actions,
        "eval.every": 0,
        "eval.num_tasks": 1,
    }
    command = [sys.executable, "-m", "searchrl", "train", "--env", "retrieval-control", "--json"]
    command += ["--policy", given.policy, "--max-steps", str(given.steps), "--run-dir", str(run)]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    total_s = time.perf_counter() - began
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    found = [row["metrics"]["episodes_per_s"]["value"] for row in rows if row["phase"] == "train"]
    counts = [row["metrics"]["reward"]["n"] for row in rows if row["phase"] == "train"]
    steps_s = sum(count / rate for count, rate in zip(counts, found, strict=True))
    return {
        "episodes_per_s": [round(rate, 1) for rate in found],
        "mean_episodes_per_s": round(sum(counts) / steps_s, 1),
        "rest_s": round(total_s - steps_s, 1),
        "total_s": round(total_s, 1),
    }


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collection", default="demo")
    parser.add_argument("--data")
    parser.add_argument("--actions", default="heads")
    parser.add_argument("--policy", default="control-linear")
    parser.add_argument("--steps", type=int, default=6)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        told = {name: train(given, cache, Path(folder) / name) for name in ("cold", "warm")}
    print(json.dumps({"collection": given.collection, "actions": given.actions, **told}, indent=1))


if __name__ == "__main__":
    main()
