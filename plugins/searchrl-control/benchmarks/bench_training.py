"""Episodes per second of `searchrl control train`: with an empty cache of embeddings, then a full.

    python benchmarks/bench_training.py --collection scifact --data FOLDER --steps 6

Trains the same network twice as a user does. An episode is counted with all it takes: deciding,
searching and the update.
No position is known at the first step of either run. `rest_s` is what the run takes beside its
steps: what is loaded, the collection with its embeddings, checkpoints. Prints
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
    command = [sys.executable, "-m", "searchrl", "control", "train", "--run-dir", str(run)]
    command += ["--collection", given.collection, "--set", f"network={given.network}"]
    command += ["--set", f"env.data={given.data or 'null'}", "--set", f"env.cache={cache}"]
    command += ["--set", f"env.actions={given.actions}", "--set", f"max_steps={given.steps}"]
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    total_s = time.perf_counter() - began
    config = json.loads((run / "config.json").read_text())["settings"]
    count = config["questions"] * config["group_size"]
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    found = [row["episodes_per_s"] for row in rows]
    steps_s = sum(count / rate for rate in found)
    return {
        "episodes_per_s": [round(rate, 1) for rate in found],
        "mean_episodes_per_s": round(count * len(found) / steps_s, 1),
        "rest_s": round(total_s - steps_s, 1),
        "total_s": round(total_s, 1),
    }


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collection", default="demo")
    parser.add_argument("--data")
    parser.add_argument("--actions", default="heads")
    parser.add_argument("--network", default="linear")
    parser.add_argument("--steps", type=int, default=6)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        told = {name: train(given, cache, Path(folder) / name) for name in ("cold", "warm")}
    print(json.dumps({"collection": given.collection, "actions": given.actions, **told}, indent=1))


if __name__ == "__main__":
    main()
