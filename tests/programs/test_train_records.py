"""What a run stores: the model it became, every trajectory in order, metrics per task."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from train_toy import settings

from searchrl.core.episode import SEARCH
from searchrl.engine.model.loading import DEFAULT_MODEL
from searchrl.programs.setup.planning import plan_run
from searchrl.programs.train import train
from searchrl.protocols import ThinkSearchAnswer
from searchrl.run_folder import Run, RunWriter

pytestmark = pytest.mark.usefixtures("threads_restored")


def test_every_evaluation_leaves_its_trajectories_oldest_first(micro_model: Path, tmp_path: Path):
    protocol = {"name": "think-search-answer", "instruction": ""}
    task = {"protocol": protocol, "metrics": ["format", "em"]}
    config = settings(
        micro_model, tmp_path / "run", task=task, eval={"forced": True, "every": 2}, max_steps=4
    )
    run = train(config)
    seen = list(dict.fromkeys((row["phase"], row["step"]) for row in run.rollouts()))
    assert seen == [
        ("before", 0), ("before_forced", 0), ("train", 1), ("train", 2), ("during", 2),
        ("during_forced", 2), ("train", 3), ("train", 4), ("during", 4), ("during_forced", 4),
        ("after", 4), ("after_forced", 4),
    ]  # fmt: skip
    for row in run.rollouts("train"):  # one number, in ids and in names of files, too
        assert row["rollout_id"].startswith(f"step{row['step']:06d}/")
        assert (run.path / "rollouts" / f"step_{row['step']:06d}.jsonl.gz").is_file()
    opening = ThinkSearchAnswer().opening(SEARCH)
    for phase, count in (("before_forced", 2), ("during_forced", 4)):
        forced = list(run.rollouts(phase))
        assert len(forced) == count, phase
        assert all(r["turns"][0]["text"].startswith(opening) for r in forced), phase
    assert {row["phase"] for row in run.rollouts("during")} == {"during"}
    measured = {row["step"] for row in run.metrics if "em_forced" in row}
    assert measured == {0, 2, 4}


def test_only_the_newest_files_of_steps_stay(micro_model: Path, tmp_path: Path):
    log = {"max_rollout_files": 2}
    evaluation = {"every": 1, "forced": True}
    run = train(settings(micro_model, tmp_path / "run", log=log, eval=evaluation))
    names = sorted(file.name.split(".")[0] for file in (run.path / "rollouts").iterdir())
    assert names == [
        "eval_after", "eval_after_forced", "eval_before", "eval_before_forced",
        "eval_during_000005", "eval_during_000006", "eval_during_forced_000005",
        "eval_during_forced_000006", "step_000005", "step_000006",
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
        # Resumed, or repeated with --config, on the other kind of machine:
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
