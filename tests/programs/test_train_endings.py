"""How training ends early: whoever raises, what is finished is kept and the way on is said."""

import errno
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from train_toy import TOY_PLUGIN, Crash, assert_same_run, settings

from searchrl.engine.learning.checkpoint import list_checkpoints, read_state
from searchrl.engine.rollout import rollout as rollout_module
from searchrl.errors import GenerationFailure, PluginError
from searchrl.programs.train import train
from searchrl.run_folder import Run, RunWriter
from searchrl.screen.observer import Observer
from searchrl.trackers.rows import read_rows

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("threads_restored")]


class TestNothingFinishedIsLost:
    """Whoever raises: `checkpoint.every` is 100, so only the way out can have kept the steps."""

    def run_into(
        self, error: type[BaseException], config: dict[str, Any], **more: Any
    ) -> tuple[BaseException, list[str]]:
        heard = Crash()
        with pytest.raises(error) as caught:
            train(config, observer=more.pop("observer", heard), **more)
        return caught.value, heard.notes

    def config(self, micro_model: Path, tmp_path: Path, **more: Any) -> dict[str, Any]:
        return settings(micro_model, tmp_path / "run", checkpoint={"every": 100}, **more)

    def test_generation_that_fails(
        self, whole_run: Run, micro_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        real, steps = rollout_module.RolloutDriver.run, []

        def run(driver: Any, requests: Any, **more: Any) -> Any:
            steps.append(requests[0].split)
            if steps.count("train") == 4:  # the start-up checks play once
                raise GenerationFailure("the sampler is gone")
            return real(driver, requests, **more)

        with monkeypatch.context() as patch:
            patch.setattr(rollout_module.RolloutDriver, "run", run)
            config = self.config(micro_model, tmp_path)
            error, notes = self.run_into(GenerationFailure, config)
        assert error.__notes__ == notes[-1:] and f"--resume {tmp_path / 'run'}" in notes[-1]
        assert read_state(list_checkpoints(tmp_path / "run")[-1])["step"] == 2
        assert_same_run(whole_run, train(resume=tmp_path / "run"))

    @pytest.mark.parametrize("failing", ["log", "write_rollouts"])
    def test_step_whose_record_fails_is_done_again(
        self, whole_run: Run, micro_model: Path, tmp_path: Path, monkeypatch: Any, failing: str
    ):
        """Its weights are not kept: saved as any step, its row would be lost or it done twice."""
        real = getattr(RunWriter, failing)

        def fail(writer: RunWriter, *args: Any, **more: Any) -> None:
            if args[0] == "step_000005" or (args[0] == 5 and args[2] == "train"):
                raise OSError(errno.ENOSPC, "no space left")
            real(writer, *args, **more)

        with monkeypatch.context() as patch:
            patch.setattr(RunWriter, failing, fail)
            _, notes = self.run_into(OSError, self.config(micro_model, tmp_path))
        # Step 3 has the checkpoint of the best evaluation, or none is left of it.
        assert "step 5 is not recorded, so its weights are not kept" in notes[-1]
        assert read_state(list_checkpoints(tmp_path / "run")[-1])["step"] < 5
        assert_same_run(whole_run, train(resume=tmp_path / "run"))

    @pytest.mark.parametrize("fault", ["log", "close", "exit"])
    def test_tracker_that_raises_is_named(self, micro_model: Path, tmp_path: Path, fault: str):
        plugin = tmp_path / "broken_tracker.py"
        plugin.write_text(BROKEN_TRACKER)
        config = self.config(micro_model, tmp_path)
        config |= {
            "plugins": [str(TOY_PLUGIN), str(plugin)],
            "log": {"trackers": [{"name": "broken", "fault": fault}]},
        }
        error, notes = self.run_into(PluginError, config)
        where = {"log": "log(2, …, 'train'): KeyError", "close": "close(): KeyError"}
        assert "plugin broken_tracker" in str(error) and "tracker 'broken'" in str(error)
        assert where.get(fault, "log(2, …, 'train'): SystemExit") in str(error)
        step = 6 if fault == "close" else 2
        assert read_state(list_checkpoints(tmp_path / "run")[-1])["step"] == step
        if fault == "close":
            assert Run.open(tmp_path / "run").summary["steps"] == 6  # it was finished by then
        else:
            assert notes[-1].startswith("everything up to step 2 is kept; continue with")


BROKEN_TRACKER = """
from searchrl import hookimpl


class Broken:
    def __init__(self, run_dir, fault):
        self.fault = fault

    def log(self, step, metrics, phase):
        if step == 2 and self.fault == "log":
            raise KeyError("no such board")
        if step == 2 and self.fault == "exit":
            raise SystemExit(3)

    def close(self):
        if self.fault == "close":
            raise KeyError("no such board")


@hookimpl
def register_trackers(register):
    register("broken", Broken)
"""


def test_after_ctrl_c_in_an_evaluation_a_tracker_has_every_row_once(
    micro_model: Path, tmp_path: Path
):
    """The evaluation comes first on resume: it must not take the row of its step with it."""

    class Stopping(Observer):
        def phase(self, name: str, done: int, total: int) -> None:
            if name == "evaluate":
                os.kill(os.getpid(), signal.SIGINT)

    log = {"trackers": ["jsonl"]}
    with pytest.raises(KeyboardInterrupt):
        train(settings(micro_model, tmp_path / "run", log=log), observer=Stopping())
    run = train(resume=tmp_path / "run")
    rows = [(r["step"], r["phase"]) for r in read_rows(run.path / "tracker.jsonl")]
    assert rows == [
        (1, "train"), (2, "train"), (3, "train"), (3, "eval"), (4, "train"), (5, "train"),
        (6, "train"), (6, "eval"),
    ]  # fmt: skip
