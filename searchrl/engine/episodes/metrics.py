"""Metrics of episodes with 95 % intervals: `{"value", "low", "high", "n"}` each.

Owns how episodes become numbers; the same functions serve training, evaluation and reports.
Proportions get Wilson's score interval, means an Agresti-Coull one within their declared range.
Intervals take episodes as independent. An unscored rollout is counted in `failed` / `unscored`
and enters no other metric. No torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from searchrl.contracts import Metric
from searchrl.core.episode import SEARCH, TOOL
from searchrl.engine.episodes.rollout import Rollout
from searchrl.engine.episodes.world import TaskWorld

Z_95 = 1.959963984540054

Metrics = dict[str, Metric]

Range = tuple[float, float]
"""The least and the greatest value something can take; infinite where nothing bounds it."""

ZERO_OR_ONE: Range = (0.0, 1.0)
COUNT: Range = (0.0, math.inf)


def exact(value: float, n: int = 1) -> Metric:
    """A measured quantity without sampling error (a learning rate, a count)."""
    return {"value": float(value), "low": float(value), "high": float(value), "n": n}


def proportion(successes: float, n: int) -> Metric:
    """Wilson's score interval of a proportion (Wilson 1927, JASA 22)."""
    if n == 0:
        return {"value": 0.0, "low": 0.0, "high": 1.0, "n": 0}
    p = successes / n
    scale = 1 + Z_95**2 / n
    centre = (p + Z_95**2 / (2 * n)) / scale
    half = Z_95 * math.sqrt(p * (1 - p) / n + Z_95**2 / (4 * n * n)) / scale
    # At 0 and 1 rounding would put the end of the interval beside the value.
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return {"value": p, "low": low, "high": high, "n": n}


def mean(values: Sequence[float], limits: Range) -> Metric:
    """A mean with an interval inside `limits`; values that are all 0 or 1 of (0, 1): `proportion`.

    The interval is that of Agresti and Coull (1998, The American Statistician 52) for values of
    any kind: z²/2 observations are added at each end of the range before the normal interval is
    taken, so n of the same value, one among them, still say only what n values can say. Where the
    range is open, its end is one beyond the farthest value seen: counts move by ones.
    """
    n = len(values)
    is_binary = limits == ZERO_OR_ONE and all(value in limits for value in values)
    if is_binary or not n:
        metric = proportion(sum(values), n)
        if n or limits == ZERO_OR_ONE:
            return metric
        low, high = (end if math.isfinite(end) else 0.0 for end in limits)
        return {"value": min(max(0.0, low), high), "low": low, "high": high, "n": 0}
    low = limits[0] if math.isfinite(limits[0]) else min(values) - 1
    high = limits[1] if math.isfinite(limits[1]) else max(values) + 1
    value = math.fsum(values) / n
    added, weight = Z_95**2 / 2, n + Z_95**2
    centre = (math.fsum(values) + added * (low + high)) / weight
    square = math.fsum((x - centre) * (x - centre) for x in values)
    square += added * ((low - centre) * (low - centre) + (high - centre) * (high - centre))
    half = Z_95 * math.sqrt(square) / weight
    # What was seen is never outside: rounding, and a small sample close to an end of its range.
    return {
        "value": value,
        "low": min(value, max(limits[0], centre - half)),
        "high": max(value, min(limits[1], centre + half)),
        "n": n,
    }


def summarise(rollouts: Sequence[Rollout], worlds: Sequence[TaskWorld] = ()) -> Metrics:
    """All metrics of a set of episodes.

    Keys: `reward`, every reward component by name, `passive` (answered without a search or a tool
    call, where there is one to make), `tool_calls` (where there are tools), `turns`,
    `model_tokens`, `invalid_turns`, `failed`, `unscored`, `em/KIND` per kind of task and, with
    several tasks, everything once more under `TASK/` (see `label_tasks`).

    Args:
        rollouts: the episodes.
        worlds: the tasks of the run in their order, those without an episode here among them; by
            default those the episodes come from.
    """
    if not worlds:
        worlds = list({id(r.world): r.world for r in rollouts}.values())
    metrics = _summarise_one(rollouts, worlds)
    if len(worlds) > 1:
        for label, world in zip(label_tasks(worlds), worlds, strict=True):
            part = _summarise_one([r for r in rollouts if r.world is world], [world])
            metrics |= {f"{label}/{key}": metric for key, metric in part.items()}
    return metrics


def label_tasks(worlds: Sequence[TaskWorld]) -> list[str]:
    """What each task is called in metrics: its env or, where several have it, `ENV.POSITION`.

    The position is that in `tasks`, as `--set tasks.1.weight=2` counts.
    """
    names = [world.name for world in worlds]
    return [
        name if names.count(name) == 1 else f"{name}.{position}"
        for position, name in enumerate(names)
    ]


def _summarise_one(rollouts: Sequence[Rollout], worlds: Sequence[TaskWorld]) -> Metrics:
    scored = [r for r in rollouts if r.is_scored]
    rewards = [r.scored.reward for r in scored if r.scored.reward is not None]
    reward_ranges = {(id(r.world), r.episode.step): _reward_range(r) for r in scored}
    metrics: Metrics = {"reward": mean(rewards, _union(list(reward_ranges.values())))}
    names = dict.fromkeys(name for r in scored for name in r.scored.scores)
    for name in names:
        metrics[name] = _component_mean(name, scored)
    callers = {id(world) for world in worlds if world.can_open(TOOL)}
    askers = callers | {id(world) for world in worlds if world.can_open(SEARCH)}
    if askers:
        asking = [r for r in scored if id(r.world) in askers]
        metrics["passive"] = proportion(sum(r.episode.is_passive for r in asking), len(asking))
    if callers:
        calls = [float(r.episode.num_tool_calls) for r in scored if id(r.world) in callers]
        metrics["tool_calls"] = mean(calls, COUNT)
    metrics["turns"] = mean([float(len(r.episode.turns)) for r in scored], COUNT)
    metrics["model_tokens"] = mean([float(r.episode.num_model_tokens) for r in scored], COUNT)
    metrics["invalid_turns"] = mean(
        [float(sum(t.action.kind == "invalid" for t in r.episode.turns)) for r in scored], COUNT
    )
    metrics["failed"] = proportion(
        sum(r.episode.failure is not None for r in rollouts), len(rollouts)
    )
    metrics["unscored"] = proportion(len(rollouts) - len(scored), len(rollouts))
    kinds = sorted({r.episode.task.kind for r in scored})
    for kind in kinds:
        of_kind = [r for r in scored if r.episode.task.kind == kind and "em" in r.scored.scores]
        if of_kind:
            metrics[f"em/{kind}"] = _component_mean("em", of_kind)
    return metrics


def _component_mean(name: str, scored: Sequence[Rollout]) -> Metric:
    """The mean of a component over the rollouts that have it, within its declared range."""
    having = [r for r in scored if name in r.scored.scores]
    ranges = {id(r.world): r.world.scorer.ranges[name] for r in having}
    return mean([r.scored.scores[name] for r in having], _union(list(ranges.values())))


def _reward_range(rollout: Rollout) -> Range:
    """Between what values the reward expression of a rollout's step lies."""
    scorer = rollout.world.scorer
    expression = scorer.schedule.at(rollout.episode.step)
    low = high = expression.constant
    for weight, name in expression.terms:
        if weight:  # 0 times an open end is no number
            ends = [weight * end for end in scorer.ranges[name]]
            low, high = low + min(ends), high + max(ends)
    return low, high


def _union(ranges: Sequence[Range]) -> Range:
    if not ranges:
        return ZERO_OR_ONE
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def values(metrics: Mapping[str, Metric]) -> dict[str, float]:
    """Just the values."""
    return {key: metric["value"] for key, metric in metrics.items()}
