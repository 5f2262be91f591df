"""What `play` and `eval` say one could type next: it runs, and it is about the same tasks."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from click.testing import CliRunner, Result

from searchrl.cli import main
from searchrl.cli.screen.next_command import after_eval

WITHOUT_EXPERT = """
from searchrl import hookimpl
from searchrl.envs.regulations.env import RegulationsEnv


@hookimpl
def register_envs(register):
    register("bare", RegulationsEnv)
"""


def searchrl(*words: str, typed: str = "") -> Result:
    return CliRunner().invoke(main, list(words), input=typed)


def suggested(text: str) -> list[str]:
    last = text.rstrip().splitlines()[-1]
    assert last.startswith("Next: "), last
    program, *words = shlex.split(last.removeprefix("Next:"))
    assert program == "searchrl"
    return words


def test_play_leads_to_a_scripted_evaluation_of_the_same_tasks() -> None:
    task_world = ("--retriever", "random", "--set", "env.difficulty=easy")
    played = searchrl("play", "--env", "regulations", *task_world, "--index", "0", typed="a 1\n")
    words = suggested(played.stdout)
    assert words == ["eval", "--env", "regulations", *task_world, "--policy", "scripted"]
    assert searchrl(*words, "--num-tasks", "2").exit_code == 0


def test_play_leads_to_training_where_there_is_no_scripted_policy(tmp_path: Path) -> None:
    plugin = tmp_path / "a bare one.py"
    plugin.write_text(WITHOUT_EXPERT, "utf-8")
    played = searchrl("play", "--plugin", str(plugin), "--env", "bare", typed="a 1\n")
    words = suggested(played.stdout)
    assert words[:5] == ["train", "--plugin", str(plugin), "--env", "bare"]
    assert searchrl(*words, "--dry-run").exit_code == 0


def test_a_plugin_named_before_the_command_is_carried_over(tmp_path: Path) -> None:
    plugin = tmp_path / "bare.py"
    plugin.write_text(WITHOUT_EXPERT, "utf-8")
    played = searchrl("--plugin", str(plugin), "play", "--env", "bare", typed="a 1\n")
    assert suggested(played.stdout)[:3] == ["train", "--plugin", str(plugin)]


def test_eval_leads_to_training_with_its_reward() -> None:
    words = suggested(searchrl("eval", "--policy", "scripted", "--num-tasks", "2").stdout)
    reward = ["--reward", "0.2*format+em", "--model", "tiny", "--max-steps", "3"]
    assert words == ["train", *reward]
    own = searchrl("eval", "--policy", "scripted", "--num-tasks", "2", "--reward", "f1")
    assert suggested(own.stdout)[1:3] == ["--reward", "f1"]


def test_a_configuration_file_says_reward_and_model_itself(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("{reward: f1, policy: scripted, model: {name: tiny}}", "utf-8")
    words = suggested(searchrl("eval", "--config", str(file), "--num-tasks", "2").stdout)
    assert words == ["train", "--config", str(file), "--policy", "model", "--max-steps", "3"]
    assert searchrl(*words, "--dry-run").exit_code == 0


def test_a_run_that_was_evaluated_can_be_asked() -> None:
    assert after_eval({}, "runs/my run") == "searchrl ask 'runs/my run' \"…\""


def test_json_stays_alone_on_stdout() -> None:
    for result in (
        searchrl("eval", "--policy", "scripted", "--num-tasks", "2", "--json"),
        searchrl("play", "--json", typed="a 1\n"),
    ):
        json.loads(result.stdout)
        assert suggested(result.stderr)
