"""`searchrl bench`: real steps, honest arithmetic, nothing left behind."""

import json
from pathlib import Path

import pytest
from command_line import succeed

pytestmark = pytest.mark.thorough

BENCH = (
    *("bench", "--env", "regulations", "--model", "tiny", "--group-size", 2),
    *("--set", "rollout.prompts_per_step=2", "--set", "rollout.max_turn_tokens=16"),
)


def test_figures_agree_with_each_other_and_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = succeed(*BENCH, "--steps", 2, "--json")
    found = json.loads(result.stdout)
    assert found["num_steps"] == 2 and found["rollouts_per_step"] == 4
    assert found["steps_per_hour"] == pytest.approx(3600 / found["step_s"])
    assert found["rollouts_per_s"] == pytest.approx(4 / found["step_s"])
    assert 0 < found["slot_use"] <= 1 and found["peak_memory_bytes"] > 1 << 26
    assert not list(tmp_path.iterdir()), "bench writes nothing"
    shown = succeed(*BENCH, "--steps", 1).stdout
    for name in ("rollouts per s", "steps per hour", "step s", "peak memory", "slot use"):
        assert name in shown
