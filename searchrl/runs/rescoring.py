"""Stored rollouts scored again with another reward, and two rewards compared. No torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from searchrl.config import RunConfig
from searchrl.config.sections import TaskConfig
from searchrl.core.episode import Episode
from searchrl.engine.rollout.worlds import make_protocol, make_scorer
from searchrl.errors import ConfigError, RunFolderError
from searchrl.plugins import Registry
from searchrl.plugins.parts import Judges
from searchrl.rewards.scorer import score_together
from searchrl.run_folder.rollouts import name_rollout
from searchrl.runs.stored import read_episode
from searchrl.statistics import kendall, mean, spearman

_ANY = (-math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class Scored:
    """One stored rollout under a reward. `reward` is None if it could not be scored."""

    name: str
    group: str
    phase: str
    episode: Episode
    reward: float | None
    scores: Mapping[str, float]
    unscored: str | None


def read_recorded(
    rows: Iterable[Mapping[str, Any]], config: RunConfig, registry: Registry
) -> list[Scored]:
    """The episodes of rollout rows, with the rewards that they were recorded with.

    Raises `ConfigError` if two tasks of the run cannot be told apart, `RunFolderError` if a row is
    of no task of the run.
    """
    tasks = _tasks_by_env(config)
    protocols = {env: make_protocol(task, config, registry) for env, task in tasks.items()}
    recorded = []
    for row in rows:  # one at a time: its columns of tokens need far more memory than its episode
        if row["phase"] == "train" and row["origin"] != "sampled":
            continue  # a demonstration or replayed: no figure of the policy
        if row["env"] not in protocols:
            raise RunFolderError(
                f"rollout {row['rollout_id']!r} is of env {row['env']!r}, and the run has "
                f"{', '.join(protocols)}; the folder holds files of another run"
            )
        scored = Scored(
            name=name_rollout(row),
            group=f"{row['phase']}/{row['step']}/{row['group_id']}",
            phase=row["phase"],
            episode=read_episode(row, protocols[row["env"]]),
            reward=row["reward"],
            scores=row["scores"],
            unscored=row["unscored"] if row["reward"] is None else None,
        )
        recorded.append(scored)
    return recorded


def score_again(
    recorded: Sequence[Scored], config: RunConfig, registry: Registry, reward: str
) -> list[Scored]:
    """The same episodes, scored with an expression; `ConfigError` if it is wrong."""
    # No metrics: those of the run may need what no row holds.
    only = {"reward": reward, "metrics": []}
    judges = Judges(registry, config.normalization)
    scorers = {
        env: make_scorer(task.model_copy(update=only), config, registry, judges)
        for env, task in _tasks_by_env(config).items()
    }
    work = [(scorers[one.episode.task.env], one.episode) for one in recorded]
    scored = score_together(work, [one.group for one in recorded])
    return [
        replace(one, reward=new.reward, scores=new.scores, unscored=new.unscored)
        for one, new in zip(recorded, scored, strict=True)
    ]


def compare_phases(
    first: Sequence[Scored], second: Sequence[Scored], num_shown: int = 3
) -> dict[str, dict[str, Any]]:
    """Compare two rewards of the same episodes, in the same order: for each phase of these.

    `first` and `second` are their means over the `n` episodes that both score. `kendall_tau` and
    `spearman_rho` are over all of these; `group_tau` is the mean tau of the `groups` in which both
    differ. What is constant has no correlation: None. `disagreements` are the episodes whose ranks,
    from 0 (worst) to 1, are farthest apart.
    """
    both: dict[str, list[tuple[Scored, Scored]]] = {}
    for pair in zip(first, second, strict=True):
        both.setdefault(pair[0].phase, []).append(pair)
    return {phase: _compare(pairs, num_shown) for phase, pairs in both.items()}


def _compare(both: Sequence[tuple[Scored, Scored]], num_shown: int) -> dict[str, Any]:
    pairs = [(a, b) for a, b in both if a.reward is not None and b.reward is not None]
    # `or 0.0` is for the type checker: none of these is None.
    one_side, other_side = ([pair[side].reward or 0.0 for pair in pairs] for side in (0, 1))
    names = [one.group for one, _ in pairs]
    groups: dict[str, list[tuple[float, float]]] = {}
    for name, *rewards in zip(names, one_side, other_side, strict=True):
        groups.setdefault(name, []).append((rewards[0], rewards[1]))
    taus = [kendall(*zip(*members, strict=True)) for members in groups.values()]
    defined = [tau for tau in taus if tau is not None]
    return {
        "n": len(pairs),
        "unscored": [sum(pair[side].reward is None for pair in both) for side in (0, 1)],
        "first": mean(one_side, _ANY, names) if pairs else None,
        "second": mean(other_side, _ANY, names) if pairs else None,
        "kendall_tau": kendall(one_side, other_side) if pairs else None,
        "spearman_rho": spearman(one_side, other_side) if pairs else None,
        "group_tau": math.fsum(defined) / len(defined) if defined else None,
        "groups": len(defined),
        "disagreements": _disagreements(pairs, one_side, other_side)[:num_shown],
    }


def _disagreements(
    pairs: Sequence[tuple[Scored, Scored]], *sides: Sequence[float]
) -> list[dict[str, Any]]:
    """The episodes whose ranks are farthest apart, at most one per task."""
    from scipy.stats import rankdata

    # From 0 to 1: the share of the others that are below, ties half.
    ranks = [((rankdata(side) - 1) / max(1, len(side) - 1)).tolist() for side in sides]
    apart = [
        (-abs(left - right), one.name, left, right, one, other)
        for (one, other), left, right in zip(pairs, *ranks, strict=True)
        if left != right
    ]
    chosen: dict[str, dict[str, Any]] = {}
    for _, name, left, right, one, other in sorted(apart, key=lambda it: it[:2]):
        task = one.episode.task
        row = {
            "rollout": name,
            "question": task.question,
            "answer": one.episode.final_answer,
            "expected": list(task.answers),
            "first": {"reward": one.reward, "rank": left, "scores": dict(one.scores)},
            "second": {"reward": other.reward, "rank": right, "scores": dict(other.scores)},
        }
        chosen.setdefault(task.id, row)
    return list(chosen.values())


def _tasks_by_env(config: RunConfig) -> dict[str, TaskConfig]:
    tasks: dict[str, TaskConfig] = {}
    for task in config.tasks:
        name = task.env.name
        other = tasks.setdefault(name, task)
        if (other.reward, other.protocol) != (task.reward, task.protocol):
            raise ConfigError(
                f"the run has several tasks of env '{name}' with rewards or protocols of their "
                "own, and a stored rollout does not say which it belongs to"
            )
    return tasks
