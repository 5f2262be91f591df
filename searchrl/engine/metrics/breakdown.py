"""The whole table of an evaluation: every figure, for all tasks and for each kind and difficulty.

The figures themselves, but for pass@k, are those of `metrics`. No torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from searchrl.config import RunConfig
from searchrl.core.episode import SEARCH
from searchrl.engine.metrics.metrics import Metrics, label_tasks, summarise
from searchrl.engine.rollout.rollout import Rollout
from searchrl.engine.rollout.world import TaskWorld
from searchrl.plugins import Registry
from searchrl.statistics import ZERO_OR_ONE, mean

COMPONENTS = (
    *("em", "cover_em", "f1", "format"),
    *("searched", "searches", "support_recall", "all_gold"),
)
"""Reward components that every table has, as far as they say anything about its tasks."""

GROUPED = (
    *("reward", "em", "cover_em", "f1", "format"),
    *("searches", "passive", "support_recall", "all_gold"),
)
"""The figures that are broken down."""

_EM = ("em", "searchrl:em")
"""Exact match: its name, and the one it has where a plugin took that name as well."""

DIFFICULTY = "difficulty."
"""Prefix of the name of a group of tasks of one difficulty."""


def with_components(config: RunConfig, registry: Registry) -> RunConfig:
    """The config whose tasks are measured with all `COMPONENTS`, besides their own metrics."""
    registered = set(registry.names("reward"))
    added = [name if name in registered else f"searchrl:{name}" for name in COMPONENTS]
    tasks = [
        task.model_copy(update={"metrics": list(dict.fromkeys((*task.metrics, *added)))})
        for task in config.tasks
    ]
    return config.model_copy(update={"tasks": tasks})


def measure(rollouts: Sequence[Rollout], worlds: Sequence[TaskWorld] = ()) -> Metrics:
    """Every figure of the table: those of `summarise` and `pass_at_k`, and `FIGURE/GROUP`.

    With several tasks, everything once more under `TASK/`.
    """
    worlds = worlds or list({id(r.world): r.world for r in rollouts}.values())
    metrics = summarise(rollouts, worlds)
    parts = [("", rollouts)]
    if len(worlds) > 1:
        labels = zip(label_tasks(worlds), worlds, strict=True)
        parts += [(f"{name}/", [r for r in rollouts if r.world is world]) for name, world in labels]
    for prefix, part in parts:
        metrics |= {f"{prefix}{key}": one for key, one in pass_at_k(part).items()}
        for group, members in group_tasks(part).items():
            measured = summarise(members)
            kept = {key: measured[key] for key in GROUPED if key in measured}
            kept |= pass_at_k(members)
            metrics |= {f"{prefix}{key}/{group}": one for key, one in kept.items()}
    return metrics


def group_tasks(rollouts: Iterable[Rollout]) -> dict[str, list[Rollout]]:
    """The scored rollouts by kind, then by slice, then by difficulty; one may be in several."""
    scored = [r for r in rollouts if r.is_scored]
    tasks = [r.episode.task for r in scored]
    kinds = sorted({task.kind for task in tasks})
    slices = sorted({name for task in tasks for name in task.slices})
    levels = sorted({f"{DIFFICULTY}{task.difficulty}" for task in tasks if task.difficulty})
    groups: dict[str, list[Rollout]] = {name: [] for name in (*kinds, *slices, *levels)}
    for rollout in scored:
        task = rollout.episode.task
        level = [f"{DIFFICULTY}{task.difficulty}"] if task.difficulty else []
        for name in dict.fromkeys([task.kind, *task.slices, *level]):
            groups[name].append(rollout)
    return groups


def pass_at_k(rollouts: Sequence[Rollout]) -> Metrics:
    """`pass@k` and `avg@K` for tasks that were played several times; a success is an `em` of 1.

    Of a task with n scored samples, c of them right, pass@k = 1 - C(n-c, k) / C(n, k): the chance
    that one of k drawn without replacement is right (Chen et al. 2021, arXiv 2107.03374). It is a
    mean over the tasks with at least k scored samples; k doubles up to K, the largest number that a
    task has. avg@K is the mean over all samples, those of a task counted as alike.
    """
    samples: dict[str, list[float]] = {}
    for rollout in rollouts:
        scores = rollout.scored.scores
        em = next((scores[name] for name in _EM if name in scores), None)
        if rollout.is_scored and em is not None:
            samples.setdefault(rollout.trajectory.group_id, []).append(em)
    largest = max(map(len, samples.values()), default=1)
    if largest == 1:
        return {}
    metrics: Metrics = {}
    for k in sorted({*(2**i for i in range(1, largest.bit_length())), largest}):
        several = [ems for ems in samples.values() if len(ems) >= k]
        values = [pass_chance(len(ems), sum(em == 1.0 for em in ems), k) for ems in several]
        metrics[f"pass@{k}"] = mean(values, ZERO_OR_ONE)
    ems = [em for one in samples.values() for em in one]
    tasks = [task for task, one in samples.items() for _ in one]
    metrics[f"avg@{largest}"] = mean(ems, ZERO_OR_ONE, tasks)
    return metrics


def pass_chance(n: int, num_right: int, k: int) -> float:
    """The chance that one of k of n samples is right, if `num_right` of the n are.

    >>> pass_chance(4, 1, 2)
    0.5
    """
    return 1.0 - math.comb(n - num_right, k) / math.comb(n, k)


def task_means(rollouts: Iterable[Rollout]) -> Mapping[str, Mapping[str, float]]:
    """Mean per task (`group_id`) of every figure that two policies are compared in."""
    values: dict[str, dict[str, list[float]]] = {}
    for rollout in rollouts:
        if rollout.reward is None:
            continue
        scores = {**rollout.scored.scores, "reward": rollout.reward}
        if rollout.world.can_open(SEARCH):
            scores["passive"] = float(rollout.episode.is_passive)
        for name, value in scores.items():
            of_task = values.setdefault(name, {})
            of_task.setdefault(rollout.trajectory.group_id, []).append(value)
    return {
        name: {task: math.fsum(of_one) / len(of_one) for task, of_one in of_task.items()}
        for name, of_task in values.items()
    }
