"""Controls of a job: the same run on shuffled rewards, at rate 0, and rewarded for form alone.

    python benchmarks/controls.py facts --out runs/controls [--seeds 0 1 2] [--set num_threads=1]
    python benchmarks/controls.py --out runs/controls [--by-kind]

A job is a name of `JOBS` or a configuration file of `searchrl train`. The trained policy is also
evaluated with random passages. A run that has finished in `--out` is not made again; without a job
the table is printed from `controls.json` there, with `--by-kind` also for each kind of task.
`search first` is the start whose first turn has to search (`--set eval.forced=true`). Differences
are paired by task; their intervals are over the tasks of one seed, or over seeds and tasks.
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
FORCED = "search first"
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
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--by-kind", action="store_true", help="a row for each kind of task, too")
    parser.add_argument("--only", nargs="+", choices=CONTROLS, default=CONTROLS)
    parser.add_argument("--set", action="append", default=[], metavar="K=V", help="any setting")
    given = parser.parse_args(words)
    record = given.out / "controls.json"
    table = json.loads(record.read_text("utf-8")) if record.is_file() else {}
    if given.job:
        job, title = JOBS.get(given.job) or load_yaml(given.job), Path(given.job).stem
        settings = plan_run(job, EVAL, parse_sets(given.set)).config.to_dict()
        rows = table.setdefault(title, {})
        for seed in given.seeds:
            for name in given.only:
                folder = given.out / title / f"{name.replace(' ', '_')}_{seed}"
                run = make_run(settings | {"seed": seed}, name, folder)
                starts = {"before": exact_match(run.rollouts("before"))}
                if forced := exact_match(run.search_first()):
                    starts[FORCED] = forced
                ends = {name: exact_match(run.rollouts("after"))}
                if name == TRAINED and str(seed) not in rows.get(RANDOM, {}):
                    ends[RANDOM] = play_random(run)
                for label, scores in ends.items():
                    rows.setdefault(label, {})[str(seed)] = starts | {"after": scores}
                record.write_text(json.dumps(table), encoding="utf-8")
    print(to_markdown(table, by_kind=given.by_kind))


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
    """Exact match by environment, kind and task."""
    tasks = ((f"{row['env']}/{row['task']['kind']}/{row['task']['id']}", row) for row in rows)
    return {name: row["scores"]["em"] for name, row in tasks}


def play_random(run: Run) -> dict[str, float]:
    """Exact match of a trained policy whose searches find random passages."""
    settings = run_settings(run)
    for task in settings["tasks"]:
        task["retriever"] = {"name": "random"}
    played = searchrl.evaluate(settings).rollouts
    tasks = ((r.world.name, r.episode.task, r.scored.scores["em"]) for r in played)
    return {f"{env}/{task.kind}/{task.id}": em for env, task, em in tasks}


def to_markdown(table: Mapping[str, Mapping[str, Any]], *, by_kind: bool) -> str:
    """A row for each control of each job, with 95 % intervals."""
    columns = ("before",), (FORCED,), ("after",), ("after", "before"), ("after", FORCED)
    heads = ["job", "run", *(" − ".join(phases) for phases in columns)]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for job, rows in table.items():
        for name, seeds in rows.items():
            kinds = {task.split("/")[1] for task in next(iter(seeds.values()))["after"]}
            for kind in ["", *sorted(kinds)] if by_kind else [""]:
                only = {seed: pick(phases, kind) for seed, phases in seeds.items()}
                cells = [difference(only, *phases) for phases in columns]
                row = [job, f"{name} {kind}".rstrip(), *cells]
                lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def pick(phases: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The tasks of a kind in each evaluation; all of them without a kind."""
    return {
        phase: {task: em for task, em in tasks.items() if kind in ("", task.split("/")[1])}
        for phase, tasks in phases.items()
    }


def difference(seeds: Mapping[str, Any], phase: str, minus: str | None = None) -> str:
    """The mean of a phase, or of its difference to another one, with the interval; — without."""
    if not {phase, minus or phase} <= next(iter(seeds.values())).keys():
        return "—"
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
