"""One process at a time works on a run, and signals end it as Ctrl-C does."""

import errno
import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from train_toy import Crash, assert_same_run, settings

from searchrl.errors import Stopped
from searchrl.programs.stopping import catching_signals
from searchrl.programs.train import train
from searchrl.run_folder import Run, holding
from searchrl.runs.listing import prune_checkpoints

pytestmark = pytest.mark.usefixtures("threads_restored")


class TestOneProcess:
    def test_prune_leaves_a_held_run_alone(self, whole_run: Run, tmp_path: Path):
        shutil.copytree(whole_run.path, tmp_path / "run")
        with holding(tmp_path / "run"):
            pruned = prune_checkpoints(Run.open(tmp_path / "run"), 1)
        assert pruned.removed == () and "is in use by another process" in pruned.reason

    def test_prune_makes_room_on_a_full_disk(
        self, whole_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        run = Run(tmp_path / "run")
        shutil.copytree(whole_run.path, run.path)

        def refuse(path: Path, data: bytes) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(Path, "write_bytes", refuse)
        pruned = prune_checkpoints(run, 1)
        assert pruned.removed and not pruned.reason


class Signalled(Crash):
    """Sends this process a signal, `times` times, when it sees step `at` finished."""

    def __init__(self, at: int, number: int, times: int = 1) -> None:
        super().__init__(at)
        self.number, self.times = number, times

    def step(self, step: int, max_steps: int, metrics: Mapping[str, Any]) -> None:
        if step == self.at:
            for _ in range(self.times):
                os.kill(os.getpid(), self.number)


@pytest.mark.usefixtures("unheard_signals")
class TestSignals:
    def test_nothing_finished_is_lost_and_the_way_on_is_said(
        self, whole_run: Run, micro_model: Path, tmp_path: Path
    ):
        """Sent twice: torchrun and batch systems tell the job and each of its steps."""
        observer = Signalled(5, signal.SIGTERM, times=2)
        config = settings(micro_model, tmp_path / "run", checkpoint={"every": 100})
        with pytest.raises(Stopped) as caught:
            train(config, observer=observer)
        assert caught.value.number == signal.SIGTERM
        assert observer.notes[-1] == str(caught.value)
        assert (
            "step 5" in observer.notes[-1] and f"--resume {tmp_path / 'run'}" in observer.notes[-1]
        )
        assert_same_run(whole_run, train(resume=tmp_path / "run"))

    def test_ignored_signal_stays_ignored(self):
        """`nohup searchrl train`."""
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with catching_signals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.is_requested
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN

    def test_terminal_that_is_gone_is_no_error_of_its_own(self):
        with pytest.raises(Stopped) as caught, catching_signals():
            os.kill(os.getpid(), signal.SIGHUP)
            raise OSError(5, "Input/output error")
        assert caught.value.number == signal.SIGHUP
        with pytest.raises(OSError, match="No space"), catching_signals():
            os.kill(os.getpid(), signal.SIGTERM)
            raise OSError(28, "No space left")
