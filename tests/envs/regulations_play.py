"""Plays episodes of `regulations` with scripted policies, for the tests of that world."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from searchrl.contracts import ExpertFactory
from searchrl.core.episode import Action, Task
from searchrl.envs.regulations import RegulationsEnv
from searchrl.protocols import ThinkSearchAnswer
from searchrl.retrieval.bm25 import BM25Retriever
from searchrl.retrieval.indexes import IndexCache

PROTOCOL = ThinkSearchAnswer()
INDEXES = IndexCache(BM25Retriever)


class Played(NamedTuple):
    """A finished episode; `observations` begins with the prompt."""

    task: Task
    turns: list[str]
    actions: list[Action]
    reward: float
    observations: list[str]


def make_env(**settings: Any) -> RegulationsEnv:
    return RegulationsEnv(**{"protocol": PROTOCOL, "retriever": BM25Retriever, **settings})


def play(env: RegulationsEnv, policy: ExpertFactory, **options: Any) -> Played:
    observation, info = env.reset(options=options)
    script = policy(env, info["task"], PROTOCOL)
    turns, actions, observations, total, is_over = [], [], [observation], 0.0, False
    while not is_over:
        turns.append(script.act(observation))
        observation, reward, terminated, truncated, step_info = env.step(turns[-1])
        actions.append(step_info["action"])
        observations.append(observation)
        total, is_over = total + reward, terminated or truncated
    return Played(info["task"], turns, actions, total, observations)


def search(env: RegulationsEnv, task: Task, queries: list[str]) -> list[str]:
    """Ids of the three best articles for `queries` in the handbook of a task."""
    return [p.id for p in INDEXES.get(*env.passages(task)).search(queries, 3)[0]]


def mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)
