"""The environment `multisource`: its world, its questions, and what scripted policies reach."""

from __future__ import annotations

from typing import Any

import pytest

import searchrl
from searchrl.plugins import load_plugins

MODULE = "searchrl_dag"
NUM_TASKS = 60


def exact_match(script: str, split: str = "test", **settings: Any) -> float:
    """The share of tasks that a scripted policy solves."""
    env = searchrl.make_env("multisource", plugins=[MODULE], **settings)
    act = load_plugins([MODULE]).get("env", "multisource").load_script(script)
    total = 0.0
    for index in range(NUM_TASKS):
        observation, info = env.reset(options={"split": split, "index": index})
        policy = act(env, info["task"], env.unwrapped.protocol)  # type: ignore[attr-defined]
        is_over = False
        while not is_over:
            observation, reward, terminated, truncated, _ = env.step(policy.act(observation))
            total += float(reward)
            is_over = terminated or truncated
    return total / NUM_TASKS


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_the_plan_of_every_task_answers_it(split: str) -> None:
    assert exact_match("expert", split) == 1.0


@pytest.mark.parametrize(
    "script", ["passive", "clumsy", "one_general", "two_nodes", "every_source"]
)
def test_weak_policies_and_heuristics_stay_far_below_a_plan(script: str) -> None:
    assert exact_match(script) <= 0.25


def test_a_second_query_that_needs_the_first_result_fails_without_it() -> None:
    assert exact_match("expert", mix={"chain": 1.0}) >= 0.6
    assert exact_match("expert", mix={"chain": 1.0}, parent_results=False) <= 0.2
