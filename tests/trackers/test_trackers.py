"""Trackers: what they write, what happens on resume, what is said when they cannot work."""

import json
import sys
from pathlib import Path

import pytest

from searchrl.contracts.watching import Tracker
from searchrl.errors import ConfigError, RunFolderError
from searchrl.statistics import exact, proportion
from searchrl.trackers.jsonl import JsonlTracker
from searchrl.trackers.tensorboard import TensorBoardTracker


def rows(path: Path) -> list[tuple[int, str, float]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [(row["step"], row["phase"], row["metrics"]["reward"]["value"]) for row in lines]


def log(folder: Path, reward: float, *rows: tuple[int, str], **settings: str) -> None:
    """What one process logs: (step, phase) rows of this reward."""
    tracker = JsonlTracker(folder, **settings)
    for step, phase in rows:
        tracker.log(step, {"reward": exact(reward)}, phase)
    tracker.close()


def test_jsonl_writes_one_line_per_step_at_once(tmp_path: Path) -> None:
    tracker: Tracker = JsonlTracker(tmp_path)
    tracker.log(1, {"reward": proportion(1, 2), "lr": exact(1e-4)}, "train")
    assert rows(tmp_path / "tracker.jsonl") == [(1, "train", 0.5)]
    tracker.log(1, {"reward": exact(0.7)}, "eval")
    tracker.close()
    assert rows(tmp_path / "tracker.jsonl")[1] == (1, "eval", 0.7)
    line = json.loads((tmp_path / "tracker.jsonl").read_text().splitlines()[0])
    assert set(line["metrics"]["reward"]) == {"value", "low", "high", "n"}
    assert line["metrics"]["lr"] == {"value": 1e-4, "n": 1}


def test_jsonl_after_resume_holds_every_step_once(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "all.jsonl"
    log(tmp_path, 0.1, (1, "train"), (2, "train"), (3, "train"), path="logs/all.jsonl")
    # Killed while writing, in the middle of a character.
    path.write_bytes(path.read_bytes() + '{"step": 4, "phase": "图'.encode()[:-1])
    log(tmp_path, 0.2, (3, "train"), (4, "train"), path="logs/all.jsonl")
    assert rows(path) == [(s, "train", r) for s, r in ((1, 0.1), (2, 0.1), (3, 0.2), (4, 0.2))]


def test_jsonl_keeps_the_training_row_of_the_step_whose_evaluation_recurs(tmp_path: Path) -> None:
    log(tmp_path, 0.1, (9, "train"), (10, "train"), (10, "eval"), (11, "train"))
    log(tmp_path, 0.2, (10, "eval"))
    assert rows(tmp_path / "tracker.jsonl") == [
        (9, "train", 0.1), (10, "train", 0.1), (10, "eval", 0.2),
    ]  # fmt: skip
    assert not list(tmp_path.glob("*.partial"))


def test_jsonl_on_a_full_disk_says_where() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    tracker = JsonlTracker("/dev", path="full")
    with pytest.raises(RunFolderError, match="cannot write '/dev/full': No space left"):
        tracker.log(1, {"reward": exact(0.5)}, "train")


def test_tensorboard_missing_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ConfigError, match="pip install 'searchrl\\[tensorboard\\]'"):
        TensorBoardTracker(tmp_path)


def test_tensorboard_writes_scalars(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tracker: Tracker = TensorBoardTracker(tmp_path)
    tracker.log(3, {"reward": exact(0.5)}, "train")
    tracker.close()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    (scalar,) = events.Scalars("train/reward")
    assert (scalar.step, scalar.value) == (3, 0.5)


def test_jsonl_leaves_a_file_of_other_lines_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("buy milk\ncall Ann\n")
    with pytest.raises(RunFolderError, match="notes.txt' is damaged: line 1 is no JSON object"):
        log(tmp_path, 0.1, (1, "train"), path="notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "buy milk\ncall Ann\n"


def test_jsonl_does_not_write_into_the_files_of_the_run(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="the run itself writes"):
        JsonlTracker(tmp_path, path="metrics.jsonl")
