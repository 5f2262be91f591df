"""Tools that an environment registers: who lists them, and what is measured of their calls."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import searchrl
from searchrl.config import build_config
from searchrl.core.episode import SEARCH, TOOL, Action, ToolCall
from searchrl.engine.metrics.evaluation import EvalResult
from searchrl.engine.rollout.records import plain_payload, rollout_record
from searchrl.engine.rollout.worlds import make_worlds
from searchrl.errors import ConfigError
from searchrl.plugins import Registry, load_plugins
from searchrl.programs.evaluate import evaluate

PLUGIN = '''
import gymnasium

from searchrl import hookimpl
from searchrl.core.episode import ANSWER, TOOL, Action, Task, ToolCall


class Clock(gymnasium.Env):
    """What time is it? The tool `now` knows."""

    def __init__(self, *, protocol, retriever):
        self.protocol = protocol

    def num_tasks(self, split):
        return 4

    def reset(self, *, seed=None, options=None):
        self.task = Task("clock", options["split"], options["index"], "What time is it?", ("9",))
        return self.task.question, {"task": self.task}

    def step(self, action):
        parsed = self.protocol.parse(action)
        is_over = parsed.kind == ANSWER
        reply = "" if is_over else self.protocol.render_notice("9")
        return reply, 0.0, is_over, False, {"action": parsed}


class Asks:
    def __init__(self, env, task, protocol):
        self.protocol, self.has_asked = protocol, False

    def act(self, observation):
        action = Action(ANSWER, "9") if self.has_asked else Action(TOOL, ToolCall("now", {"tz": 1}))
        self.has_asked = True
        return self.protocol.render_turn(action, "hm")


class Knows(Asks):
    def __init__(self, env, task, protocol):
        self.protocol, self.has_asked = protocol, True


@hookimpl
def register_envs(register):
    tools = [{"name": "now", "description": "The time."}]
    more = {"expert": Asks, "scripts": {"knows": Knows}}
    register("clock", Clock, tools=TOOLS, protocol="tool-call", **more)
'''


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Registry]:
    def load(tools: str = "tools") -> Registry:
        file = tmp_path / "clock.py"
        file.write_text(PLUGIN.replace("TOOLS", tools), "utf-8")
        return load_plugins([str(file)], entry_points=False)

    return load


def listed(registry: Registry, protocol: Any) -> list[str]:
    world = make_worlds(build_config({"env": "clock", "protocol": protocol}), registry)[0]
    return [tool["name"] for tool in getattr(world.protocol, "tools", ())]


def test_the_protocol_lists_them_unless_the_configuration_names_others(load: Any) -> None:
    registry = load()
    own = {"name": "tool-call", "tools": [{"name": "later"}]}
    assert listed(registry, "auto") == listed(registry, "tool-call") == ["now"]
    assert listed(registry, own) == ["later"] and listed(load("()"), "tool-call") == ["search"]


@pytest.mark.parametrize("tools", ["'now'", "{'name': 'now'}", "['now']"])
def test_what_is_no_list_of_tools_is_refused_where_it_is_registered(load: Any, tools: str) -> None:
    registry = load(tools)
    (failure,) = registry.failures
    assert "registers env 'clock': tools is" in str(failure)
    assert failure.line == len(PLUGIN.splitlines())


def play(registry: Registry, policy: str, **more: Any) -> EvalResult:
    settings = {"env": "clock", "policy": policy, "reward": "em", "eval": {"num_tasks": 4}}
    return evaluate({**settings, **more}, registry=registry)


def test_metrics_speak_of_calls_and_not_of_searches(load: Any) -> None:
    registry = load()
    asks, knows = play(registry, "scripted").metrics, play(registry, "scripted:knows").metrics
    for metrics in (asks, knows):
        assert not {"searched", "searches", "support_recall", "em_forced"} & set(metrics)
        assert metrics["em"]["value"] == 1.0
    assert asks["tool_calls"]["value"] == 1.0 and knows["tool_calls"]["value"] == 0.0
    assert asks["passive"]["value"] == 0.0 and knows["passive"]["value"] == 1.0


def test_of_two_tasks_each_has_the_metrics_that_make_sense(load: Any) -> None:
    tasks = [{"env": "clock", "reward": "em"}, {"env": "corpus", "reward": "em"}]
    settings = {"tasks": tasks, "policy": "scripted", "eval": {"num_tasks": 8}}
    metrics = evaluate(settings, registry=load()).metrics
    expected = {"clock/tool_calls", "clock/passive", "corpus/passive", "corpus/searched"}
    assert expected <= set(metrics)
    assert not {"clock/searched", "corpus/tool_calls"} & set(metrics)
    # Over the episodes of the task that has them.
    assert metrics["tool_calls"] == metrics["clock/tool_calls"]
    assert metrics["searched"] == metrics["corpus/searched"]


def test_the_row_of_a_rollout_holds_its_calls(load: Any) -> None:
    record = rollout_record(play(load(), "scripted").rollouts[0], "eval", {})
    first, last = json.loads(json.dumps(record, allow_nan=False))["turns"]
    assert (first["action"], last["action"]) == ("tool", "answer")
    assert first["payload"] == {"name": "now", "arguments": {"tz": 1}}
    assert last["payload"] is None and first["queries"] == []


@pytest.mark.parametrize(
    ("action", "payload"),
    [
        (Action(SEARCH, ("a",)), None),
        (Action("move", (1, "left")), [1, "left"]),
        (Action("move", {1}), "{1}"),
        (Action(TOOL, ToolCall("a", {"x": {1}})), "ToolCall(name='a', arguments={'x': {1}})"),
    ],
)
def test_a_payload_of_any_kind_is_json(action: Action, payload: Any) -> None:
    assert plain_payload(action) == payload


def test_a_search_environment_without_a_search_says_what_is_missing() -> None:
    tools = {"name": "tool-call", "tools": [{"name": "now"}]}
    with pytest.raises(ConfigError, match=r"regulations needs searches.*the tools now"):
        make_worlds(build_config({"protocol": tools}), load_plugins(entry_points=False))


def test_a_search_environment_answers_a_call_of_another_tool() -> None:
    env = searchrl.make_env("regulations", protocol="tool-call")
    env.reset(seed=0)
    observation, *_ = env.step('<tool_call>{"name": "now", "arguments": {}}</tool_call>')
    assert "There is no tool 'now' here; the only one is search." in observation
