"""Scripted policies and the model-free driver: the episode is the one a run would record."""

from dataclasses import replace
from typing import Any

import gymnasium
import pytest

from searchrl import make_env
from searchrl.config import build_config
from searchrl.core.episode import StopReason
from searchrl.engine.rollout.dialogue import RolloutRequest
from searchrl.engine.rollout.drivers import make_scripted_driver
from searchrl.engine.rollout.worlds import make_worlds
from searchrl.plugins import load_plugins
from searchrl.protocols import ThinkSearchAnswer
from searchrl.testing import Says, play_episode

PROTOCOL = ThinkSearchAnswer()
SEARCH = "<think>look</think><search>library</search>"


def env(**settings: Any) -> gymnasium.Env[Any, Any]:
    return make_env("regulations", protocol=PROTOCOL, **settings)


def first_task(world: gymnasium.Env[Any, Any]) -> Any:
    return world.reset(options={"split": "test", "index": 0})[1]["task"]


def test_says_its_turns_and_keeps_what_it_heard() -> None:
    policy = Says([SEARCH, "<think>so</think><answer>no</answer>"])
    episode = play_episode(env(), policy, PROTOCOL, split="test", index=0)
    assert [turn.action.kind for turn in episode.turns] == ["search", "answer"]
    assert policy.heard[1] == episode.turns[0].observation and episode.turns[0].passages
    assert (episode.final_answer, episode.stop_reason) == ("no", StopReason.ANSWERED)


@pytest.mark.parametrize("name", ["expert", "passive", "two_search_regex"])
def test_the_driver_records_what_the_rollout_driver_records(name: str) -> None:
    registry = load_plugins(entry_points=False)
    script = registry.get("env", "regulations").load_script(name)
    config = build_config({"env": "regulations"})
    (world,) = make_worlds(config, registry)
    request = RolloutRequest("g", world, "test", 0, (0,), script=script)
    (group,) = make_scripted_driver(config).run([request])
    theirs = group.rollouts[0].episode

    own = env()
    policy = script(own.unwrapped, first_task(own), PROTOCOL)
    mine = play_episode(own, policy, PROTOCOL, split="test", index=0)
    # Tokens are the driver's own: here they are words.
    assert replace(mine, num_model_tokens=0) == replace(theirs, num_model_tokens=0)
