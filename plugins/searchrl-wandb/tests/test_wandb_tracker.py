"""The `wandb` tracker: with a stand-in everywhere, with wandb itself where it is installed."""

from __future__ import annotations

import json
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import pytest
from searchrl_wandb.tracker import STATE_FILE, WandbTracker

from searchrl import ConfigError
from searchrl.contracts import Metric
from searchrl.testing import assert_conforms
from searchrl.testing.kinds.trackers import sample_log


def metric(value: float, **interval: float) -> Metric:
    return Metric(value=value, n=8, **interval)  # type: ignore[typeddict-item]


FINISHED: tuple[int, dict[str, float]] = (-1, {})
"""In place of a row: the end of a run."""


class FakeRun:
    def __init__(self, **wanted: Any) -> None:
        self.wanted = wanted
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.fault: Exception | None = None

    def log(self, values: dict[str, float], step: int) -> None:
        if self.fault is not None:
            raise self.fault
        self.rows.append((step, dict(values)))

    def finish(self) -> None:
        self.log(FINISHED[1], FINISHED[0])


class FakeWandb(types.ModuleType):
    """What the tracker uses of wandb."""

    def __init__(self) -> None:
        super().__init__("wandb")
        error = type("Error", (Exception,), {})
        comm = type("CommError", (error,), {})
        self.errors = types.SimpleNamespace(
            CommError=comm,
            AuthenticationError=type("AuthenticationError", (comm,), {}),
            UsageError=type("UsageError", (error,), {}),
        )
        self.Settings = lambda **settings: settings
        self.runs: list[FakeRun] = []
        self.refusals: dict[str | None, Exception] = {}

    def init(self, **wanted: Any) -> FakeRun:
        if wanted["mode"] in self.refusals:
            raise self.refusals[wanted["mode"]]
        self.runs.append(FakeRun(**wanted))
        return self.runs[-1]


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> FakeWandb:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return fake


def test_metrics_are_named_by_phase_and_intervals_stand_beside_them(
    wandb: FakeWandb, tmp_path: Path
) -> None:
    tracker = WandbTracker(tmp_path)
    tracker.log(1, {"reward": metric(0.5, low=0.25, high=0.875), "lr": metric(1e-4)}, "train")
    tracker.log(1, {"em": metric(0.5)}, "eval")
    tracker.close()
    (run,) = wandb.runs
    assert run.rows == [
        (1, {"train/reward": 0.5, "train/reward/low": 0.25, "train/reward/high": 0.875,
             "train/lr": 1e-4}),
        (1, {"eval/em": 0.5}), FINISHED,
    ]  # fmt: skip


def test_settings_and_what_decides_the_run_reach_wandb(wandb: FakeWandb, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.yaml").write_text("seed: 3\noptim: {lr: 0.1}\n")
    row = {"plugin": "mine", "version": "2", "origin": "file", "sha256": "ab", "names": {}}
    record = {"fingerprint": "f00", "command": ["secret"], "plugins": [row]}
    (folder / "provenance.json").write_text(json.dumps(record))
    WandbTracker(folder, "p", "team", "offline", None, ["a", "b"], "seeds")
    wanted = wandb.runs[0].wanted
    assert (wanted["project"], wanted["entity"], wanted["mode"]) == ("p", "team", "offline")
    assert (wanted["name"], wanted["tags"], wanted["group"]) == ("mine", ["a", "b"], "seeds")
    assert wanted["dir"] == str(folder)
    # Without a limit, the end of a run without network waits for ever.
    assert 0 < wanted["settings"]["finish_timeout"] < 300
    plugins = {"mine": {"version": "2", "origin": "file", "sha256": "ab"}}
    known = {"fingerprint": "f00", "plugins": plugins}
    assert wanted["config"] == {"seed": 3, "optim": {"lr": 0.1}, "searchrl": known}


def test_resumed_run_continues_the_same_run_and_repeats_no_step(
    wandb: FakeWandb, tmp_path: Path
) -> None:
    first = WandbTracker(tmp_path)
    for step in (1, 2, 3):
        first.log(step, {"reward": metric(0.1)}, "train")
    # Killed: never closed. What comes after the checkpoint of step 1 is done again.
    second = WandbTracker(tmp_path)
    for step in (2, 3, 4):
        second.log(step, {"reward": metric(0.1)}, "train")
    assert wandb.runs[0].wanted["id"] == wandb.runs[1].wanted["id"]
    assert wandb.runs[1].wanted["resume"] == "allow"
    assert [step for run in wandb.runs for step, _ in run.rows] == [1, 2, 3, 4]
    assert json.loads((tmp_path / STATE_FILE).read_text())["step"] == 4
    (tmp_path / "other").mkdir()
    WandbTracker(tmp_path / "other")
    assert wandb.runs[2].wanted["id"] != wandb.runs[0].wanted["id"]


def test_missing_login_or_wandb_is_one_sentence_before_training(
    wandb: FakeWandb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error in (wandb.errors.UsageError("No key."), wandb.errors.AuthenticationError("No key")):
        wandb.refusals[None] = error
        with pytest.raises(ConfigError, match="^tracker wandb: No key. Log in .*mode: offline"):
            WandbTracker(tmp_path)
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match="pip install wandb"):
        WandbTracker(tmp_path)


def test_outage_at_the_start_means_offline(wandb: FakeWandb, tmp_path: Path) -> None:
    wandb.refusals["online"] = wandb.errors.CommError("timed out\nmore")
    with pytest.warns(UserWarning, match=r"cannot be reached \(timed out\).*wandb sync"):
        tracker = WandbTracker(tmp_path, mode="online")
    tracker.log(1, {"reward": metric(0.1)}, "train")
    (run,) = wandb.runs
    assert (run.wanted["mode"], len(run.rows)) == ("offline", 1)


def test_outage_later_is_a_warning(wandb: FakeWandb, tmp_path: Path) -> None:
    tracker = WandbTracker(tmp_path)
    wandb.runs[0].fault = ConnectionResetError("the service is gone")
    with pytest.warns(UserWarning, match="ConnectionResetError: the service is gone. Training"):
        tracker.log(1, {"reward": metric(0.1)}, "train")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tracker.log(2, {"reward": metric(0.1)}, "train")
        tracker.close()
    other = WandbTracker(tmp_path)
    wandb.runs[1].fault = TimeoutError()
    with pytest.warns(UserWarning, match="TimeoutError"):
        other.close()


@pytest.mark.usefixtures("wandb")
def test_it_holds_the_criteria_of_trackers() -> None:
    assert_conforms("wandb", plugins=["searchrl_wandb"])


def test_offline_run_of_wandb_itself_leaves_its_files_in_the_run_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    for first in (1, 3):
        tracker = WandbTracker(tmp_path, project="p", tags=["t"])
        for logged in sample_log(first, first + 2):
            tracker.log(*logged)
        tracker.close()
    real.teardown()
    run_id = json.loads((tmp_path / STATE_FILE).read_text())["id"]
    files = sorted((tmp_path / "wandb").glob(f"offline-run-*/run-{run_id}.wandb"))
    assert len(files) == 2
    assert all(b"train/reward" in file.read_bytes() for file in files)
