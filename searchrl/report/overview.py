"""The first page of a report: figures, curves, alarms and config of a run."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from searchrl.config.sections import AUTO
from searchrl.config.tree import describe_stages
from searchrl.errors import SearchRLError
from searchrl.rewards.expression import RewardSchedule
from searchrl.run_folder import Run, find_damage
from searchrl.run_folder.reader import read_or_empty
from searchrl.run_folder.shapes import TreeNode, find_problem
from searchrl.screen.figures import LABELS


def describe_run(run: Run) -> dict[str, Any]:
    """The first page's data: what is missing in the folder is empty, faults are listed."""
    rows, config = run.read_metrics().rows, run.config
    summary = read_or_empty(lambda: run.summary)
    both = {row["phase"]: row["metrics"] for row in rows} | summary
    rewards = [task.reward for task in config.tasks]
    told = (", ".join([one] if isinstance(one, str) else one.values()) for one in rewards)
    stages, size = describe_stages(config.tasks), config.rollout
    return {
        "name": str(run.path),
        "config": config.to_yaml(),
        "settings": [
            ["environment", ", ".join(task.env.name for task in config.tasks)],
            ["reward", ", ".join(told)],
            ["model", config.model.name],
            ["algorithm", config.algorithm.name],
            ["steps", str(config.max_steps)],
            ["prompts × rollouts", f"{size.prompts_per_step} × {size.group_size}"],
            ["learning rate", f"{config.optim.lr:g}"],
            ["seed", str(config.seed)],
            *([["curriculum", "; ".join(stages)]] if stages else []),
        ],
        "provenance": read_or_empty(lambda: run.provenance),
        "curves": _curves(rows),
        "labels": LABELS,
        "before": both.get("before"),
        "after": both.get("after"),
        "changes": _changes(run),
        "components": list(
            dict.fromkeys(["reward", *(n for t in config.tasks for n in t.metrics)])
        ),
        "rewarded": list_rewarded(run),
        "alarms": run.read_alarms().rows,
        "tree": _read_tree(run),
        "faults": find_damage(run.path, deep=True),
    }


def _read_tree(run: Run) -> list[dict[str, Any]]:
    """The nodes of `candidates.json`; none where it is missing or no run wrote it."""
    with suppress(OSError, ValueError, TypeError, LookupError, RecursionError):
        nodes = json.loads((run.path / "candidates.json").read_bytes())["nodes"]
        return [one for one in nodes if not find_problem(one, TreeNode)]
    return []


def _changes(run: Run) -> list[dict[str, Any]]:
    """Gains and losses of each of several environments; empty if the folder does not tell."""
    with suppress(SearchRLError):
        changes = run.changes() if len(run.config.tasks) > 1 else []
        return [one._asdict() | {"verdict": one.verdict} for one in changes]
    return []


def _curves(rows: list[dict[str, Any]]) -> dict[str, dict[str, list[list[float | None]]]]:
    """Metric -> phase -> points [step, value, low, high]; low and high are null without a band."""
    curves: dict[str, dict[str, list[list[float | None]]]] = {}
    for row in rows:
        for name, metric in row["metrics"].items():
            point = [row["step"], metric["value"], metric.get("low"), metric.get("high")]
            curves.setdefault(name, {}).setdefault(row["phase"], []).append(point)
    return curves


def list_rewarded(run: Run) -> list[str]:
    """The components of any reward that the folder tells; `auto` is left to a plugin."""
    names: list[str] = []
    for task in run.config.tasks:
        with suppress(SearchRLError):
            names += RewardSchedule.parse(task.reward).names if task.reward != AUTO else ()
    return list(dict.fromkeys(names))
