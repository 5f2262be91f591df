"""`searchrl new` at a terminal: what it says; `test_cli_carry` runs what it says next."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from command_line import complaint, succeed

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("own_folder")]


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
