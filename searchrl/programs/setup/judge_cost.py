"""The estimated questions to the judges of a run, and their cost, before they are asked.

The judge itself says what one question costs (`contracts.PaidJudge`); one that costs nothing is not
mentioned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from searchrl.config import RunConfig
from searchrl.config.curriculum import stages_of
from searchrl.config.sections import EvalConfig
from searchrl.contracts import PaidJudge, Traffic
from searchrl.engine.metrics.evaluation import count_episodes
from searchrl.engine.rollout.world import TaskWorld
from searchrl.envs.splits import VALIDATION


def foresee_training(
    config: RunConfig, worlds: Sequence[TaskWorld], done: int = 0
) -> Iterator[str]:
    """One sentence for each judge of a training run that costs something; `done` steps are over."""
    settings, rollout = config.eval, config.rollout
    steps = config.max_steps - done
    # Of its stages, however long each lasts.
    weights = [fmean(value for _, value in stages_of(world.config.weight)) for world in worlds]
    counts = []
    for world, weight in zip(worlds, weights, strict=True):
        num_groups = round(steps * rollout.prompts_per_step * weight / sum(weights))
        held_out = count_episodes([world], settings, settings.split, settings.num_tasks)
        num_evaluated = held_out * (1 if done else 2)
        if settings.every and world.can_validate:
            during = count_episodes([world], settings, VALIDATION, settings.num_tasks_during)
            num_evaluated += during * (steps // settings.every + 1)
        counts.append((num_groups, num_evaluated))
    yield from _foresee(worlds, counts, rollout.group_size)


def foresee_evaluation(settings: EvalConfig, worlds: Sequence[TaskWorld]) -> Iterator[str]:
    """The same of an evaluation."""
    played = [count_episodes([w], settings, settings.split, settings.num_tasks) for w in worlds]
    counts = [(0, count * settings.num_samples) for count in played]
    yield from _foresee(worlds, counts, 1)


def describe_spent(worlds: Sequence[TaskWorld]) -> Iterator[str]:
    """One sentence for each judge that costs something: what it was asked and what that cost."""
    costs = {}
    for world in worlds:
        if world.judged and isinstance(judge := world.judged.judge, PaidJudge):
            costs[id(judge)] = f"judge '{world.judged.name}': {judge.traffic.describe()}"
    yield from costs.values()


def _foresee(
    worlds: Sequence[TaskWorld], counts: Sequence[tuple[int, int]], group_size: int
) -> Iterator[str]:
    """`counts` are the groups that are trained on and the episodes that are evaluated."""
    traffic: dict[int, tuple[str, list[Traffic]]] = {}
    for world, (num_groups, num_evaluated) in zip(worlds, counts, strict=True):
        if world.judged is None or not isinstance(judge := world.judged.judge, PaidJudge):
            continue
        one_by_one = judge.estimate(num_groups * group_size + num_evaluated, 1)
        ranked = judge.estimate(num_groups, group_size)
        alone = judge.estimate(num_evaluated, 1)  # a group of one episode
        parts = traffic.setdefault(id(judge), (world.judged.name, []))[1]
        parts += [one_by_one] * len(world.judged.singles)
        parts += [ranked, alone] * len(world.judged.groups)
    for name, parts in traffic.values():
        costs = [one.cost for one in parts if one.cost is not None]
        whole = Traffic(
            sum(one.calls for one in parts),
            prompt_tokens=sum(one.prompt_tokens for one in parts),
            completion_tokens=sum(one.completion_tokens for one in parts),
            cost=sum(costs) if costs else None,
        )
        yield f"judge '{name}' will be asked: {whole.describe_estimate()}"
