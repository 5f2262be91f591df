"""The next command that `play` and `eval` suggest: it runs, and it has the same tasks."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import click
import pytest
from command_line import succeed

from searchrl.cli.screen.next_command import after_eval_of_run

WITHOUT_EXPERT = """
from searchrl import hookimpl
from searchrl.envs.regulations.env import RegulationsEnv


@hookimpl
def register_envs(register):
    register("bare", RegulationsEnv)
"""


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    path = tmp_path / "a bare one.py"
    path.write_text(WITHOUT_EXPERT, "utf-8")
    return path


def suggested(text: str) -> list[str]:
    last = text.rstrip().splitlines()[-1]
    assert last.startswith("Next: "), last
    program, *words = shlex.split(last.removeprefix("Next:"))
    assert program == "searchrl"
    return words


def test_play_leads_to_a_scripted_evaluation_of_the_same_tasks() -> None:
    task_world = ("--retriever", "random", "--set", "env.difficulty=easy")
    played = succeed("play", "--env", "regulations", *task_world, "--index", "0", typed="a 1\n")
    words = suggested(played.stdout)
    assert words == ["eval", "--env", "regulations", *task_world, "--policy", "scripted"]
    succeed(*words, "--num-tasks", 2)


def test_play_leads_to_training_where_there_is_no_scripted_policy(plugin: Path) -> None:
    played = succeed("play", "--plugin", plugin, "--env", "bare", typed="a 1\n")
    words = suggested(played.stdout)
    assert words[:5] == ["train", "--plugin", str(plugin), "--env", "bare"]
    succeed(*words, "--dry-run")


def test_a_plugin_named_before_the_command_is_carried_over(plugin: Path) -> None:
    played = succeed("--plugin", plugin, "play", "--env", "bare", typed="a 1\n")
    assert suggested(played.stdout)[:3] == ["train", "--plugin", str(plugin)]


def test_eval_leads_to_training_with_its_reward() -> None:
    words = suggested(succeed("eval", "--policy", "scripted", "--num-tasks", "2").stdout)
    assert words == ["train", "--reward", "0.2*format+em", "--model", "tiny"]
    own = succeed("eval", "--policy", "scripted", "--num-tasks", "2", "--reward", "f1")
    assert suggested(own.stdout)[1:3] == ["--reward", "f1"]


@pytest.mark.parametrize("where", ["", "flag", "file"])
def test_no_model_is_suggested_that_was_never_taught_the_tasks(where: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("{env: corpus, model: {name: tiny}}", "utf-8")
    given = {"flag": ["--model", "tiny"], "file": ["--config", str(tmp_path / "run.yaml")]}
    words = ["--env", "corpus", "--policy", "scripted", "--num-tasks", "2", *given.get(where, [])]
    words = suggested(succeed("eval", *words).stdout)
    assert words[words.index("--model") + 1] == "Qwen/Qwen3-0.6B"


def test_a_configuration_file_says_reward_and_model_itself(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("{reward: f1, policy: scripted, model: {name: tiny}}", "utf-8")
    words = suggested(succeed("eval", "--config", str(file), "--num-tasks", "2").stdout)
    assert words == ["train", "--config", str(file), "--policy", "model"]
    succeed(*words, "--dry-run")


def test_a_run_that_was_evaluated_can_be_asked_with_what_replaced_its_settings() -> None:
    given = dict.fromkeys(("plugin", "config", "env", "protocol", "retriever", "set"))
    values = given | {"retriever": "random", "set": ("env.topk=2",), "run_dir": None}
    with click.Context(click.Command("eval")):
        line = after_eval_of_run(values, "runs/my run", takes_questions=True)
        assert line == "searchrl ask 'runs/my run' \"…\" --retriever random --set env.topk=2"
        # With no flags to carry, the line ended in a second `searchrl`.
        bare = after_eval_of_run({**given, "run_dir": None}, "runs/a", takes_questions=True)
        assert bare == 'searchrl ask runs/a "…"'
        other = after_eval_of_run(values, "runs/my run", takes_questions=False)
    assert other == "searchrl train --init-from 'runs/my run'"


def test_json_stays_alone_on_stdout() -> None:
    for result in (
        succeed("eval", "--policy", "scripted", "--num-tasks", "2", "--json"),
        succeed("play", "--json", typed="a 1\n"),
    ):
        json.loads(result.stdout)
        assert suggested(result.stderr)
