"""Training with a curriculum: what is drawn, logged and shown; a resumed run is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from train_toy import Crash, PowerCut, assert_same_run, settings

from searchrl.programs.train import train
from searchrl.run_folder import Run

pytestmark = pytest.mark.usefixtures("threads_restored")

STEPS = 9


def curriculum(model: Path, run_dir: Path, **more: Any) -> dict[str, Any]:
    """A task that gives way to another, whose difficulty changes at step 3."""
    plain = settings(model, run_dir)["tasks"][0]
    levels = {"env": {"name": "toy-levels", "max_turns": 3}, "difficulty": {0: "easy", 3: "hard"}}
    reward = {0: "parity", 8: "0.5*parity"}
    tasks = [
        plain | {"weight": {0: 1.0, 5: 0.3}},
        plain | levels | {"weight": {0: 0.0, 5: 1.0}, "reward": reward},
    ]
    own = {"rollout": {"prompts_per_step": 4}, "checkpoint": {"every": 1}, "max_steps": STEPS}
    return settings(model, run_dir, **(own | more)) | {"tasks": tasks}


@pytest.fixture(scope="module")
def whole(micro_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(curriculum(micro_model, tmp_path_factory.mktemp("curriculum") / "run"))


def train_rows(run: Run) -> list[dict[str, Any]]:
    return [row["metrics"] for row in run.metric_rows() if row["phase"] == "train"]


def test_what_is_drawn_and_logged(whole: Run) -> None:
    rows = train_rows(whole)
    weights = [[row[f"{env}/weight"]["value"] for env in ("toy", "toy-levels")] for row in rows]
    assert weights == [[1.0, 0.0]] * 5 + [[0.3, 1.0]] * 4
    stages = [row["toy-levels/difficulty_stage"]["value"] for row in rows]
    assert stages == [1] * 3 + [2] * 6
    assert [row["toy-levels/reward_stage"]["value"] for row in rows] == [1] * 8 + [2]
    assert all("toy-levels/reward" not in row for row in rows[:5])
    assert all("toy-levels/reward" in row for row in rows[5:])
    for phase in ("before", "train", "during", "after"):  # the tasks of evaluations do not change
        played = [row for row in whole.rollouts(phase) if row["env"] == "toy-levels"]
        assert played and {row["task"]["difficulty"] for row in played} == {"hard"}


def test_a_resumed_run_is_the_uninterrupted_one(
    whole: Run, micro_model: Path, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    with pytest.raises(PowerCut):
        train(curriculum(micro_model, path), observer=Crash(3))
    observer = Crash()
    run = train(resume=path, observer=observer)
    assert_same_run(run, whole, at_least=1)
    assert "step 6: tasks.0.weight is 0.3 from here on" in observer.notes
