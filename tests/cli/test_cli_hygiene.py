"""What must stay light: programs that need no model import neither torch nor transformers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

REPO = Path(__file__).resolve().parents[2]


def run(folder: Path, *args: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, *args],
        cwd=folder,
        input=typed,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(REPO)},
    )
    assert done.returncode == 0, done.stderr
    return done


def imported(stderr: str) -> set[str]:
    lines = [line for line in stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


@pytest.mark.parametrize(
    "command",
    [
        "--help",
        "train --help",
        "plugins",
        "check corpus",
        "config optim.lr",
        "new env capitals",
        "play --env regulations --index 3",
        "eval --env regulations --policy scripted --num-tasks 3",
    ],
)
def test_command_never_imports_torch(command: str, tmp_path: Path) -> None:
    typed = "s library hours\na 16:45\n" if command.startswith("play") else ""
    program = ("-X", "importtime", "-m", "searchrl")
    found = imported(run(tmp_path, *program, *command.split(), typed=typed).stderr)
    assert "searchrl.cli" in found and not found & {"torch", "transformers", "peft"}
    if command.startswith("check"):
        assert "searchrl.engine.rollout.rollout" not in found


def test_help_starts_within_the_budget(tmp_path: Path) -> None:
    started = time.perf_counter()
    result = run(tmp_path, "-m", "searchrl", "--help")
    # The budget is 1 s; the machine that runs the tests may be busy with others.
    assert time.perf_counter() - started < 2.0
    for command in ("train", "sft", "eval", "ask", "play", "plugins"):
        assert f"\n  {command} " in result.stdout
