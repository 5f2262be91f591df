"""Metrics of episodes: a value, its 95 % interval and the number of observations behind it.

The same functions serve training, evaluation and reports. What nobody measured is absent, never 0.
A rollout without a reward is counted in `failed` / `unscored`. Unless something failed, the
components that could score it are measured; it enters nothing else. No torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from searchrl.contracts import Metric
from searchrl.core.episode import SEARCH, TOOL, FailureKind, StopReason
from searchrl.engine.rollout.curriculum import Curriculum
from searchrl.engine.rollout.rollout import Rollout
from searchrl.engine.rollout.world import TaskWorld
from searchrl.statistics import COUNT, ZERO_OR_ONE, Range, exact, mean

Metrics = dict[str, Metric]

_LIMITS = (StopReason.TURN_LIMIT, StopReason.TURN_TOKENS, StopReason.TOTAL_TOKENS)


def summarise(rollouts: Sequence[Rollout], worlds: Sequence[TaskWorld] = ()) -> Metrics:
    """All metrics of a set of episodes; those that no episode measured are absent.

    `docs/metrics.toml` says what each one is; with several tasks all appear once more under `TASK/`
    (see `label_tasks`). Only those of components, of failures and `unscored` count episodes without
    a reward. `n` is the number of episodes or of searches, and the intervals take those with one
    `group_id` as alike. `worlds` are the tasks of the run in their order, by default those the
    episodes come from.
    """
    if not worlds:
        worlds = list({id(r.world): r.world for r in rollouts}.values())
    metrics = _summarise_one(rollouts, worlds)
    if len(worlds) > 1:
        for label, world in zip(label_tasks(worlds), worlds, strict=True):
            part = _summarise_one([r for r in rollouts if r.world is world], [world])
            metrics |= {f"{label}/{key}": metric for key, metric in part.items()}
    return metrics


def curriculum_metrics(curriculum: Curriculum, done: int) -> Metrics:
    """The stages after so many steps, under the names of several tasks; none if none change."""
    worlds = curriculum.worlds
    labels = [f"{label}/" if len(worlds) > 1 else "" for label in label_tasks(worlds)]
    return {labels[task] + name: exact(figure) for task, name, figure in curriculum.figures(done)}


def label_tasks(worlds: Sequence[TaskWorld]) -> list[str]:
    """Names of tasks in metrics: the env or, where several have it, `ENV.POSITION`.

    The position is that in `tasks`, as `--set tasks.1.weight=2` counts.
    """
    names = [world.name for world in worlds]
    return [
        name if names.count(name) == 1 else f"{name}.{position}"
        for position, name in enumerate(names)
    ]


def _summarise_one(rollouts: Sequence[Rollout], worlds: Sequence[TaskWorld]) -> Metrics:
    metrics: Metrics = {}

    def add(key: str, of: Sequence[Rollout], values: Sequence[float], limits: Range) -> None:
        if of:
            metrics[key] = mean(values, limits, [r.trajectory.group_id for r in of])

    def add_component(name: str, of: Sequence[Rollout], key: str) -> None:
        having = [r for r in of if name in r.scored.scores]
        ranges = {id(r.world): r.world.scorer.ranges[name] for r in having}
        add(key, having, [r.scored.scores[name] for r in having], _union(ranges.values()))

    scored = [r for r in rollouts if r.is_scored]
    steps = {(id(r.world), r.episode.step): r.world.scorer for r in scored}
    between = _union(one.schedule.at(step).between(one.ranges) for (_, step), one in steps.items())
    add("reward", scored, [r.reward or 0.0 for r in scored], between)
    sound = [r for r in rollouts if r.scored.failure is None]
    for name in dict.fromkeys(name for r in sound for name in r.scored.scores):
        figures = {r.world.scorer.figures.get(name, name) for r in sound}
        add_component(name, sound, figures.pop() if len(figures) == 1 else name)
    callers = {id(world) for world in worlds if world.can_open(TOOL)}
    askers = callers | {id(world) for world in worlds if world.can_open(SEARCH)}
    asking = [r for r in scored if id(r.world) in askers]
    calling = [r for r in scored if id(r.world) in callers]
    add("passive", asking, [float(r.episode.is_passive) for r in asking], ZERO_OR_ONE)
    add("tool_calls", calling, [float(r.episode.num_tool_calls) for r in calling], COUNT)
    most = [world.max_turns for world in {id(r.world): r.world for r in scored}.values()]
    up_to: Range = (0.0, max((math.inf if one is None else one for one in most), default=0.0))
    add("turns", scored, [float(len(r.episode.turns)) for r in scored], up_to)
    add("model_tokens", scored, [float(r.episode.num_model_tokens) for r in scored], COUNT)
    num_invalid = [sum(t.action.kind == "invalid" for t in r.episode.turns) for r in scored]
    add("invalid_turns", scored, num_invalid, up_to)
    add("truncated", scored, [float(r.episode.stop_reason in _LIMITS) for r in scored], ZERO_OR_ONE)
    # Of a search in the last turn that a limit allows, nothing is shown.
    searches = [
        (r, turn)
        for r in scored
        for turn in r.episode.turns
        if turn.action.kind == SEARCH and turn.observation
    ]
    found_nothing = [float(not turn.passages) for _, turn in searches]
    add("empty_searches", [r for r, _ in searches], found_nothing, ZERO_OR_ONE)
    served = [r for r in scored if r.world.is_served]
    records = [r.trajectory for r in served]
    add("requests", served, [float(len(one.turns)) for one in records], COUNT)
    again = [r for r in scored if r.world.is_served or r.world.compacts]
    add("segments", again, [float(len(r.trajectory.segments)) for r in again], COUNT)
    begun = [(r, dict(r.trajectory.forks)) for r in served]
    turns = [(r, why.get(turn.index, "")) for r, why in begun for turn in r.trajectory.turns]
    for reason in sorted({why for _, why in turns if why}):
        shares = [float(why == reason) for _, why in turns]
        add(f"forks/{reason}", [r for r, _ in turns], shares, ZERO_OR_ONE)
    if served:
        num_again = sum(len(one) - len(one.segments[0]) for one in records)
        metrics["fork_tokens"] = exact(num_again / sum(map(len, records)), len(served))
    could_ask = [r for r in rollouts if id(r.world) in askers]
    failures = [r.episode.failure for r in could_ask]
    lost = [float(f is not None and f.kind is FailureKind.RETRIEVER) for f in failures]
    add("failed_retrieval", could_ask, lost, ZERO_OR_ONE)
    failures = [r.episode.failure for r in rollouts]
    failed = [float(f is not None and f.kind is not FailureKind.BUDGET) for f in failures]
    add("failed", rollouts, failed, ZERO_OR_ONE)
    add("unscored", rollouts, [float(not r.is_scored) for r in rollouts], ZERO_OR_ONE)
    main = find_headline(worlds)
    counted = scored if main == "reward" else sound
    named = [(r, {r.episode.task.kind, *r.episode.task.slices}) for r in counted]
    kinds = sorted({r.episode.task.kind for r in counted})
    slices = sorted({name for r in counted for name in r.episode.task.slices})
    for name in dict.fromkeys(kinds + slices):
        those = [r for r, names in named if name in names]
        if main == "reward":
            add(f"reward/{name}", those, [r.reward or 0.0 for r in those], between)
        else:
            add_component(main, those, f"{main}/{name}")
    return metrics


def find_headline(worlds: Iterable[TaskWorld]) -> str:
    """The metric that all tasks are judged by; `reward` where that differs."""
    headlines = {world.scorer.headline for world in worlds}
    return headlines.pop() if len(headlines) == 1 else "reward"


def _union(ranges: Iterable[Range]) -> Range:
    both = list(ranges)
    return min((low for low, _ in both), default=0.0), max((high for _, high in both), default=1.0)
