"""What must stay light: help, listing, playing and scripted evaluation never import torch."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]


def run(*args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "searchrl", *args],
        cwd=REPO,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(REPO)},
    )


def imported(stderr: str) -> set[str]:
    lines = [line for line in stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}


@pytest.mark.parametrize(
    ("args", "stdin"),
    [
        (["--help"], ""),
        (["train", "--help"], ""),
        (["plugins"], ""),
        (["play", "--env", "regulations", "--index", "3"], "s library hours\na 16:45\n"),
        (["eval", "--env", "regulations", "--policy", "scripted", "--num-tasks", "3"], ""),
    ],
    ids=["help", "train-help", "plugins", "play", "eval-scripted"],
)
def test_command_never_imports_torch(args: list[str], stdin: str) -> None:
    result = run(*args, stdin=stdin)
    assert result.returncode == 0, result.stderr
    assert "searchrl" in imported(result.stderr)
    assert not imported(result.stderr) & {"torch", "transformers", "peft"}


def test_help_starts_within_the_budget() -> None:
    started = time.perf_counter()
    result = subprocess.run(
        [sys.executable, "-m", "searchrl", "--help"],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0
    # The budget is 1 s; the machine that runs the tests may be busy with others.
    assert time.perf_counter() - started < 2.0
    for command in ("train", "sft", "eval", "ask", "play", "plugins"):
        assert f"\n  {command} " in result.stdout
