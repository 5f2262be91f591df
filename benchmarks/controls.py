"""Controls of a job: the same run on shuffled rewards, at rate 0, and rewarded for form alone.

    python benchmarks/controls.py facts --out runs/controls [--seeds 5] [--set num_threads=1]
    python benchmarks/controls.py --out runs/controls

A job is a name of `JOBS` or a configuration file of `searchrl train`. The trained policy is also
evaluated with random passages. A run that has finished in `--out` is not made again; without a job
the table is printed from `controls.json` there. Differences are paired by task; their intervals
are over the tasks of one seed, or over seeds and tasks.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

import searchrl
from searchrl import Run, compare, estimate
from searchrl.config import load_yaml, merge, parse_sets
from searchrl.programs.agent import run_settings
from searchrl.programs.setup.planning import plan_run

JOBS: dict[str, dict[str, Any]] = {
    "regulations": {"env": "regulations", "reward": "format+em"},
    "multisource": {
        "env": {"name": "multisource", "world_seed": 24},
        "model": "tiny",
        "preset": "searchrl_dag:presets/table",
    },
    "facts": {
        "env": "facts",
        "model": "tiny",
        "algorithm": "grpo_turns",
        "optim": {"lr": 5e-4},
        "rollout": {"temperature": 1.0},
        "max_steps": 50,
    },
    "tool-call": {
        "env": "regulations",
        "protocol": "tool-call",
        "reward": "em",
        "model": "searchrl_agents:assets/tiny",
        "max_steps": 30,
    },
}
TRAINED, RANDOM = "trained", "trained, random passages"
CONTROLS: dict[str, dict[str, Any]] = {
    TRAINED: {},
    "shuffled": {"algorithm": {"control": "shuffled"}},
    "lr 0": {"optim": {"lr": 0.0}, "max_steps": 2},
    "format": {},
}
"""Changes of the settings; `format` is the reward of every task."""
EVAL = {"eval": {"num_tasks": 256, "forced": False, "every": 0}}


def main(words: Sequence[str] | None = None) -> None:
    """Make the runs of a job that are not there yet, and print the table of all jobs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("job", nargs="?", help=f"{', '.join(JOBS)}, or a configuration file")
    parser.add_argument("--out", type=Path, required=True, help="folder of runs and controls.json")
    parser.add_argument("--seeds", type=int, default=1, help="seeds 0, 1, …")
    parser.add_argument("--only", nargs="+", choices=CONTROLS, default=CONTROLS)
    parser.add_argument("--set", action="append", default=[], metavar="K=V", help="any setting")
    given = parser.parse_args(words)
    record = given.out / "controls.json"
    table = json.loads(record.read_text("utf-8")) if record.is_file() else {}
    if given.job:
        job, title = JOBS.get(given.job) or load_yaml(given.job), Path(given.job).stem
        settings = plan_run(job, EVAL, parse_sets(given.set)).config.to_dict()
        rows = table.setdefault(title, {})
        for seed in range(given.seeds):
            for name in given.only:
                folder = given.out / title / f"{name.replace(' ', '_')}_{seed}"
                run = make_run(settings | {"seed": seed}, name, folder)
                before = exact_match(run.rollouts("before"))
                ends = {name: exact_match(run.rollouts("after"))}
                if name == TRAINED and str(seed) not in rows.get(RANDOM, {}):
                    ends[RANDOM] = play_random(run)
                for label, scores in ends.items():
                    rows.setdefault(label, {})[str(seed)] = {"before": before, "after": scores}
                record.write_text(json.dumps(table), encoding="utf-8")
    print(to_markdown(table))


def make_run(settings: Mapping[str, Any], name: str, folder: Path) -> Run:
    """The finished run of a control: the one in its folder, or a new one."""
    if folder.is_dir():
        run = Run.open(folder)
        return run if "after" in run.summary else searchrl.train(resume=folder)
    changed = merge(settings, {**CONTROLS[name], "run_dir": str(folder)})
    if name == "format":
        changed["tasks"] = [task | {"reward": "format"} for task in changed["tasks"]]
    return searchrl.train(changed)


def exact_match(rows: Any) -> dict[str, float]:
    """Exact match by environment and task."""
    return {f"{row['env']}/{row['task']['id']}": row["scores"]["em"] for row in rows}


def play_random(run: Run) -> dict[str, float]:
    """Exact match of a trained policy whose searches find random passages."""
    settings = run_settings(run)
    for task in settings["tasks"]:
        task["retriever"] = {"name": "random"}
    played = searchrl.evaluate(settings).rollouts
    return {f"{r.world.name}/{r.episode.task.id}": r.scored.scores["em"] for r in played}


def to_markdown(table: Mapping[str, Mapping[str, Any]]) -> str:
    """A row for each control of each job, with 95 % intervals."""
    lines = ["| job | run | before | after | after − before |", "|---|---|---|---|---|"]
    for job, rows in table.items():
        for name, seeds in rows.items():
            columns = ("before",), ("after",), ("after", "before")
            cells = [difference(seeds, *phases) for phases in columns]
            lines.append(f"| {job} | {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def difference(seeds: Mapping[str, Any], phase: str, minus: str | None = None) -> str:
    """The mean of a phase, or of its difference to another one, with the interval."""
    sign = "+" if minus else ""
    if len(seeds) == 1:
        (only,) = seeds.values()
        first = {"em": only[phase]}
        one: Any = compare(first, {"em": only[minus]}) if minus else estimate(first)
        value, low, high = (one["em"][key] for key in ("value", "low", "high"))
        return f"{value:{sign}.3f} [{low:{sign}.3f}, {high:{sign}.3f}]"
    values = [
        [value - (of_seed[minus][task] if minus else 0.0) for task, value in of_seed[phase].items()]
        for of_seed in seeds.values()
    ]
    both = np.array(values)
    # Seeds and tasks are crossed: both variances, less what they share (Cameron et al. 2011).
    by_seed, by_task = (both.mean(axis).var(ddof=1) / both.shape[1 - axis] for axis in (1, 0))
    variance = max(by_seed, by_task, by_seed + by_task - both.var(ddof=1) / both.size)
    half = float(student.ppf(0.975, len(values) - 1) * variance**0.5)
    return f"{both.mean():{sign}.3f} ± {half:.3f} ({len(values)} seeds)"


if __name__ == "__main__":
    main()
