"""Plays episodes of search environments with scripted policies, for the tests of these worlds."""

from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

from searchrl.contracts.playing import ExpertFactory
from searchrl.core.episode import Action, Passage, Task
from searchrl.envs.regulations import RegulationsEnv
from searchrl.envs.regulations.world.school import NUM_SCHOOLS
from searchrl.envs.text import TextEnv
from searchrl.protocols import ThinkSearchAnswer
from searchrl.retrieval.bm25 import BM25Retriever
from searchrl.retrieval.indexes import IndexCache

PROTOCOL = ThinkSearchAnswer()
INDEXES = IndexCache(BM25Retriever)
LEVELS = ("easy", "normal", "hard")
"""Levels of difficulty of `regulations`."""


class Played(NamedTuple):
    """A finished episode; `observations` begins with the prompt, `signals` are the last ones."""

    task: Task
    turns: list[str]
    actions: list[Action]
    reward: float
    observations: list[str]
    passages: list[Passage]
    signals: dict[str, float]
    is_answered: bool


def make_env(**settings: Any) -> RegulationsEnv:
    return RegulationsEnv(**{"protocol": PROTOCOL, "retriever": BM25Retriever, **settings})


@cache
def env_of(level: str) -> RegulationsEnv:
    return make_env(difficulty=level)


@cache
def tasks_of(level: str) -> list[Task]:
    """Tasks of the test split: all of its first 40 schools."""
    count = NUM_SCHOOLS["test"]
    numbers = (number + slot * count for number in range(40) for slot in range(10))
    return [env_of(level).make_task("test", number) for number in numbers]


def play(env: TextEnv, policy: ExpertFactory, **options: Any) -> Played:
    observation, info = env.reset(options=options)
    task, total, passages, is_over, terminated = info["task"], 0.0, [], False, False
    script = policy(env, task, PROTOCOL)
    turns, actions, observations = [], [], [observation]
    while not is_over:
        turns.append(script.act(observation))
        observation, reward, terminated, truncated, info = env.step(turns[-1])
        actions.append(info["action"])
        observations.append(observation)
        passages += info["passages"]
        total, is_over = total + reward, terminated or truncated
    return Played(task, turns, actions, total, observations, passages, info["signals"], terminated)


def search(env: RegulationsEnv, task: Task, queries: list[str]) -> list[str]:
    return [p.id for p in INDEXES.get(*env.passages(task)).search(queries, 3)[0]]


def mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)
