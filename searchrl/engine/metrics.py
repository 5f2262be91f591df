"""Metrics of episodes with 95 % intervals: `{"value", "low", "high", "n"}` each.

Owns how episodes become numbers; the same functions serve training, evaluation and reports.
Proportions get Wilson's score interval, means a normal interval. An unscored rollout is counted
in `failed` / `unscored` and enters no other metric. No torch.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from searchrl.contracts import Metric
from searchrl.engine.rollout import Rollout

Z_95 = 1.959963984540054


Metrics = dict[str, Metric]


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


def mean(values: Sequence[float]) -> Metric:
    """A mean with its interval; values that are all 0 or 1 are a proportion."""
    n = len(values)
    if all(value in (0.0, 1.0) for value in values):
        return proportion(sum(values), n)
    centre = statistics.fmean(values)
    half = Z_95 * statistics.stdev(values) / math.sqrt(n) if n > 1 else 0.0
    return {"value": centre, "low": centre - half, "high": centre + half, "n": n}


def summarise(rollouts: Iterable[Rollout]) -> Metrics:
    """All metrics of a set of episodes.

    Keys: `reward`, every reward component by name, `passive` (answered without a search),
    `turns`, `model_tokens`, `invalid_turns`, `failed`, `unscored`, `em/KIND` per kind of task and,
    with several environments, everything once more under `ENV/`.
    """
    everything = list(rollouts)
    metrics = _summarise_one(everything)
    worlds = list(dict.fromkeys(r.world.name for r in everything))
    if len(worlds) > 1:
        for name in worlds:
            part = _summarise_one([r for r in everything if r.world.name == name])
            metrics |= {f"{name}/{key}": metric for key, metric in part.items()}
    return metrics


def _summarise_one(rollouts: Sequence[Rollout]) -> Metrics:
    scored = [r for r in rollouts if r.is_scored]
    metrics: Metrics = {"reward": mean([r.scored.reward or 0.0 for r in scored])}
    names = dict.fromkeys(name for r in scored for name in r.scored.scores)
    for name in names:
        metrics[name] = mean([r.scored.scores[name] for r in scored if name in r.scored.scores])
    metrics["passive"] = mean([float(r.episode.is_passive) for r in scored])
    metrics["turns"] = mean([float(len(r.episode.turns)) for r in scored])
    metrics["model_tokens"] = mean([float(r.episode.num_model_tokens) for r in scored])
    metrics["invalid_turns"] = mean(
        [float(sum(t.action.kind == "invalid" for t in r.episode.turns)) for r in scored]
    )
    metrics["failed"] = proportion(
        sum(r.episode.failure is not None for r in rollouts), len(rollouts)
    )
    metrics["unscored"] = proportion(len(rollouts) - len(scored), len(rollouts))
    kinds = sorted({r.episode.task.kind for r in scored})
    for kind in kinds:
        hits = [
            r.scored.scores["em"]
            for r in scored
            if r.episode.task.kind == kind and "em" in r.scored.scores
        ]
        if hits:
            metrics[f"em/{kind}"] = mean(hits)
    return metrics


def values(metrics: Mapping[str, Metric]) -> dict[str, float]:
    """Just the values."""
    return {key: metric["value"] for key, metric in metrics.items()}
