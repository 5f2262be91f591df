"""What the first page of a report shows: figures, curves, alarms, config and provenance of a run.

Owns how the files of a run folder become that page's data. Caller: `folder` and `terminal`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from searchrl.config.curriculum import describe_stages
from searchrl.config.sections import AUTO, TaskConfig
from searchrl.errors import SearchRLError
from searchrl.rewards.expression import RewardSchedule
from searchrl.run_folder import Run, find_damage
from searchrl.run_folder.reader import find_missing_rollouts, read_or_empty


def describe_run(run: Run) -> dict[str, Any]:
    """The first page's data: what is missing in the folder is empty, what is damaged is said."""
    rows, config = run.read_metrics().rows, run.config
    both = read_both(run, rows)
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
        "before": both.get("before"),
        "after": both.get("after"),
        "components": list(
            dict.fromkeys(["reward", *(n for t in config.tasks for n in t.metrics)])
        ),
        "rewarded": list_rewarded(run),
        "reward": describe_weights(run),
        "alarms": run.read_alarms().rows,
        "faults": [*find_damage(run.path), *find_missing_rollouts(run)],
        "is_finished": bool(read_or_empty(lambda: run.summary)),
    }


def read_both(run: Run, rows: list[dict[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Metrics of the evaluations `before` and `after`, where they were made."""
    summary = read_or_empty(lambda: run.summary)
    measured = {row["phase"]: row["metrics"] for row in rows}
    both = {name: summary.get(name) or measured.get(name) for name in ("before", "after")}
    return {name: metrics for name, metrics in both.items() if metrics}


def _curves(rows: list[dict[str, Any]]) -> dict[str, dict[str, list[list[float | None]]]]:
    """Metric -> phase -> points [step, value, low, high]; low and high are null without a band."""
    curves: dict[str, dict[str, list[list[float | None]]]] = {}
    for row in rows:
        for name, metric in row["metrics"].items():
            point = [row["step"], metric["value"], metric.get("low"), metric.get("high")]
            curves.setdefault(name, {}).setdefault(row["phase"], []).append(point)
    return curves


def describe_weights(run: Run) -> dict[str, Any] | None:
    """The reward of the last steps of a run's first task, as the page weighs with it.

    None if the folder does not tell it.
    """
    schedule = _read_schedule(run.config.tasks[0])
    if schedule is None:
        return None
    expression = schedule.expressions[-1]
    weights = {name: weight for weight, name in expression.terms}
    return {"text": str(expression), "weights": weights, "constant": expression.constant}


def list_rewarded(run: Run) -> list[str]:
    """The components of any reward that the folder tells."""
    schedules = filter(None, map(_read_schedule, run.config.tasks))
    return list(dict.fromkeys(name for schedule in schedules for name in schedule.names))


def _read_schedule(task: TaskConfig) -> RewardSchedule | None:
    if task.reward == AUTO:  # left to the environment, whose plugin is not asked
        return None
    try:
        return RewardSchedule.parse(task.reward)
    except SearchRLError:
        return None
