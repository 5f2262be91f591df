"""`searchrl eval --against`: two policies on the same tasks."""

import json
from pathlib import Path

import pytest
from command_line import call, complaint, succeed

from searchrl.run_folder import Run

FIRST = ("eval", "--policy", "scripted", "--num-tasks", "24")


@pytest.mark.thorough
def test_a_paired_comparison_of_two_policies(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = [*FIRST, "--against", "scripted:passive", "--run-dir", folder]
    found = json.loads(succeed(*words, "--json").stdout)
    other = json.loads(succeed(*FIRST[:2], "scripted:passive", *FIRST[3:], "--json").stdout)
    assert found["against"] == {"policy": "scripted:passive", **other}
    em = found["paired"]["em"]
    assert em["value"] == pytest.approx(found["em"]["value"] - other["em"]["value"])
    assert em["n"] == 24 and em["test"] == "McNemar, exact" and em["p"] < 1e-6
    assert 0 < em["low"] < em["value"] <= em["high"] <= 1
    assert found["paired"]["searches"]["test"] == "sign flips"
    rows = {row["phase"] for row in Run.open(folder).rollouts()}
    assert rows == {"eval", "eval_against"}
    shown = succeed(*FIRST, "--against", "scripted:passive").stdout
    assert "scripted against scripted:passive" in shown
    assert "scripted minus scripted:passive, task by task" in shown
    assert "McNemar, exact" in shown
    # The episodes of a script are played by that script again.
    again = json.loads(succeed(*FIRST, "--against", folder, "--json").stdout)
    assert again["against"]["policy"] == "scripted"
    assert {one["value"] for one in again["paired"].values()} == {0.0}


def test_two_checkpoints_of_a_run_are_compared(micro_run: Path) -> None:
    first, last = (micro_run / "checkpoints" / f"step_00000{step}" for step in (0, 1))
    found = json.loads(succeed("eval", last, "--against", first, "--json").stdout)
    summary = Run.open(micro_run).summary
    assert found.items() >= summary["after"].items()
    assert found["against"].items() >= summary["before"].items()
    assert found["paired"]["em"]["n"] == summary["after"]["em"]["n"]


def test_a_model_is_compared_on_the_tasks_of_a_run(micro_run: Path, micro_model: Path) -> None:
    found = json.loads(succeed("eval", micro_run, "--against", micro_model, "--json").stdout)
    assert found["paired"]["em"]["n"] == found["em"]["n"] == found["against"]["em"]["n"]
    early = call(*FIRST, "--against", "no-such-model-anywhere")
    assert early.exit_code == 2 and "24 episodes" not in early.output, "found out before play"
    assert "no scripted policy 'nobody'" in complaint(*FIRST, "--against", "scripted:nobody")
