"""`searchrl new` at a terminal: what it says, and that everything it says next really runs."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import gymnasium
import pytest
from click.testing import CliRunner, Result

from searchrl.cli import main
from searchrl.run_folder import Run

REPO = Path(__file__).resolve().parent.parent.parent

SMALL = (
    "rollout.group_size=2",
    "rollout.prompts_per_step=2",
    "rollout.max_turn_tokens=60",
    "eval.num_tasks=1",
    "eval.num_tasks_during=1",
    "eval.forced=false",
)
"""Settings laid over a training, which takes seconds then."""


def searchrl(command: str, *words: str, typed: str = "") -> Result:
    return CliRunner().invoke(main, [*shlex.split(command), *words], input=typed)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current folder of its own, and no Gymnasium id left behind."""
    monkeypatch.chdir(tmp_path)
    known = dict(gymnasium.registry)
    yield tmp_path
    gymnasium.registry.clear()
    gymnasium.registry.update(known)


def scaffold(kind: str, name: str) -> list[str]:
    """Write a plugin; returns the commands to type next, without the word `searchrl`."""
    result = searchrl(f"new {kind} {name} --json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["files"] == [f"{name}.py"] and Path(f"{name}.py").is_file()
    assert told["next"][0] == f"pytest {name}.py"
    programs, commands = zip(*(line.split(" ", 1) for line in told["next"][1:]), strict=True)
    assert set(programs) == {"searchrl"}
    return list(commands)


def ensure_good(check: str) -> str:
    result = searchrl(check)
    assert result.exit_code == 0, result.output
    return result.stdout


def train(command: str, run_dir: str) -> Run:
    sets = [word for setting in SMALL for word in ("--set", setting)]
    result = searchrl(command, "--max-steps", "1", "--run-dir", run_dir, *sets)
    assert result.exit_code == 0, result.output
    return Run.open(run_dir)


def test_it_says_what_it_wrote_and_what_comes_next() -> None:
    result = searchrl("new env capitals")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "Wrote:  capitals.py",
        "Next:   pytest capitals.py",
        "        searchrl check capitals.py",
        "        searchrl play --plugin capitals.py --env capitals",
        "        searchrl eval --plugin capitals.py --env capitals --policy scripted",
        "        searchrl train --plugin capitals.py --env capitals "
        '--reward "0.2*format+em" --model tiny --max-steps 3',
    ]


def test_mistakes_end_with_status_2_and_leave_nothing(folder: Path) -> None:
    for command, message in (
        ("new envs capitals", "'envs' is not one of 'env', 'reward'"),
        ("new env 3rd", "is no name for a plugin"),
        ("new retriever bm25", "there is a retriever 'bm25' already"),
        ("new env json", "in place of the module 'json'"),
    ):
        result = searchrl(command)
        assert result.exit_code == 2 and message in result.output, result.output
    assert not list(folder.iterdir())


def test_it_is_not_written_over() -> None:
    assert searchrl("new env capitals").exit_code == 0
    assert searchrl("new env capitals").exit_code == 2
    assert searchrl("new env capitals --force").exit_code == 0


def test_it_imports_no_torch(folder: Path) -> None:
    code = (
        "import sys, runpy; sys.argv = ['searchrl', 'new', 'env', 'capitals']\n"
        "try: runpy.run_module('searchrl', run_name='__main__')\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    env = {**os.environ, "PYTHONPATH": str(REPO)}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)
    assert (folder / "capitals.py").is_file()


# --- the commands it names, one kind after the other ---------------------------------------


def test_first_minutes_of_an_environment() -> None:
    """The path of the docs up to the training; each command names the next one."""
    check, play, evaluate, _ = scaffold("env", "capitals")
    assert f"searchrl {play}" in ensure_good(check)
    played = searchrl(play, "--index", "0", typed="s Belland\na Highwick\n")
    assert played.exit_code == 0, played.output
    assert "em 1" in played.stdout
    assert played.stdout.splitlines()[-1] == f"Next:  searchrl {evaluate}"
    evaluated = searchrl(evaluate, "--json")
    assert json.loads(evaluated.stdout)["em"] == {"value": 1.0, "low": ANY, "high": 1.0, "n": 5}
    next_command = evaluated.stderr.splitlines()[-1].removeprefix("Next:  searchrl ")
    expected = 'train --plugin capitals.py --env capitals --reward "0.2*format+em" --model tiny'
    assert shlex.split(next_command) == [*shlex.split(expected), "--max-steps", "3"]


@pytest.mark.slow
def test_last_minutes_of_an_environment_train_it() -> None:
    """Whole steps, as printed; a group without contrast ends nothing."""
    *_, command = scaffold("env", "capitals")
    result = searchrl(command, "--run-dir", "run", "--json")
    assert result.exit_code == 0, result.output
    rows = [row for row in Run.open("run").metrics if row["phase"] == "train"]
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert all(0 <= row["reward"] <= 1.2 and row["entropy"] > 0 for row in rows)


def test_commands_of_a_reward() -> None:
    check, evaluate, _ = scaffold("reward", "was_read")
    ensure_good(check)
    result = searchrl(evaluate, "--num-tasks", "20", "--json")
    metrics = json.loads(result.stdout)
    # "not regulated" is an answer that stands nowhere, and is worth 0.5.
    assert 1 + 0.5 < metrics["reward"]["value"] < 1 + metrics["em"]["value"]


def test_commands_of_a_protocol() -> None:
    check, play, evaluate = scaffold("protocol", "json_calls")
    ensure_good(check)
    played = searchrl(play, "--index", "0", typed="s library\na no\n")
    assert '<call>{"search": ["' in played.stdout and "<result>" in played.stdout
    result = searchrl(evaluate, "--num-tasks", "20", "--json")
    metrics = json.loads(result.stdout)
    assert metrics["em"]["value"] == metrics["format"]["value"] == 1


def test_commands_of_a_retriever() -> None:
    check, play, evaluate = scaffold("retriever", "fuzzy_words")
    ensure_good(check)
    typed = "s library\na no\n"
    assert "<information>Doc 1" in searchrl(play, "--index", "0", typed=typed).stdout
    result = searchrl(evaluate, "--num-tasks", "20", "--json")
    assert json.loads(result.stdout)["em"]["value"] > 0.9
    refused = searchrl(evaluate, "--set", "retriever.size=0")
    assert refused.exit_code == 2 and "size" in refused.output


@pytest.mark.slow
def test_commands_of_a_tracker() -> None:
    check, command = scaffold("tracker", "csv_file")
    ensure_good(check)
    run = train(command, "run")
    lines = (run.path / "metrics.csv").read_text("utf-8").splitlines()
    assert lines[0].startswith("step,phase,metric,value")
    assert any(line.startswith("1,train,reward,") for line in lines)


@pytest.mark.slow
def test_commands_of_an_algorithm() -> None:
    check, command = scaffold("algorithm", "cut_grpo")
    ensure_good(check)
    run = train(command, "run")
    assert run.config.algorithm.name == "cut_grpo"
    assert any(row["phase"] == "train" for row in run.metrics)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_package_can_be_installed(folder: Path) -> None:
    """Built and installed by pip, it is there without --plugin, and its version is known."""
    assert searchrl("new env my-capitals --package").exit_code == 0
    target = folder / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target)]
    subprocess.run([*pip, "./searchrl-my-capitals"], check=True)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(REPO), str(target)))}
    command = [sys.executable, "-m", "searchrl"]

    def said(*words: str) -> dict[str, Any]:
        done = subprocess.run([*command, *words, "--json"], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    (plugin,) = [p for p in said("plugins")["plugins"] if p["plugin"] == "searchrl-my-capitals"]
    assert (plugin["version"], plugin["names"]) == ("0.1.0", {"env": ["my-capitals"]})
    figures = said("eval", "--env", "my-capitals", "--policy", "scripted")
    assert figures["em"]["value"] == 1
