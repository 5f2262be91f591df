"""Metrics of episodes: a value, its 95 % interval and the number of observations behind it.

Owns how episodes become numbers; the same functions serve training, evaluation and reports.
Proportions get Wilson's score interval, means that of Agresti and Coull within their range. The
rollouts of a group have one prompt and are alike: an interval counts them as fewer than they are.
What nobody measured is absent, never 0. An unscored rollout is counted in `failed` / `unscored`
and enters no other metric. No torch. Callers: `train`, `evaluate`, `sft`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence

from searchrl.contracts import MAX_REWARD, Metric
from searchrl.core.episode import SEARCH, TOOL, FailureKind, StopReason
from searchrl.engine.episodes.curriculum import Curriculum
from searchrl.engine.episodes.playing import Rollout
from searchrl.engine.episodes.world import TaskWorld
from searchrl.engine.figures.choices import LEAST, find_least, has_choices, share_actions

Z_95 = 1.959963984540054

Metrics = dict[str, Metric]

Range = tuple[float, float]
"""The least and the greatest value something can take; infinite where nothing bounds it."""

ZERO_OR_ONE: Range = (0.0, 1.0)
COUNT: Range = (0.0, math.inf)

_LIMITS = (StopReason.TURN_LIMIT, StopReason.TURN_TOKENS, StopReason.TOTAL_TOKENS)

_PRIOR = 0.5
"""Observations added at each end of a range before groups are compared (see `effective_size`)."""


def exact(value: float, n: int = 1) -> Metric:
    """A measured quantity without sampling error, so without interval (a learning rate, a time)."""
    return {"value": float(value), "n": n}


def finite_figures(figures: Mapping[str, float]) -> dict[str, float]:
    """The figures of an update that are finite.

    The others are absent, as what was not measured; how many there were is `nonfinite_figures`.
    """
    kept = {name: value for name, value in figures.items() if math.isfinite(value)}
    num_left_out = len(figures) - len(kept)
    return kept | ({"nonfinite_figures": float(num_left_out)} if num_left_out else {})


def proportion(successes: float, n: int) -> Metric:
    """The share of `n` independent observations with Wilson's interval (Wilson 1927, JASA 22).

    Raises:
        ValueError: if `n` is 0: nothing was measured.
    """
    return _wilson(successes / _positive(n), n, n)


def mean(values: Sequence[float], limits: Range, groups: Sequence[Hashable] = ()) -> Metric:
    """A mean with an interval inside `limits`; values that are all 0 or 1 of (0, 1): Wilson's.

    The interval is that of Agresti and Coull (1998, The American Statistician 52) for values of
    any kind: z²/2 observations are added at each end of the range before the normal interval is
    taken, so the interval of equal values, or of one value, has a width, too. If one end of the
    range is open, it is taken as one beyond the farthest value seen, because counts move by ones.
    If both are open, they are taken as the least and the greatest value seen; then equal values
    have no interval.

    Args:
        values: the observations, at least one.
        limits: the least and the greatest value possible.
        groups: the group of each value; both formulas then take `effective_size` for n. Empty:
            the values are independent.

    Raises:
        ValueError: if there is no value: nothing was measured.
    """
    n = _positive(len(values))
    least, greatest = min(values), max(values)
    # Rounding can move the mean of equal values away from them.
    value = min(max(math.fsum(values) / n, least), greatest)
    # Squares of ends that no score can reach would not be finite.
    low, high = (end if abs(end) <= MAX_REWARD else math.copysign(math.inf, end) for end in limits)
    if math.isinf(low) and math.isinf(high):
        low, high = least, greatest
        if low == high:
            return exact(value, n)
    low = low if math.isfinite(low) else least - 1
    high = high if math.isfinite(high) else greatest + 1
    size = effective_size(values, groups, (low, high)) if groups else n
    if limits == ZERO_OR_ONE and all(value in limits for value in values):
        return _wilson(value, size, n)
    added, weight = Z_95**2 / 2, size + Z_95**2
    centre = (size * value + added * (low + high)) / weight
    square = math.fsum((x - centre) * (x - centre) for x in values) * size / n
    square += added * ((low - centre) * (low - centre) + (high - centre) * (high - centre))
    half = Z_95 * math.sqrt(square) / weight
    # The value stays inside, also that of a small sample close to an end of the range.
    return {
        "value": value,
        "low": min(value, max(limits[0], centre - half)),
        "high": max(value, min(limits[1], centre + half)),
        "n": n,
    }


def effective_size(values: Sequence[float], groups: Sequence[Hashable], limits: Range) -> float:
    """How many independent values would say as much about the mean as these values in groups.

    n_eff = n / D * (t_(n-1) / t_(G-1))², at least 1, for G groups (Korn and Graubard 1998, Survey
    Methodology 24). D, the design effect, is the variance of the mean if groups are drawn, divided
    by that if single values are drawn. The t quantiles correct for the small number of groups that
    D was measured on. Half an observation is added at each end of `limits`, as part of a group of
    average size. So D is not 1 if all values are equal: then nothing is known about how alike the
    values of a group are. Groups of one value give n, and a single group gives 1.

    Args:
        values: the observations, at least one.
        groups: the group of each, in any order.
        limits: the least and the greatest value possible, finite.
    """
    from scipy.special import stdtrit

    n, num_groups = len(values), len(set(groups))
    if num_groups == n:
        return n
    if num_groups == 1:
        return 1.0
    low, high = limits
    average = math.fsum(values) / n
    sums = dict.fromkeys(groups, 0.0)
    for value, group in zip(values, groups, strict=True):
        sums[group] += value - average
    between = math.fsum(total * total for total in sums.values())
    between *= num_groups / (num_groups - 1) * (n - 1) / n
    within = math.fsum((value - average) * (value - average) for value in values)
    centre = (n * average + _PRIOR * (low + high)) / (n + 2 * _PRIOR)
    prior = _PRIOR * ((low - centre) * (low - centre) + (high - centre) * (high - centre))
    design_effect = (between + prior * n / num_groups) / (within + prior)
    few_groups = float(stdtrit(n - 1, 0.975) / stdtrit(num_groups - 1, 0.975))
    return max(1.0, n / max(1.0, design_effect) * few_groups * few_groups)


def _wilson(p: float, size: float, n: int) -> Metric:
    """The interval of a proportion `p`, as `size` independent observations have it."""
    scale = 1 + Z_95**2 / size
    centre = (p + Z_95**2 / (2 * size)) / scale
    half = Z_95 * math.sqrt(p * (1 - p) / size + Z_95**2 / (4 * size * size)) / scale
    # At 0 and 1 rounding would move the end of the interval away from the value.
    low = 0.0 if p == 0 else max(0.0, centre - half)
    high = 1.0 if p == 1 else min(1.0, centre + half)
    return {"value": p, "low": low, "high": high, "n": n}


def _positive(n: int) -> int:
    if n < 1:
        raise ValueError("a metric needs at least one observation; leave out what was not measured")
    return n


def summarise(rollouts: Sequence[Rollout], worlds: Sequence[TaskWorld] = ()) -> Metrics:
    """All metrics of a set of episodes; those that no episode measured are absent.

    Keys: `reward`, every reward component by name, `passive` (answered without a search or a tool
    call, where there is one to make), `tool_calls` (where there are tools), `turns`,
    `model_tokens`, `invalid_turns`, `truncated` (cut by a limit), `empty_searches` (share of the
    searches that found nothing), `failed_retrieval` (where there is a search or a tool), `failed`,
    `unscored`, `em/KIND` per kind of task and `em/SLICE` per slice (`env/` or `reward/` where `em`
    is not paid) and, with several tasks, everything once more under `TASK/` (see `label_tasks`).
    Choices without tokens have `action/NAME`, `free_action/NAME`, `ending_choices` and
    `least_action_p` in place of `model_tokens` and `invalid_turns`. A task counts in its kind and
    in each of its slices. Only those of failures and `unscored` count episodes without a score. `n`
    is the number of episodes, of searches or of choices, and the intervals take those with one
    `group_id` as alike.

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


def curriculum_metrics(curriculum: Curriculum, done: int) -> Metrics:
    """The stages after so many steps, under the names of several tasks; none if none change."""
    worlds = curriculum.worlds
    labels = [f"{label}/" if len(worlds) > 1 else "" for label in label_tasks(worlds)]
    return {labels[task] + name: exact(figure) for task, name, figure in curriculum.figures(done)}


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
    metrics: Metrics = {}

    def add(key: str, of: Sequence[Rollout], values: Sequence[float], limits: Range) -> None:
        if of:
            metrics[key] = mean(values, limits, [r.trajectory.group_id for r in of])

    def add_component(name: str, of: Sequence[Rollout], key: str) -> None:
        having = [r for r in of if name in r.scored.scores]
        ranges = {id(r.world): r.world.scorer.ranges[name] for r in having}
        add(key, having, [r.scored.scores[name] for r in having], _union(ranges.values()))

    scored = [r for r in rollouts if r.is_scored]
    rewards = [r.scored.reward for r in scored if r.scored.reward is not None]
    ranges = {(id(r.world), r.episode.step): _reward_range(r) for r in scored}
    add("reward", scored, rewards, _union(ranges.values()))
    for name in dict.fromkeys(name for r in scored for name in r.scored.scores):
        add_component(name, scored, name)
    callers = {id(world) for world in worlds if world.can_open(TOOL)}
    askers = callers | {id(world) for world in worlds if world.can_open(SEARCH)}
    asking = [r for r in scored if id(r.world) in askers]
    calling = [r for r in scored if id(r.world) in callers]
    add("passive", asking, [float(r.episode.is_passive) for r in asking], ZERO_OR_ONE)
    add("tool_calls", calling, [float(r.episode.num_tool_calls) for r in calling], COUNT)
    add("turns", scored, [float(len(r.episode.turns)) for r in scored], COUNT)
    if has_choices(scored):
        for name, of, values in share_actions(scored):
            add(name, of, values, ZERO_OR_ONE)
        if least := find_least(scored):
            metrics[LEAST] = exact(*least)
    else:
        add("model_tokens", scored, [float(r.episode.num_model_tokens) for r in scored], COUNT)
        num_invalid = [sum(t.action.kind == "invalid" for t in r.episode.turns) for r in scored]
        add("invalid_turns", scored, num_invalid, COUNT)
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
    could_ask = [r for r in rollouts if id(r.world) in askers]
    failures = [r.episode.failure for r in could_ask]
    lost = [float(f is not None and f.kind is FailureKind.RETRIEVER) for f in failures]
    add("failed_retrieval", could_ask, lost, ZERO_OR_ONE)
    failures = [r.episode.failure for r in rollouts]
    failed = [float(f is not None and f.kind is not FailureKind.BUDGET) for f in failures]
    add("failed", rollouts, failed, ZERO_OR_ONE)
    add("unscored", rollouts, [float(not r.is_scored) for r in rollouts], ZERO_OR_ONE)
    named = [(r, {r.episode.task.kind, *r.episode.task.slices}) for r in scored]
    kinds = sorted({r.episode.task.kind for r in scored})
    slices = sorted({name for r in scored for name in r.episode.task.slices})
    main = find_headline(worlds)
    for name in dict.fromkeys(kinds + slices):
        those = [r for r, names in named if name in names]
        if main == "reward":
            add(
                f"reward/{name}",
                those,
                [r.scored.reward or 0.0 for r in those],
                _union(ranges.values()),
            )
        else:
            add_component(main, those, f"{main}/{name}")
    return metrics


def find_headline(worlds: Iterable[TaskWorld]) -> str:
    """What all tasks are judged by; `reward` where that differs."""
    found = {world.scorer.headline for world in worlds}
    return found.pop() if len(found) == 1 else "reward"


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


def _union(ranges: Iterable[Range]) -> Range:
    """The least range that holds all of these."""
    both = list(ranges)
    return min((low for low, _ in both), default=0.0), max((high for _, high in both), default=1.0)
