"""`searchrl bench`: real steps, honest arithmetic, nothing left behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from searchrl.cli import main

SMALL = [
    "--set=rollout.prompts_per_step=2",
    "--set=rollout.max_turn_tokens=16",
    "--group-size=2",
]


def test_figures_agree_with_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    args = ["bench", "--env", "regulations", "--model", "tiny", *SMALL, "--steps", "2", "--json"]
    result = CliRunner().invoke(main, args, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["num_steps"] == 2
    assert found["rollouts_per_step"] == 4
    assert found["steps_per_hour"] == pytest.approx(3600 / found["step_s"])
    assert found["rollouts_per_s"] == pytest.approx(4 / found["step_s"])
    assert 0 < found["slot_use"] <= 1
    assert found["peak_memory_bytes"] > 1 << 26
    assert not list(tmp_path.iterdir()), "bench writes nothing"


def test_the_table_names_every_figure() -> None:
    args = ["bench", "--env", "regulations", "--model", "tiny", *SMALL, "--steps", "1"]
    result = CliRunner().invoke(main, args, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    for name in ("rollouts/s", "steps/h", "s per step", "slot use", "peak memory"):
        assert name in result.stdout


def test_zero_steps_are_refused_with_what_is_expected() -> None:
    result = CliRunner().invoke(main, ["bench", "--steps", "0"])
    assert result.exit_code == 2
    assert "x>=1" in result.output


def test_a_scripted_policy_has_nothing_to_measure() -> None:
    result = CliRunner().invoke(main, ["bench", "--env", "regulations", "--policy", "scripted"])
    assert result.exit_code == 2
    assert "trains a model" in result.output
