"""What the first page of a report shows: figures, curves, alarms, config and provenance of a run.

Owns how the files of a run folder become that page's data. Caller: `folder` and `terminal`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from searchrl.config.curriculum import describe_stages
from searchrl.config.sections import TaskConfig
from searchrl.errors import DamagedError
from searchrl.report.rewards import describe_weights, list_rewarded
from searchrl.run_folder import Run, find_damage
from searchrl.run_folder.reader import find_missing_rollouts


def describe_run(run: Run) -> dict[str, Any]:
    """The first page's data: what is missing in the folder is empty, what is damaged is said."""
    rows = run.read_metrics().rows
    both = read_both(run, rows)
    return {
        "name": str(run.path),
        "config": run.config.to_yaml(),
        "settings": [
            ["environment", ", ".join(task.env.name for task in run.config.tasks)],
            ["reward", ", ".join(_reward(task.reward) for task in run.config.tasks)],
            ["model", run.config.model.name],
            ["algorithm", run.config.algorithm.name],
            ["steps", str(run.config.max_steps)],
            ["prompts × rollouts", _batch(run)],
            ["learning rate", f"{run.config.optim.lr:g}"],
            ["seed", str(run.config.seed)],
            *([["curriculum", "; ".join(stages)]] if (stages := _stages(run)) else []),
        ],
        "provenance": _whole(lambda: run.provenance),
        "curves": _curves(rows),
        "before": both.get("before"),
        "after": both.get("after"),
        "components": list(dict.fromkeys(name for task in run.config.tasks for name in _own(task))),
        "rewarded": list_rewarded(run),
        "reward": describe_weights(run),
        "alarms": run.read_alarms().rows,
        "faults": [*find_damage(run.path), *find_missing_rollouts(run)],
        "is_finished": bool(_whole(lambda: run.summary)),
    }


def read_both(run: Run, rows: list[dict[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Metrics of the evaluations `before` and `after`, where they were made."""
    summary = _whole(lambda: run.summary)
    measured = {row["phase"]: row["metrics"] for row in rows}
    both = {name: summary.get(name) or measured.get(name) for name in ("before", "after")}
    return {name: metrics for name, metrics in both.items() if metrics}


def _whole(read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """A record of the run; nothing if it is damaged, which `find_damage` says."""
    try:
        return read()
    except DamagedError:
        return {}


def _batch(run: Run) -> str:
    rollout = run.config.rollout
    return f"{rollout.prompts_per_step} × {rollout.group_size}"


def _reward(reward: Any) -> str:
    return reward if isinstance(reward, str) else ", ".join(reward.values())


def _stages(run: Run) -> list[str]:
    """What changed in training."""
    return describe_stages(run.config.tasks)


def _own(task: TaskConfig) -> list[str]:
    return ["reward", *task.metrics]


def _curves(rows: list[dict[str, Any]]) -> dict[str, dict[str, list[list[float | None]]]]:
    """Metric -> phase -> points [step, value, low, high]; low and high are null without a band."""
    curves: dict[str, dict[str, list[list[float | None]]]] = {}
    for row in rows:
        for name, metric in row["metrics"].items():
            point = [row["step"], metric["value"], metric.get("low"), metric.get("high")]
            curves.setdefault(name, {}).setdefault(row["phase"], []).append(point)
    return curves
