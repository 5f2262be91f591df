"""What an environment is registered with and a configuration need not say: its reward, retriever.

The protocol is in `test_world_protocol`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from searchrl.config import RunConfig, build_config
from searchrl.engine.rollout.worlds import make_worlds, name_defaults
from searchrl.errors import ConfigError, ExpressionError, UnknownNameError
from searchrl.plugins import Registry, load_plugins

DEFAULTS = """
from searchrl import hookimpl
from searchrl.envs.corpus import CorpusEnv
from searchrl.envs.scripts import make_expert
from searchrl.rewards import FunctionReward

class Empty:
    "A retriever of the plugin's own."
    def __init__(self, passages, *, note=""):
        self.note = note
    def search(self, queries, k):
        return [[] for _ in queries]

@hookimpl
def register_envs(register):
    register("mine", CorpusEnv, reward="brief+0.5*em", retriever="nothing", expert=make_expert)
    register("lost", CorpusEnv, reward="breif+em")
    register("odd", CorpusEnv, reward="brief+")
    register("far", CorpusEnv, retriever="no-such")

@hookimpl
def register_rewards(register):
    register("brief", lambda: FunctionReward("brief", lambda e: 1.0, (0.0, 1.0)))

@hookimpl
def register_retrievers(register):
    register("nothing", Empty)
"""


@pytest.fixture
def registry(own_folder: Path) -> Registry:
    (own_folder / "defaults.py").write_text(DEFAULTS, "utf-8")
    return load_plugins(["defaults.py"], strict=True)


def decided(registry: Registry, *layers: dict[str, Any]) -> RunConfig:
    return name_defaults(build_config(*layers), registry)


def test_what_the_environment_registers_is_used_where_nothing_is_said(registry: Registry):
    (task,) = decided(registry, {"env": "mine"}).tasks
    assert (task.reward, task.retriever.name) == ("brief+0.5*em", "nothing")
    (task,) = decided(registry, {"env": "regulations"}).tasks
    assert (task.reward, task.retriever.name) == ("format+em", "bm25")
    (task,) = decided(registry, {"env": "gym:FrozenLake-v1"}).tasks
    assert task.reward == "env"


def test_what_is_said_wins(registry: Registry):
    (task,) = decided(registry, {"env": "mine", "reward": "em", "retriever": "random"}).tasks
    assert (task.reward, task.retriever.name) == ("em", "random")


def test_settings_without_a_name_go_to_the_environments_own_retriever(registry: Registry):
    (task,) = decided(registry, {"env": "mine", "retriever": {"note": "x"}}).tasks
    assert (task.retriever.name, task.retriever.settings) == ("nothing", {"note": "x"})


def test_a_world_is_made_of_it(registry: Registry):
    (world,) = make_worlds(build_config({"env": "mine"}), registry)
    assert str(world.scorer.schedule) == "brief+0.5*em"
    assert world.retriever_owner == "plugin defaults"


@pytest.mark.parametrize(
    ("env", "error", "said"),
    [
        ("lost", UnknownNameError, r"default reward of plugin defaults .*'brief'"),
        ("odd", ExpressionError, r"default reward of plugin defaults .*\n  brief\+"),
        ("far", UnknownNameError, r"unknown retriever 'no-such'"),
    ],
)
def test_a_default_that_does_not_exist_names_the_plugin(
    registry: Registry, env: str, error: type[Exception], said: str
):
    with pytest.raises(error, match=f"(?s){said}"):
        make_worlds(build_config({"env": env}), registry)


@pytest.mark.parametrize("option", ["reward", "retriever"])
def test_a_default_is_a_text(own_folder: Path, option: str):
    text = f"""
from searchrl import hookimpl

@hookimpl
def register_envs(register):
    register("mine", "package.module:Env", {option}=3)
"""
    (own_folder / "wrong.py").write_text(text, "utf-8")
    (failure,) = load_plugins(["wrong.py"]).failures
    assert failure.line == 6 and f"env 'mine': {option} is 3: " in failure.message


def test_a_retriever_that_nothing_would_ask_is_refused(registry: Registry) -> None:
    config = decided(registry, {"env": "gym:FrozenLake-v1", "retriever": "random"})
    with pytest.raises(ConfigError, match=r"'random'.*'gym:FrozenLake-v1'.*leave out --retriever"):
        make_worlds(config, registry)
