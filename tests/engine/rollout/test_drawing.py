"""Drawings of plugins: stored with the rollout, and never the end of one."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engine_toy import SayingGenerator

from searchrl.config import build_config
from searchrl.contracts.problems import find_ranks_problem
from searchrl.core.drawing import Graph, Table, Text, find_drawings_problem
from searchrl.engine.model.policy import Policy
from searchrl.engine.rollout.dialogue import Limits, RolloutRequest
from searchrl.engine.rollout.drawing import MAX_DRAWINGS
from searchrl.engine.rollout.records import rollout_record
from searchrl.engine.rollout.rollout import RolloutDriver
from searchrl.programs.evaluate import evaluate
from searchrl.tool_calls import DeadlineExceeded

PLUGIN = """
import sys
import time

from searchrl import hookimpl
from searchrl.core.drawing import Graph, Table, Text
from searchrl.envs.regulations import RegulationsEnv
from searchrl.protocols import ThinkSearchAnswer
from searchrl.rewards import FunctionReward


class MapEnv(RegulationsEnv):
    name = "mapped"

    def draw_episode(self, episode):
        return [Text("the map", "+--+\\n|x |\\n+--+")]


class PlanProtocol(ThinkSearchAnswer):
    def draw_episode(self, episode):
        return [Graph("the plan", {"a": "first", "b": "then"}, [("a", "b")])]


DRAWINGS = {
    "critic": lambda e: [Table("scores", ["what", "points"], [["style", 0.5], ["end", 1]])],
    "broken": lambda e: sys.exit("no paper"),
    "slow": lambda e: time.sleep(20),
    "wrong": lambda e: ["<b>markup</b>"],
    "eager": lambda e: [Text(str(number), "") for number in range(11)],
}


class Draws(FunctionReward):
    def draw_episode(self, episode):
        return DRAWINGS[self.name](episode)


@hookimpl
def register_envs(register):
    register("mapped", MapEnv, expert="searchrl.envs.regulations:make_expert")


@hookimpl
def register_protocols(register):
    register("planned", PlanProtocol)


@hookimpl
def register_rewards(register):
    for name in DRAWINGS:
        register(name, lambda name=name: Draws(name, lambda e: 1.0, (0.0, 1.0)))
"""


def draw(folder: Path, reward: str, num_tasks: int = 1, **more: Any) -> list[list[dict[str, Any]]]:
    """Play with scripts, and give the drawings of each row."""
    (folder / "drawn.py").write_text(PLUGIN)
    task = {"env": "mapped", "reward": reward, "metrics": [], "protocol": "planned"}
    config = {
        "tasks": [task],
        "plugins": [str(folder / "drawn.py")],
        "policy": "scripted",
        "eval": {"num_tasks": num_tasks, "forced": False},
        **more,
    }
    rollouts = evaluate(build_config(config)).rollouts
    rows = [json.loads(json.dumps(rollout_record(r, "eval", {}))) for r in rollouts]
    assert all(row["reward"] == 1.0 for row in rows)
    return [row["drawings"] for row in rows]


def test_protocol_environment_and_reward_draw_into_the_row(tmp_path: Path):
    ((plan, map_, scores),) = draw(tmp_path, "critic")
    assert plan == {
        "by": "protocol 'planned' (plugin drawn)", "kind": "graph", "title": "the plan",
        "nodes": {"a": "first", "b": "then"}, "edges": [["a", "b"]],
    }  # fmt: skip
    assert (map_["by"], map_["kind"]) == ("env 'mapped' (plugin drawn)", "text")
    assert map_["text"] == "+--+\n|x |\n+--+"
    assert scores["by"].startswith("reward 'critic'") and scores["rows"][0] == ["style", 0.5]


@pytest.mark.parametrize(
    ("reward", "said"),
    [
        ("broken", "draw_episode() raised SystemExit: no paper"),
        ("wrong", "draw_episode() returned a list that holds str; expected Text, Table and Graph"),
    ],
)
def test_what_cannot_be_drawn_is_one_sentence(tmp_path: Path, reward: str, said: str):
    ((*_, last),) = draw(tmp_path, reward)
    assert (last["kind"], last["title"], last["text"]) == ("text", "could not be drawn", said)


def test_what_hangs_is_asked_once(tmp_path: Path):
    limits = {"env_timeout_s": 1.0, "reward_timeout_s": 60}
    rows = draw(tmp_path, "slow", num_tasks=3, rollout=limits)
    assert [len(row) for row in rows] == [3, 2, 2]
    assert "DeadlineExceeded" in rows[0][-1]["text"]


def test_a_row_holds_so_many_drawings(tmp_path: Path):
    (drawings,) = draw(tmp_path, "eager")
    assert len(drawings) == 2 + MAX_DRAWINGS + 1
    assert drawings[-1]["text"] == "3 more are not shown: a row holds 8"


def test_without_drawings_the_row_has_none():
    config = {"policy": "scripted", "eval": {"num_tasks": 1, "forced": False}}
    rollouts = evaluate(build_config({"env": "corpus"}, config)).rollouts
    row = rollout_record(rollouts[0], "eval", {})
    assert row["drawings"] == []
    ranks = [turn["ranks"] for turn in row["turns"] if turn["queries"]]
    assert ranks and ranks[0][0][row["task"]["gold_ids"][0]] >= 1
    assert find_ranks_problem(ranks[0]) == ""


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "NoneType; expected a list"),
        ([Text("t", 3)], "a Text with the text 3; expected text"),  # type: ignore[arg-type]
        ([Table("t", ["a"], [["x", "y"]])], "a Table with a row of 2 cells below 1 columns"),
        ([Table("t", ["a"], [[float("nan")]])], "a Table with the cell nan"),
        ([Graph("t", {"a": "A"}, [("a", "b")])], "a Graph with the edge ('a', 'b')"),
        ([Text("t", "x" * 50_001)], "a Text of 50,0"),
        ([Text("t", "x")], ""),
    ],
)
def test_drawings_are_checked(value: object, problem: str):
    said = find_drawings_problem(value)
    assert said.startswith(problem) and bool(said) == bool(problem)


@pytest.mark.parametrize("value", [3, [[]], [{"a": 0}], [{1: 1}], "text"])
def test_ranks_are_checked(value: object):
    assert find_ranks_problem(value)
    assert find_ranks_problem([{"a": 1, "b": None}]) == ""


SEARCH_MIRA = "<think>t</think>\n<search>mira</search>"
ANSWER = "<think>t</think>\n<answer>4</answer>"
WIDE = Limits(1000, 1000, 10_000)


def test_an_instance_is_made_reset_stepped_and_closed_in_one_thread(toy_world: Any, policy: Policy):
    """A connection of sqlite3 refuses any other: episodes failed, or earned nothing."""
    world = toy_world()
    make, threads = world.make_env, dict[int, set[int]]()

    def watch() -> Any:
        env = make()
        seen = threads.setdefault(id(env), {threading.get_ident()})

        def note(call: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *args, **named: (seen.add(threading.get_ident()), call(*args, **named))[1]

        env.reset, env.step, env.close = map(note, (env.reset, env.step, env.close))
        return env

    world.make_env = watch
    world._idle.clear()
    for keys in ((1,), (1, 2, 3), (1, 2)):
        for turns in ([SEARCH_MIRA, ANSWER], [ANSWER]):
            driver = RolloutDriver(
                SayingGenerator(policy.renderer.encode_model_text, turns), policy.renderer, WIDE
            )
            driver.run([RolloutRequest("g", world, "train", 0, keys)])
            assert world.num_tasks("train") and world.look_at("train", 0)
    world.close()
    assert len(threads) == 3 and {len(seen) for seen in threads.values()} == {1}
    assert threading.get_ident() not in set.union(*threads.values())


def test_an_instance_whose_thread_hangs_is_not_taken_again(toy_world: Any):
    world = toy_world()
    env = world.acquire()
    env.home.late = DeadlineExceeded("a neighbour", 1.0)
    world.release(env)
    world.close()
    world.release(env)
    assert world.acquire() is not env and world.num_tasks("train")
