"""`kill -9` at any moment: the resumed run is the uninterrupted one, bit for bit."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from train_toy import TIMINGS, assert_same_run, settings

from searchrl.run_folder import Run
from searchrl.trackers.rows import read_rows

PLACES = ("rollout", "update", "checkpoint", "evaluation", "metrics")
PARTS = [(number + 0.5) / 10 for number in range(10)]
PROGRAM = Path(__file__).with_name("killing.py")


def kill_and_resume(
    micro_model: Path, tmp_path: Path, points: list[tuple[str, float]], **more: Any
) -> tuple[Run, list[dict[str, Any]]]:
    """The uninterrupted run, and what came of each point."""
    tests = PROGRAM.parent.parent
    config = settings(
        micro_model, tmp_path / "whole", max_steps=4, log={"trackers": ["jsonl"]},
        rollout={"group_size": 2, "max_turn_tokens": 8, "max_total_tokens": 120},
        eval={"num_tasks": 1, "num_tasks_during": 1, "every": 2}, checkpoint={"every": 2},
        **more,
    )  # fmt: skip
    job = {
        "settings": config,
        "whole": str(tmp_path / "whole"),
        "folder": str(tmp_path),
        "points": points,
    }
    (tmp_path / "job.json").write_text(json.dumps(job))
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path / "job.json")],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tests), *filter(None, sys.path)])},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(rows) == len(points)
    for row in rows:
        assert row["killed"] == -signal.SIGKILL, f"not killed at {row['at']}: {done.stderr[-3000:]}"
        assert row["resumed"] == 0, f"not resumed after {row['at']}: {done.stderr[-3000:]}"
    return Run.open(tmp_path / "whole"), rows


def records_of(path: Path) -> list[dict[str, Any]]:
    rows = list(read_rows(path))
    for row in rows:
        row["metrics"] = {k: v for k, v in row["metrics"].items() if k not in TIMINGS}
    return rows


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def assert_same_bits(whole: Run, run: Run) -> None:
    """Weights, optimiser, trajectories, metrics and tracker, and nothing left over."""
    for name in ("checkpoints", "policy", "rollouts"):
        ours, theirs = files_of(whole.path / name), files_of(run.path / name)
        assert ours.keys() == theirs.keys()
        assert [name for name in ours if ours[name] != theirs[name]] == []
    for name in ("metrics.jsonl", "tracker.jsonl"):
        assert records_of(whole.path / name) == records_of(run.path / name)
    assert_same_run(whole, run, at_least=10)
    known = {path.name for path in whole.path.iterdir()}
    assert {path.name for path in run.path.iterdir()} == known
    assert [str(path) for path in run.path.rglob("*.partial")] == []


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "parts",
    [
        pytest.param((0.9, 0.5, 0.7, 0.5, 0.6), marks=pytest.mark.smoke),
        *(pytest.param((part,) * 5, marks=pytest.mark.thorough) for part in PARTS),
    ],
)
def test_killed_in_each_place(micro_model: Path, tmp_path: Path, parts: tuple[float, ...]) -> None:
    points = list(zip(PLACES, parts, strict=True))
    whole, rows = kill_and_resume(micro_model, tmp_path, points)
    for row in rows:
        assert_same_bits(whole, Run.open(row["run"]))


@pytest.mark.timeout(1200)
@pytest.mark.thorough
def test_killed_in_each_round_of_branches(micro_model: Path, tmp_path: Path) -> None:
    """Of three steps behind the first checkpoint: both rounds of the first, and of the second."""
    points = [("branches", part) for part in (0.1, 0.28, 0.45, 0.65)]
    whole, rows = kill_and_resume(micro_model, tmp_path, points, algorithm={"name": "branches"})
    assert sum(bool(row["parent"]) for row in whole.rollouts()) > 8
    for row in rows:
        assert_same_bits(whole, Run.open(row["run"]))
