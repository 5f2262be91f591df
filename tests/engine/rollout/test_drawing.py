"""Drawings of plugins: stored with the rollout, and never the end of one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from searchrl.config import build_config
from searchrl.contracts.problems import find_ranks_problem
from searchrl.core.drawing import Graph, Table, Text, find_drawings_problem
from searchrl.engine.rollout.drawing import MAX_DRAWINGS
from searchrl.engine.rollout.records import rollout_record
from searchrl.programs.evaluate import evaluate

PLUGIN = """
import sys
import time

from searchrl import hookimpl
from searchrl.core.drawing import Graph, Table, Text
from searchrl.envs.regulations import RegulationsEnv
from searchrl.protocols import ThinkSearchAnswer


class MapEnv(RegulationsEnv):
    name = "mapped"

    def draw_episode(self, episode):
        return [Text("the map", "+--+\\n|x |\\n+--+")]


class PlanProtocol(ThinkSearchAnswer):
    def draw_episode(self, episode):
        return [Graph("the plan", {"a": "first", "b": "then"}, [("a", "b")])]


class Critic:
    name = "critic"
    values = (0.0, 1.0)
    is_range = False

    def __call__(self, episode):
        return 1.0

    def draw_episode(self, episode):
        return [Table("scores", ["what", "points"], [["style", 0.5], [episode.final_answer, 1]])]


class Broken(Critic):
    name = "broken"

    def draw_episode(self, episode):
        sys.exit("no paper")


class Slow(Critic):
    name = "slow"

    def draw_episode(self, episode):
        time.sleep(20)


class Wrong(Critic):
    name = "wrong"

    def draw_episode(self, episode):
        return ["<b>markup</b>"]


class Eager(Critic):
    name = "eager"

    def draw_episode(self, episode):
        return [Text(str(number), "") for number in range(11)]


@hookimpl
def register_envs(register):
    register("mapped", MapEnv, expert="searchrl.envs.regulations:make_expert")


@hookimpl
def register_protocols(register):
    register("planned", PlanProtocol)


@hookimpl
def register_rewards(register):
    for one in (Critic, Broken, Slow, Wrong, Eager):
        register(one.name, one)
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
    rows = [json.loads(json.dumps(rollout_record(r, "eval", None))) for r in rollouts]
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
    limits = {"env_timeout_s": 0.5, "reward_timeout_s": 60}
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
    row = rollout_record(rollouts[0], "eval", None)
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
