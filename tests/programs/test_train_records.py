"""What a run stores: its model, every trajectory in order, metrics per task, stages."""

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from train_toy import TOY_PLUGIN, Crash, PowerCut, assert_same_run, settings

from searchrl.engine.model.loading import DEFAULT_MODEL
from searchrl.programs.setup.planning import plan_run
from searchrl.programs.train import train
from searchrl.run_folder import Run, RunWriter
from searchrl.trackers.rows import read_rows

pytestmark = pytest.mark.usefixtures("threads_restored")


def test_only_the_newest_files_of_steps_stay(micro_model: Path, tmp_path: Path):
    log = {"max_rollout_files": 2}
    evaluation = {"every": 1, "forced": True}
    run = train(settings(micro_model, tmp_path / "run", log=log, eval=evaluation, max_steps=3))
    names = sorted(file.name.split(".")[0] for file in (run.path / "rollouts").iterdir())
    # What is forced is played only where an episode did not search by itself.
    assert [name for name in names if "forced" not in name] == [
        "eval_after", "eval_before", "eval_during_000002", "eval_during_000003",
        "step_000002", "step_000003",
    ]  # fmt: skip


def test_row_torn_in_the_middle_of_a_character_is_left_out(whole_run: Run, tmp_path: Path):
    """A kill does not ask where a character ends; the run could not be resumed at all."""
    run = Run(Path(shutil.copytree(whole_run.path, tmp_path / "run")))
    file = run.path / "metrics.jsonl"
    file.write_bytes(file.read_bytes() + '{"step": 7, "phase": "图'.encode()[:-1])
    assert run.metrics == whole_run.metrics
    RunWriter.reopen(run.path, 6)
    assert run.metrics == whole_run.metrics and file.read_bytes().endswith(b"\n")


class TestStoredModel:
    """A run that was `auto` is the same run where `auto` would be another model."""

    @pytest.mark.parametrize(("device", "name"), [("cpu", "tiny"), ("cuda", DEFAULT_MODEL)])
    def test_auto_is_stored_as_what_it_became(
        self, monkeypatch: pytest.MonkeyPatch, device: str, name: str
    ):
        from searchrl.engine.model import loading
        from searchrl.programs.setup import planning

        monkeypatch.setattr(loading, "is_stored", lambda name: False)
        with monkeypatch.context() as patch:
            patch.setattr(planning, "resolve_device", lambda _: torch.device(device))
            config = plan_run({"env": "regulations"}).config
        assert config.model.name == name
        other = {"cpu": "cuda", "cuda": "cpu"}[device]
        monkeypatch.setattr(planning, "resolve_device", lambda _: torch.device(other))
        again = plan_run(config.to_dict())
        assert again.config == config and again.model.is_tiny == (name == "tiny")

    def test_init_from_goes_on_deciding(self, whole_run: Run):
        plan = plan_run({"init_from": str(whole_run.path)})
        assert plan.config.model.name == "auto"
        assert plan.model.path == str(whole_run.path / "policy")


def test_two_tasks_on_one_env_are_measured_apart(micro_model: Path, tmp_path: Path):
    """Pooled under the env's name, the task that fails would hide behind the one that works."""
    config = settings(micro_model, tmp_path / "run", max_steps=1, rollout={"prompts_per_step": 6})
    config["tasks"].append(config["tasks"][0] | {"reward": "declines"})
    run = train(config)
    (row,) = (row for row in run.metrics if row["phase"] == "train")
    (before,) = (row for row in run.metrics if row["phase"] == "before")
    for metrics in (row, before):
        assert (metrics["toy.0/unscored"], metrics["toy.1/unscored"]) == (0.0, 1.0)
        assert 0 < metrics["unscored"] < 1 and "toy/unscored" not in metrics


STEPS = 6


def curriculum(model: Path, run_dir: Path, **more: Any) -> dict[str, Any]:
    """A task that gives way to another, whose difficulty changes at step 2."""
    plain = settings(model, run_dir)["tasks"][0]
    levels = {"env": {"name": "toy-levels", "max_turns": 3}, "difficulty": {0: "easy", 2: "hard"}}
    reward = {0: "parity", 5: "0.5*parity"}
    tasks = [
        plain | {"weight": {0: 1.0, 3: 0.3}},
        plain | levels | {"weight": {0: 0.0, 3: 1.0}, "reward": reward},
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
    assert weights == [[1.0, 0.0]] * 3 + [[0.3, 1.0]] * 3
    stages = [row["toy-levels/difficulty_stage"]["value"] for row in rows]
    assert stages == [1] * 2 + [2] * 4
    assert [row["toy-levels/reward_stage"]["value"] for row in rows] == [1] * 5 + [2]
    assert all("toy-levels/reward" not in row for row in rows[:3])
    assert all("toy-levels/reward" in row for row in rows[3:])
    for phase in ("before", "train", "during", "after"):  # the tasks of evaluations do not change
        played = [row for row in whole.rollouts(phase) if row["env"] == "toy-levels"]
        assert played and {row["task"]["difficulty"] for row in played} == {"hard"}


def test_a_resumed_run_is_the_uninterrupted_one(
    whole: Run, micro_model: Path, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    with pytest.raises(PowerCut):
        train(curriculum(micro_model, path), observer=Crash(2))
    observer = Crash()
    run = train(resume=path, observer=observer)
    assert_same_run(run, whole, at_least=1)
    assert "step 4: tasks.0.weight is 0.3 from here on" in observer.notes


PLUGIN = """
from dataclasses import replace

from searchrl import hookimpl
from searchrl.algorithms.builtin import make_grpo


def make(factor):
    base = make_grpo()

    def loss(columns, settings):
        value, stats = base.loss(columns, settings)
        return value * factor, replace(stats, loss=float("nan"))

    return replace(base, loss=loss)


@hookimpl
def register_algorithms(register):
    register("shown", lambda: make(1.0))  # no number is shown; the gradient is that of GRPO
    register("real", lambda: make(float("inf")))
"""


@pytest.mark.parametrize("algorithm", ["shown", "real"])
def test_a_loss_that_is_not_finite_is_absent_and_counted(
    micro_model: Path, tmp_path: Path, algorithm: str
):
    """It ended the run with `Out of range float values are not JSON compliant`."""
    plugin = tmp_path / "losses.py"
    plugin.write_text(PLUGIN)
    more = {"algorithm": {"name": algorithm, "beta": 0.0}, "max_steps": 2}
    more |= {"plugins": [str(TOY_PLUGIN), str(plugin)], "log": {"trackers": ["jsonl"]}}
    run = train(settings(micro_model, tmp_path / "run", eval={"every": 0}, **more))
    for name in ("metrics.jsonl", "tracker.jsonl"):
        rows = [row for row in read_rows(run.path / name) if row["phase"] == "train"]
        trained = [row["metrics"] for row in rows if row["metrics"]["num_rollouts"]["value"]]
        assert len(rows) == 2 and trained
        for metrics in trained:
            assert "loss" not in metrics and metrics["nonfinite_figures"]["value"] >= 1
            assert metrics["skipped_steps"]["value"] == (algorithm == "real")
            assert all(math.isfinite(metric["value"]) for metric in metrics.values())
