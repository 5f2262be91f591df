"""What the judges of a run will be asked and will cost, about; said before they are asked.

Owns the count of what is judged in training and in evaluations. What one question costs, the judge
itself says (`contracts.PaidJudge`); a judge that costs nothing is not mentioned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import fmean

from searchrl.config import RunConfig
from searchrl.config.curriculum import stages_of
from searchrl.contracts import PaidJudge, Traffic
from searchrl.engine.metrics.evaluation import count_episodes
from searchrl.engine.rollout.world import TaskWorld
from searchrl.envs.splits import VALIDATION


def foresee_training(
    config: RunConfig, worlds: Sequence[TaskWorld], done: int = 0
) -> Iterator[str]:
    """One sentence for each judge of a training run that costs something; `done` steps are over.

    Raises:
        ConfigError: if a judge could not be asked at all.
    """
    settings, rollout = config.eval, config.rollout
    steps = config.max_steps - done
    weights = {id(world): _mean_weight(world) for world in worlds}
    total = sum(weights.values())

    def count(world: TaskWorld) -> tuple[int, int]:
        share = weights[id(world)] / total
        held_out = count_episodes([world], settings, settings.split, settings.num_tasks)
        num_evaluated = held_out * (1 if done else 2)
        if settings.every and world.can_validate:
            during = count_episodes([world], settings, VALIDATION, settings.num_tasks_during)
            num_evaluated += during * (steps // settings.every + 1)
        return round(steps * rollout.prompts_per_step * share), num_evaluated

    yield from _foresee(worlds, count, rollout.group_size)


def foresee_evaluation(
    config: RunConfig, worlds: Sequence[TaskWorld], *, has_forced: bool
) -> Iterator[str]:
    """The same of an evaluation; without `has_forced`, each task is played in one way only."""
    settings = config.eval
    if not has_forced:
        settings = settings.model_copy(update={"forced": False})

    def count(world: TaskWorld) -> tuple[int, int]:
        played = count_episodes([world], settings, settings.split, settings.num_tasks)
        return 0, played * settings.num_samples

    yield from _foresee(worlds, count, 1)


def describe_spent(worlds: Sequence[TaskWorld]) -> Iterator[str]:
    """One sentence for each judge that costs something: what it was asked and what that cost."""
    found = {
        id(judge): f"judge '{name}': {judge.traffic.describe()}" for name, judge, _ in _paid(worlds)
    }
    yield from found.values()


def _foresee(
    worlds: Sequence[TaskWorld],
    count: Callable[[TaskWorld], tuple[int, int]],
    group_size: int,
) -> Iterator[str]:
    """`count` gives the groups that are trained on and the episodes that are evaluated."""
    asked: dict[int, tuple[str, Traffic]] = {}
    for name, judge, world in _paid(worlds):
        assert world.judged is not None
        num_groups, num_evaluated = count(world)
        one_by_one = judge.estimate(num_groups * group_size + num_evaluated, 1)
        ranked = judge.estimate(num_groups, group_size)
        alone = judge.estimate(num_evaluated, 1)  # a group of one episode
        parts = [one_by_one] * len(world.judged.singles)
        parts += [ranked, alone] * len(world.judged.groups)
        before = asked.get(id(judge), (name, Traffic()))[1]
        asked[id(judge)] = name, _add(before, *parts)
    for name, told in asked.values():
        yield f"judge '{name}' will be asked: {told.describe_estimate()}"


def _mean_weight(world: TaskWorld) -> float:
    """Of its stages, however long each lasts."""
    return fmean(value for _, value in stages_of(world.config.weight))


def _paid(worlds: Sequence[TaskWorld]) -> Iterator[tuple[str, PaidJudge, TaskWorld]]:
    for world in worlds:
        if world.judged is not None and isinstance(world.judged.judge, PaidJudge):
            yield world.judged.name, world.judged.judge, world


def _add(first: Traffic, *others: Traffic) -> Traffic:
    """The sum of estimates. One without a price has no part in the cost."""
    total = first
    for one in others:
        costs = [cost for cost in (total.cost, one.cost) if cost is not None]
        total = replace(
            total,
            calls=total.calls + one.calls,
            prompt_tokens=total.prompt_tokens + one.prompt_tokens,
            completion_tokens=total.completion_tokens + one.completion_tokens,
            cost=sum(costs) if costs else None,
        )
    return total
