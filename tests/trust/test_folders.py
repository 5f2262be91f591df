"""Links, pipes and paths that lead out of a run folder."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import complaint, succeed

from searchrl.errors import ConfigError, RunFolderError
from searchrl.run_folder import Run
from searchrl.runs.export import _copy_policy, export_policy
from searchrl.runs.source import Source
from searchrl.trackers.jsonl import JsonlTracker
from searchrl.trust.folders import ensure_plain, place_inside


@pytest.fixture
def run(micro_run: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    shutil.copytree(micro_run, folder)
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    (folder / "step_000001").mkdir(parents=True)
    (folder / "step_000001" / "state.json").write_text('{"step": 1}')
    return folder


@pytest.mark.parametrize(
    ("make", "what"),
    [(lambda path: path.symlink_to("/"), "a symbolic link"), (os.mkfifo, "a pipe")],
)
def test_run_folder_is_plain(make: Callable[[Path], None], what: str, run: Path) -> None:
    odd = run / "rollouts" / "odd"
    make(odd)
    for look in (Run.open, Run.find, ensure_plain):
        with pytest.raises(RunFolderError, match=f"holds {what}.*'{odd}', which is not followed"):
            look(run)
    with pytest.raises(RunFolderError, match=what):
        Run.find(run / "policy")
    (row,) = json.loads(succeed("runs", run, "--json").stdout)["runs"]
    assert row["state"] == "not plain" and row["program"] == ""


def test_pruning_deletes_nothing_behind_a_link(run: Path, outside: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").symlink_to(outside)
    assert "left alone" in succeed("runs", run, "--prune", "--keep", "1").stdout
    assert (outside / "step_000001" / "state.json").is_file()


def test_resume_deletes_nothing_behind_a_link(run: Path, outside: Path) -> None:
    mine = outside / "step_000009.jsonl"
    mine.write_text("mine")
    shutil.rmtree(run / "rollouts")
    (run / "rollouts").symlink_to(outside)
    assert "a symbolic link" in complaint("train", "--resume", run)
    assert mine.read_text() == "mine"


def test_export_takes_no_file_behind_a_link(run: Path, tmp_path: Path) -> None:
    from searchrl.plugins import load_plugins

    source = Source.open(run)
    (tmp_path / "key").write_text("secret")
    (run / "policy" / "notes.txt").symlink_to(tmp_path / "key")
    with pytest.raises(RunFolderError, match="notes.txt"):
        export_policy(source, tmp_path / "out", load_plugins())
    assert not (tmp_path / "out").exists()
    with pytest.raises(RunFolderError, match="notes.txt"):
        _copy_policy(run / "policy", tmp_path / "copied")  # of a base, say, which is no run's


@pytest.mark.parametrize("path", ["/tmp/x.jsonl", "../x.jsonl", "a/../../x.jsonl", ".", ""])
def test_tracker_outside_of_the_run_folder_is_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not inside of the run folder"):
        JsonlTracker(tmp_path / "run", path)
    assert not list(tmp_path.iterdir())


def test_tracker_behind_a_link_is_refused(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "live").symlink_to(outside)
    with pytest.raises(ConfigError, match="live' is a symbolic link"):
        JsonlTracker(tmp_path / "run", "live/x.jsonl")
    assert place_inside(tmp_path / "run", "a/x.jsonl", "path") == tmp_path / "run" / "a" / "x.jsonl"
