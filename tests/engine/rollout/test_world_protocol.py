"""What a task is played with: named, registered with the environment, or the default; and what a
protocol without a search leaves out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from searchrl.config import RunConfig, build_config, load_preset
from searchrl.core.episode import ACT, SEARCH
from searchrl.engine.rollout.worlds import make_protocol, make_worlds, name_defaults
from searchrl.errors import ConfigError, ExpressionError, UnknownNameError
from searchrl.plugins import Registry, load_plugins
from searchrl.programs.evaluate import evaluate

LAKE = {"name": "gym:FrozenLake-v1", "max_turns": 4}


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_plugins()


def named(registry: Registry, *layers: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    config = name_defaults(build_config(*layers), registry)
    return [(task.protocol.name, task.protocol.settings) for task in config.tasks]


def test_the_environments_own_protocol_is_used_where_none_is_named(registry: Registry):
    assert named(registry, {"env": LAKE}) == [("act", {})]
    assert named(registry, {}) == [("think-search-answer", {})]
    assert named(registry, {"env": LAKE, "protocol": "auto"}) == [("act", {})]


def test_settings_without_a_name_go_to_that_protocol(registry: Registry):
    own = {"protocol": {"instruction": "Move."}}
    assert named(registry, {"env": LAKE}, own) == [("act", {"instruction": "Move."})]
    assert named(registry, own) == [("think-search-answer", {"instruction": "Move."})]
    expected = [("think-search-answer", {"instruction": "Move."})]
    assert named(registry, own, {"protocol": "think-search-answer"}) == expected


def test_a_named_protocol_wins_over_the_environments_own(registry: Registry):
    config = build_config({"env": LAKE, "protocol": "think-search-answer"})
    assert named(registry, {"env": LAKE, "protocol": "think-search-answer"})[0][0] != "act"
    with pytest.raises(ConfigError, match="needs acts, and .*-answer' has none"):
        make_worlds(config, registry)


@pytest.mark.parametrize("env", ["regulations", "corpus"])
def test_a_search_environment_refuses_a_protocol_without_searches(registry: Registry, env: str):
    with pytest.raises(ConfigError, match=f"env {env} needs searches.*has none: act"):
        make_worlds(build_config({"env": env, "protocol": "act"}), registry)


def test_each_task_has_its_own(registry: Registry):
    tasks = [{"env": "regulations"}, {"env": LAKE}, {"env": LAKE, "protocol": {"act": "do"}}]
    config = build_config({"tasks": [{**task, "reward": "env"} for task in tasks]})
    worlds = make_worlds(config, registry)
    stops = [("</search>", "</answer>"), ("</act>",), ("</do>",)]
    assert [world.protocol.stops for world in worlds] == stops
    assert [world.config.protocol.name for world in worlds] == ["think-search-answer", "act", "act"]
    stored = name_defaults(config, registry)
    assert build_config(stored.to_dict()) == stored
    assert name_defaults(stored, registry) == stored


class TestInstructions:
    def instruction(self, registry: Registry, *layers: dict[str, Any]) -> str:
        return make_worlds(build_config(*layers), registry)[0].protocol.instruction

    def test_a_small_model_gets_none_whatever_the_protocol(self, registry: Registry):
        for task in ({}, {"env": LAKE}, {"protocol": {"search": "find"}}):
            assert self.instruction(registry, task) != ""
            assert self.instruction(registry, load_preset("tiny"), task) == ""

    def test_one_that_was_written_is_always_shown(self, registry: Registry):
        own = {"protocol": {"instruction": "Move."}}
        assert self.instruction(registry, load_preset("tiny"), {"env": LAKE}, own) == "Move."


class TestScripts:
    def test_without_an_expert_one_sentence_names_what_there_is(self, registry: Registry):
        (world,) = make_worlds(build_config({"env": LAKE, "reward": "env"}), registry)
        with pytest.raises(ConfigError, match="FrozenLake-v1'.*'expert'.*random.*scripted:NAME"):
            world.script("expert")
        assert world.can_open(ACT) and not world.can_open(SEARCH)

    def test_random_play_is_evaluated_without_a_model(self):
        settings = {"env": LAKE, "reward": "env", "policy": "scripted:random"}
        first = evaluate({**settings, "eval": {"num_tasks": 8}})
        again = evaluate({**settings, "eval": {"num_tasks": 8}})
        turns = [[t.text for t in r.episode.turns] for r in first.rollouts]
        assert turns == [[t.text for t in r.episode.turns] for r in again.rollouts]
        assert first.metrics["format"]["value"] == 1.0
        assert first.metrics["invalid_turns"]["value"] == 0.0
        assert first.metrics["failed"]["value"] == 0.0


DEFAULTS = """
import gymnasium
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

class Served(CorpusEnv):
    asked = 0
    def __init__(self, *, name, word, **parts):
        super().__init__(**parts)
    @classmethod
    def tools(cls, *, name, word):
        cls.asked += 1
        assert cls.asked == 1, "a server that may be gone"
        return [{"name": f"{name}_{word}", "description": "", "parameters": {"type": "object"}}]

@hookimpl
def register_envs(register):
    register("mine", CorpusEnv, reward="brief+0.5*em", retriever="nothing", expert=make_expert)
    register("lost", CorpusEnv, reward="breif+em")
    register("odd", CorpusEnv, reward="brief+")
    register("far", CorpusEnv, retriever="no-such")
    register("served:", Served, protocol="tool-call")
    register("listed", CorpusEnv, protocol="tool-call", tools=[{"name": "look_up"}])

class Noting(gymnasium.Wrapper):
    tools = staticmethod(lambda: [{"name": "note"}])

@hookimpl
def register_wrappers(register):
    register("noting", Noting)

@hookimpl
def register_rewards(register):
    register("brief", lambda: FunctionReward("brief", lambda e: 1.0, (0.0, 1.0)))

@hookimpl
def register_retrievers(register):
    register("nothing", Empty)
"""


@pytest.fixture
def defaults(own_folder: Path) -> Registry:
    (own_folder / "defaults.py").write_text(DEFAULTS, "utf-8")
    return load_plugins(["defaults.py"], strict=True)


def decided(registry: Registry, *layers: dict[str, Any]) -> RunConfig:
    return name_defaults(build_config(*layers), registry)


def test_what_the_environment_registers_is_used_where_nothing_is_said(defaults: Registry):
    (task,) = decided(defaults, {"env": "mine"}).tasks
    assert (task.reward, task.retriever.name) == ("brief+0.5*em", "nothing")
    (task,) = decided(defaults, {"env": "regulations"}).tasks
    assert (task.reward, task.retriever.name) == ("format+em", "bm25")
    (task,) = decided(defaults, {"env": "gym:FrozenLake-v1"}).tasks
    assert task.reward == "env"


def test_what_is_said_wins(defaults: Registry):
    (task,) = decided(defaults, {"env": "mine", "reward": "em", "retriever": "random"}).tasks
    assert (task.reward, task.retriever.name) == ("em", "random")


def test_a_world_is_made_of_it(defaults: Registry):
    (world,) = make_worlds(build_config({"env": "mine"}), defaults)
    assert str(world.scorer.schedule) == "brief+0.5*em"
    assert world.who["retriever"].endswith("(plugin defaults)")


@pytest.mark.parametrize(
    ("env", "error", "said"),
    [
        ("lost", UnknownNameError, r"default reward of plugin defaults .*'brief'"),
        ("odd", ExpressionError, r"default reward of plugin defaults .*\n  brief\+"),
        ("far", UnknownNameError, r"unknown retriever 'no-such'"),
    ],
)
def test_a_default_that_does_not_exist_names_the_plugin(
    defaults: Registry, env: str, error: type[Exception], said: str
):
    with pytest.raises(error, match=f"(?s){said}"):
        make_worlds(build_config({"env": env}), defaults)


def test_a_retriever_that_nothing_would_ask_is_refused(defaults: Registry) -> None:
    config = decided(defaults, {"env": "gym:FrozenLake-v1", "retriever": "random"})
    with pytest.raises(ConfigError, match=r"'random'.*'gym:FrozenLake-v1'.*leave out --retriever"):
        make_worlds(config, defaults)


def test_tools_that_depend_on_settings_are_asked_for_once_and_recorded(defaults: Registry) -> None:
    given = {"env": {"name": "served:shop", "word": "till"}}
    config = decided(defaults, given)
    (tool,) = config.tasks[0].protocol.settings["tools"]
    assert tool["name"] == "shop_till"
    assert decided(defaults, config.to_dict()) == config
    assert "shop_till" in make_protocol(config.tasks[0], config, defaults).instruction
    assert decided(defaults, given, {"protocol": "act"}).tasks[0].protocol.settings == {}


def test_a_wrapper_adds_its_tools_to_those_of_the_environment(defaults: Registry) -> None:
    """Recorded or not: a run folder may be older than the record of tools."""
    given = build_config({"env": "listed", "wrapper": "noting", "protocol": "tool-call"})
    for config in (given, name_defaults(given, defaults)):
        protocol: Any = make_protocol(config.tasks[0], config, defaults)
        assert [tool["name"] for tool in protocol.tools] == ["look_up", "note"]
