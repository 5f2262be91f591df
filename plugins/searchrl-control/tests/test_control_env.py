"""The environment `retrieval-control` as Gymnasium sees it: spaces, masks, limits, rewards."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

ID = "searchrl_control:searchrl/RetrievalControl-v0"
SETS = ("published", "wide", "heads")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("control"))


def make(cache: str, **settings: Any) -> Any:
    return gymnasium.make(ID, cache=cache, **settings)


@pytest.mark.parametrize("actions", SETS)
def test_the_checker_of_gymnasium_finds_nothing(cache: str, actions: str) -> None:
    env = make(cache, actions=actions)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped, skip_render_check=True)


@pytest.mark.parametrize("actions", SETS)
def test_ten_lines_of_a_random_loop(cache: str, actions: str) -> None:
    env = make(cache, actions=actions)
    total, episodes = 0.0, 0
    observation, info = env.reset(seed=7)
    env.action_space.seed(7)
    while episodes < 10:
        action = env.action_space.sample(info["action_mask"])
        observation, reward, terminated, truncated, info = env.step(action)
        total += reward
        if terminated or truncated:
            episodes += 1
            observation, info = env.reset()
    assert 0 < total < 10 and observation in env.observation_space
