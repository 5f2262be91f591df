"""The training loop: reproducible, exact to resume, stopped by failures without losing a step."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from train_toy import (
    Crash,
    PowerCut,
    assert_same_run,
    assert_same_weights,
    settings,
    weights_of,
)

from searchrl.core.episode import Failure, FailureKind
from searchrl.engine.learning.checkpoint import list_checkpoints, read_state
from searchrl.engine.rollout import rollout
from searchrl.errors import FailureLimitError
from searchrl.programs.train import train
from searchrl.rewards.scorer import ScoredEpisode
from searchrl.run_folder import Run
from searchrl.screen.observer import Observer

pytestmark = pytest.mark.usefixtures("threads_restored")


class TestReproducible:
    def test_two_runs_of_one_seed_are_identical(
        self, whole_run: Run, micro_model: Path, tmp_path: Path
    ):
        assert_same_run(whole_run, train(settings(micro_model, tmp_path / "again")))

    def test_the_run_did_train(self, whole_run: Run, micro_model: Path):
        # Or all comparisons here would be of runs that do nothing.
        rows = [row for row in whole_run.metrics if row["phase"] == "train"]
        assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
        assert sum(row.get("grad_norm", 0) > 0 for row in rows) >= 4
        before, after = weights_of(micro_model), weights_of(whole_run.path / "policy")
        assert any(not torch.equal(before[name], after[name]) for name in before)
        phases = [(row["phase"], row["step"]) for row in whole_run.metrics]
        assert ("during", 3) in phases and phases[0] == ("before", 0) and phases[-1] == ("after", 6)


@pytest.mark.parametrize("key", ["max_sampled_tokens", "max_episodes"])
def test_a_budget_ends_with_the_step_that_reaches_it(micro_model: Path, tmp_path: Path, key: str):
    # A step has six episodes, and each samples at least a token.
    run = train(settings(micro_model, tmp_path / "run", eval={"every": 0}, **{key: 7}))
    rows = {row["step"]: row for row in run.metrics if row["phase"] == "train"}
    counts = [6, 12] if key == "max_episodes" else [rows[step]["sampled_tokens"] for step in rows]
    assert len(rows) == len(counts) and counts[-1] >= 7 and all(one < 7 for one in counts[:-1])


@pytest.mark.thorough
class TestResume:
    @pytest.mark.parametrize("label", ["before", "during", "after"])
    def test_ended_in_an_evaluation_it_is_measured_once(
        self, whole_run: Run, micro_model: Path, tmp_path: Path, label: str
    ):
        class Fatal(Observer):
            def evaluation(self, name: str, step: int, metrics: Mapping[str, Any]) -> None:
                if name == label:
                    raise RuntimeError("no terminal")

        with pytest.raises(RuntimeError, match="no terminal"):
            train(settings(micro_model, tmp_path / "run"), observer=Fatal())
        assert_same_run(whole_run, train(resume=tmp_path / "run"))

    def test_lora_and_kl_resume_exactly_too(self, micro_model: Path, tmp_path: Path):
        model = {"adapter": "lora", "lora_r": 4}
        whole = train(settings(micro_model, tmp_path / "whole", model=model))
        with pytest.raises(PowerCut):
            train(settings(micro_model, tmp_path / "run", model=model), observer=Crash(3))
        assert_same_run(whole, train(resume=tmp_path / "run"))
        # The reference is still the starting policy: KL goes on growing from where it was.
        kl = [row["kl"] for row in whole.metrics if row["phase"] == "train"]
        assert kl[0] == pytest.approx(0, abs=1e-9) and kl[-1] > 0


def stamps(folder: Path) -> dict[Path, tuple[int, int]]:
    """When each file of a folder was written, and its inode: which file it is."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in files}


class TestFinished:
    def test_a_finished_run_is_left_as_it_is_and_the_way_on_is_said(self, whole_run: Run):
        """It lost its summary, and a kill in the evaluation that was made again left it without."""
        before, observer = stamps(whole_run.path), Crash()
        assert train(resume=whole_run.path, observer=observer).path == whole_run.path
        assert stamps(whole_run.path) == before
        (note,) = observer.notes
        assert "step 6 of 6" in note and f"--init-from {whole_run.path}" in note


class TestCheckpoints:
    def test_newest_and_best_are_kept(self, micro_model: Path, tmp_path: Path):
        more = {"eval": {"every": 1}, "checkpoint": {"every": 1, "keep_last": 1}}
        run = train(settings(micro_model, tmp_path / "run", **more))
        names = [folder.name for folder in list_checkpoints(run.path)]
        best = run.summary["best"]["step"]
        assert names == sorted({f"step_{best:06d}", "step_000006"})
        during = {r["step"]: r["reward"] for r in run.metrics if r["phase"] == "during"}
        assert during[best] == max(during.values())
        reward = run.summary["best"]["reward"]
        assert reward["value"] == during[best] and reward["n"] == 2
        assert 0 <= reward["low"] < reward["value"] + 1e-9 < reward["high"] + 1e-6 <= 1 + 2e-6
        assert read_state(list_checkpoints(run.path)[-1])["step"] == 6

    @pytest.mark.parametrize("kind", ["checkpoint", "adapter"])
    def test_init_from(self, whole_run: Run, micro_model: Path, tmp_path: Path, kind: str):
        start = whole_run.path / "checkpoints" / "step_000006"
        model: dict[str, Any] = {"adapter": "full"}
        if kind == "adapter":
            model = {"adapter": "lora", "lora_r": 4}
            start = train(settings(micro_model, tmp_path / "lora", model=model, max_steps=1)).path
        more = {"model": model | {"name": "auto"}, "init_from": str(start), "max_steps": 0}
        later = train(settings(micro_model, tmp_path / "later", **more))
        origin = start if kind == "adapter" else whole_run.path
        assert_same_weights(origin / "policy", later.path / "policy")


class Noting(Observer):
    def __init__(self) -> None:
        self.phases: list[str] = []

    def phase(self, name: str, done: int, total: int) -> None:
        self.phases.append(name)


@pytest.mark.thorough
class TestFailures:
    @pytest.mark.parametrize(
        ("phase", "where", "steps_done", "num_failed"),
        [
            ("evaluate (before)", "the evaluation before (step 0)", 0, 2),
            ("sample", "step 3", 2, 6),
            ("evaluate", "the evaluation during training (step 3)", 3, 2),
            ("evaluate (after)", "the evaluation after (step 6)", 6, 2),
        ],
    )
    def test_too_many_stop_training_with_traceback_and_checkpoint(
        self, whole_run: Run, micro_model: Path, tmp_path: Path, monkeypatch: Any,
        phase: str, where: str, steps_done: int, num_failed: int,
    ):  # fmt: skip
        """Figures of the few episodes that were left would pass for those of all."""
        observer = Noting()
        real = rollout.score_together

        def score_together(work: Any, groups: Any) -> Any:
            phases = observer.phases
            if phases[-1:] == [phase] and phases.count("update") == steps_done:
                failure = Failure(FailureKind.SCORING, "reward 'x'", "the judge is gone", "trace")
                return [ScoredEpisode(None, unscored="x", failure=failure) for _ in work]
            return real(work, groups)

        # checkpoint.every is 100: without a checkpoint here, the finished steps would be lost.
        config = settings(micro_model, tmp_path / "run", checkpoint={"every": 100})
        with monkeypatch.context() as patch, pytest.raises(FailureLimitError) as caught:
            patch.setattr(rollout, "score_together", score_together)
            train(config, observer=observer)
        text = str(caught.value)
        assert f"stopped at {where}: {num_failed} of {num_failed} episodes failed" in text
        assert f"searchrl train --resume {tmp_path / 'run'}" in text
        (file,) = (tmp_path / "run" / "failures").iterdir()
        assert str(file) in text and "the judge is gone" in file.read_text()
        assert read_state(list_checkpoints(tmp_path / "run")[-1])["step"] == steps_done
        assert_same_run(whole_run, train(resume=tmp_path / "run"))

    def test_below_the_limit_they_are_left_out_and_counted(self, micro_model: Path, tmp_path: Path):
        task = {"env": {"name": "toy-faulty", "fault": "step-raises", "every": 2}}
        run = train(
            settings(micro_model, tmp_path / "run", task=task, rollout={"max_failure_frac": 1.0})
        )
        rows = [row for row in run.metrics if row["phase"] == "train"]
        assert len(rows) == 6 and any(row["failed"] > 0 for row in rows)
        for row in rows:
            assert row["num_unscored"] == pytest.approx(row["failed"] * 6)
        failed = [row for row in run.rollouts("train") if row["failure"] is not None]
        assert failed and all(row["reward"] is None for row in failed)
        assert all(row["advantage"] is None and row["ratio"] is None for row in failed)
