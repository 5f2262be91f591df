"""Evaluation: the same rollouts and rewards as training, greedy, on tasks that are not trained on.

Owns which tasks are played (the first N of a split), the forced variant that separates "does not
search" from "cannot answer", and which figures a summary holds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from searchrl.config.sections import EvalConfig
from searchrl.contracts import Traffic
from searchrl.core.episode import SEARCH, StopReason
from searchrl.engine.metrics.metrics import Metrics, label_tasks, summarise
from searchrl.engine.rollout.dialogue import Branch, RolloutRequest
from searchrl.engine.rollout.rollout import Rollout, RolloutDriver
from searchrl.engine.rollout.world import TaskWorld
from searchrl.engine.sampling.generator import mix_key
from searchrl.envs.splits import TRAIN, VALIDATION
from searchrl.errors import ConfigError

_EVAL_STREAM = 0xE7A1
"""Keeps the random streams of evaluation apart from those of training."""

SUMMARY_KEYS = (
    *("em", "em_forced", "em_gain", "searched", "searches", "tool_calls", "env", "format"),
    *("passive", "support_recall", "all_gold", "reward"),
)
"""The metrics every summary holds, besides EM per kind of task and per slice."""


@dataclass(frozen=True, slots=True)
class EvalResult:
    """Metrics with intervals and the episodes behind them; `forced` those behind `em_forced`."""

    metrics: Metrics
    rollouts: tuple[Rollout, ...]
    forced: tuple[Rollout, ...] = ()
    traffic: Traffic | None = None
    """Requests to an endpoint, if one was the policy."""


def run_episodes(
    worlds: Sequence[TaskWorld],
    driver: RolloutDriver,
    *,
    split: str,
    num_tasks: int = 0,
    indices: Sequence[int] | None = None,
    seed: int,
    step: int = 0,
    forced: str | None = None,
    skip: Collection[str] = (),
    branches: Mapping[str, Branch] | None = None,
    script: str | None = None,
    has_logps: bool = True,
    num_samples: int = 1,
    on_progress: Callable[[int, int], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> EvalResult:
    """Play the first `num_tasks` tasks of a split, shared between the worlds.

    Args:
        indices: these tasks of each world instead.
        forced: commit the first turn to this kind of action by its opening tag; worlds whose
            protocol has none such are left out.
        skip: groups that are not played, by the names that they have without `forced`.
        branches: play these groups only, on from the beginning of each.
        script: name of the env's scripted policy, for a scripted driver.
        has_logps: see `RolloutRequest`.
        num_samples: how often each task is played; the first time is always the same.
    """

    def keys(number: int, index: int) -> tuple[int, ...]:
        first = (seed, _EVAL_STREAM, number, index)  # that of a task's only sample, too
        return mix_key(*first), *(mix_key(*first, sample) for sample in range(1, num_samples))

    requests = []
    for number, world in enumerate(worlds):
        if forced is not None and not world.can_force(forced):
            continue
        count = tasks_played(worlds, world, split, num_tasks)
        for index in range(count) if indices is None else indices:
            if (name := f"eval/{number}/{index}") in skip:
                continue
            if branches is not None and name not in branches:
                continue
            key = keys(number, index)
            request = RolloutRequest(
                group_id=f"{name}/{forced}" if forced else name,
                world=world,
                split=split,
                index=index,
                rng_keys=key if branches is None else key * 2,
                branches=() if branches is None else (branches[name],),
                forced=forced,
                script=world.script(script) if script else None,
                step=step,
                has_logps=has_logps,
            )
            requests.append(request)
    groups = driver.run(requests, on_progress=on_progress, should_stop=should_stop)
    rollouts = tuple(rollout for group in groups for rollout in group.rollouts)
    if rollouts and all(  # not one had a token left for its first turn
        r.episode.stop_reason is StopReason.TOTAL_TOKENS and not r.episode.turns for r in rollouts
    ):
        shortest = min(r.trajectory.num_prompt_tokens for r in rollouts)
        raise ConfigError(
            f"no prompt leaves room for a turn: the shortest has {shortest} tokens, and an episode "
            f"may have {driver.limits.max_total_tokens}; raise rollout.max_total_tokens (and "
            "model.max_context), or the window of a wrapper"
        )
    return EvalResult(summarise(rollouts, worlds), rollouts)


def tasks_played(worlds: Sequence[TaskWorld], world: TaskWorld, split: str, num_tasks: int) -> int:
    """Count the tasks of one of the worlds that are played where they share `num_tasks`."""
    return min(max(1, num_tasks // len(worlds)), world.num_tasks(split))


def count_episodes(
    worlds: Sequence[TaskWorld], settings: EvalConfig, split: str, num_tasks: int
) -> int:
    """Episodes of a full evaluation (`evaluate_both`), the forced ones among them."""
    return sum(
        tasks_played(worlds, world, split, num_tasks)
        * (1 + (settings.forced and world.can_force(SEARCH)))
        for world in worlds
    )


def evaluate_both(
    worlds: Sequence[TaskWorld],
    driver: RolloutDriver,
    settings: EvalConfig,
    *,
    seed: int,
    step: int = 0,
    on_phase: Callable[[str, int, int], None] = lambda name, done, total: None,
    should_stop: Callable[[], bool] | None = None,
    **options: Any,
) -> EvalResult:
    """Play the full evaluation: as it is, and (if `settings.forced`) with a forced first search.

    `options` are those of `run_episodes` for the first only, such as `num_samples`. The second is
    left out where no protocol has a search, and for tasks whose episode began with one by itself:
    that is the episode in which the first turn searches. The forced figures appear as `em_forced`
    beside the plain ones, with several tasks also as `TASK/em_forced`.
    """
    play = partial(
        run_episodes,
        worlds,
        driver,
        split=settings.split,
        num_tasks=settings.num_tasks,
        seed=seed,
        step=step,
        should_stop=should_stop,
    )
    plain = play(on_progress=partial(on_phase, "evaluate"), **options)
    is_over = should_stop is not None and should_stop()  # of a driver that keeps what is finished
    if is_over or not settings.forced or not any(world.can_force(SEARCH) for world in worlds):
        return plain
    searched = {
        one.trajectory.group_id: one
        for one in reversed(plain.rollouts)  # of several samples the first
        if one.is_scored and one.world.can_force(SEARCH)
        if [turn.action.kind for turn in one.episode.turns[:1]] == [SEARCH]
    }
    on_progress = partial(on_phase, "evaluate, must search first")
    forced = play(forced=SEARCH, skip=searched, on_progress=on_progress)
    metrics = dict(plain.metrics)
    figures = summarise((*forced.rollouts, *searched.values()), worlds)
    for name, metric in figures.items():
        task, slash, key = name.rpartition("/")
        if key == "em":
            metrics[f"{task}{slash}em_forced"] = metric
    return EvalResult(metrics, plain.rollouts, forced.rollouts)


def summary_metrics(metrics: Mapping[str, Any], worlds: Iterable[TaskWorld] = ()) -> dict[str, Any]:
    """The metrics a summary holds: `SUMMARY_KEYS`, those by kind and slice, the worlds' own."""
    wanted = {*SUMMARY_KEYS, *(name for world in worlds for name in world.scorer.names)}
    parts = ("em/", "env/", "reward/")
    return {
        name: metric
        for name, metric in metrics.items()
        if name.rsplit("/", 1)[-1] in wanted
        or any(name.startswith(part) or f"/{part}" in name for part in parts)
    }


def count_tasks(worlds: Sequence[TaskWorld], settings: EvalConfig) -> dict[str, int]:
    """Count the tasks to train on, to validate and to evaluate, as `TASK/SPLIT`."""
    return {
        f"{label}/{split}": world.num_tasks(split)
        for label, world in zip(label_tasks(worlds), worlds, strict=True)
        for split in dict.fromkeys((TRAIN, VALIDATION, settings.split))
        if split != VALIDATION or world.can_validate or split == settings.split
    }
