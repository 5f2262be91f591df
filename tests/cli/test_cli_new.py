"""`searchrl new` at a terminal: what it says, and that everything it says next really runs."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from unittest.mock import ANY

import pytest
from command_line import complaint, succeed

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("own_folder")]


def scaffold(kind: str, name: str) -> list[str]:
    """Write a plugin; returns the commands to type next, without the word `searchrl`."""
    told = json.loads(succeed("new", kind, name, "--json").stdout)
    assert told["files"] == [f"{name}.py"] and Path(f"{name}.py").is_file()
    assert told["next"][0] == f"pytest {name}.py"
    programs, commands = zip(*(line.split(" ", 1) for line in told["next"][1:]), strict=True)
    assert set(programs) == {"searchrl"}
    return list(commands)


def run(command: str, *words: object, typed: str = "") -> str:
    """What a command of the scaffold prints; it must succeed."""
    return succeed(*shlex.split(command), *words, typed=typed).stdout


def test_it_says_what_it_wrote_and_what_comes_next() -> None:
    assert run("new env capitals").splitlines() == [
        "Wrote:  capitals.py",
        "Next:   pytest capitals.py",
        "        searchrl check capitals.py",
        "        searchrl play --plugin capitals.py --env capitals",
        "        searchrl eval --plugin capitals.py --env capitals --policy scripted",
        "        searchrl train --plugin capitals.py --env capitals "
        '--reward "0.2*format+em" --model tiny --max-steps 3',
    ]
    assert "there already" in complaint("new", "env", "capitals")
    run("new env capitals --force")


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("envs", "capitals", "'envs' is not one of 'env'"),
        ("env", "3rd", "is no name for a plugin"),
        ("env", "json", "in place of the module 'json'"),
    ],
)
def test_mistakes_leave_nothing(kind: str, name: str, message: str, own_folder: Path) -> None:
    assert message in complaint("new", kind, name) and not list(own_folder.iterdir())


# --- the commands it names, one kind after the other ---------------------------------------
def test_first_minutes_of_an_environment() -> None:
    """The path of the docs up to the training; the lines that `new` prints."""
    check, play, evaluate, _ = scaffold("env", "capitals")
    run(check)
    played = run(play, "--index", 0, typed="s Belland\na Highwick\n")
    assert "em 1" in played
    evaluated = succeed(*shlex.split(evaluate), "--json")
    assert json.loads(evaluated.stdout)["em"] == {"value": 1.0, "low": ANY, "high": 1.0, "n": 5}


def test_commands_of_a_reward() -> None:
    check, evaluate, _ = scaffold("reward", "was_read")
    run(check)
    metrics = json.loads(run(evaluate, "--num-tasks", 20, "--json"))
    # "not regulated" is an answer that stands nowhere, and is worth 0.5.
    assert 1 + 0.5 < metrics["reward"]["value"] < 1 + metrics["em"]["value"]


def test_commands_of_a_retriever() -> None:
    check, play, evaluate = scaffold("retriever", "fuzzy_words")
    run(check)
    assert "<information>Doc 1" in run(play, "--index", 0, typed="s library\na no\n")
    metrics = json.loads(run(evaluate, "--num-tasks", 20, "--json"))
    assert metrics["em"]["value"] > 0.9
    assert "size" in complaint(*shlex.split(evaluate), "--set", "retriever.size=0")
