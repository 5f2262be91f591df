"""The honest table: agents against fixed sequences, on collections they know and on one left out.

    python benchmarks/honest_table.py --out runs/table --collection ir/scifact \\
        --collection multihop/hotpotqa_distractor_pool --collection multihop/musique_pool \\
        --collection multihop/2wikimultihopqa_pool --steps 200

Trains `--seeds` networks on all collections, and as many without each of them in turn; each begins
as the best fixed sequence of the training questions of its own collections. What is left out is
played once everything is chosen. A run that is complete is not trained again, and one that was
stopped goes on. Prints one row for each set of runs, and writes all figures beside them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from searchrl_control.commands.compare import say, show_difference
from searchrl_control.comparison.sequences import describe, open_envs, play_all
from searchrl_control.comparison.study import compare_runs
from searchrl_control.training.folder import (
    begin_run,
    build_settings,
    read_assignments,
    read_run,
    reopen_run,
    run_training,
)
from searchrl_control.training.loop import Settings

BASELINES = ("best fixed sequence", "best of each collection", "single pass")


def train(path: Path, settings: Settings) -> None:
    """Take the steps that a run lacks."""
    if not path.exists():
        run_training(begin_run(path, settings), path, say)
    elif max((run := read_run(path)).checkpoints) < settings.max_steps:
        run_training(reopen_run(run, settings), path, say)


def main() -> None:
    """Train what is not there, compare, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collection", action="append", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", dest="assignments", action="append", default=[])
    given = parser.parse_args()
    of_env, own = read_assignments(given.assignments, is_training=True)
    own = {"checkpoint_every": 20, **own, "max_steps": given.steps}
    print("| left out | test questions | agent |", " | ".join(f"− {one}" for one in BASELINES), "|")
    print("|---|---|---|---|---|---|")
    for left_out in (None, *given.collection):
        places = {
            name: {"actions": "heads", **of_env, "collection": name} for name in given.collection
        }
        others = open_envs([places.pop(left_out)]) if left_out else None
        envs = open_envs([*places.values()])
        start = describe(play_all(envs, say))["best"]["pooled"]["sequence"].split(", ")[1:]
        name, runs = Path(left_out).name if left_out else "none", []
        for seed in range(given.seeds):
            told = {"seed": seed, "envs": [*places.values()], "network": {"start": start}}
            runs.append(given.out / name / f"seed{seed}")
            train(runs[-1], build_settings(told, own))
        figures = compare_runs(envs, [read_run(path) for path in runs], say, others)
        (given.out / f"{name}.json").write_text(json.dumps(figures, indent=1), "utf-8")
        agent, against = [*figures["against"].items()][-1]
        ndcg = figures["tables"]["pooled"][agent]["ndcg"]
        differences = [show_difference(against[one]["pooled"]) for one in BASELINES]
        cells = [name, str(ndcg["n"]), f"{ndcg['value']:.4f}", *differences]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
