"""Links, pipes and paths that lead out of a run folder."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import succeed

from searchrl.errors import ConfigError, RunFolderError
from searchrl.plugins import load_plugins
from searchrl.run_folder import Run
from searchrl.runs.export import _copy_policy, export_policy
from searchrl.runs.source import Source
from searchrl.trackers.jsonl import JsonlTracker
from searchrl.trust.folders import ensure_plain, place_inside


@pytest.fixture
def run(micro_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(micro_run, tmp_path / "run"))


@pytest.mark.parametrize(
    ("make", "what"),
    [(lambda path: path.symlink_to("/"), "a symbolic link"), (os.mkfifo, "a pipe")],
)
def test_run_folder_is_plain(make: Callable[[Path], None], what: str, run: Path) -> None:
    odd = run / "rollouts" / "odd"
    make(odd)
    for look in (Run.open, Run.find, ensure_plain, lambda run: Run.find(run / "policy")):
        with pytest.raises(RunFolderError, match=f"{what}.*'{odd}'"):
            look(run)
    (row,) = json.loads(succeed("runs", run, "--json").stdout)["runs"]
    assert row["state"] == "not plain" and row["program"] == ""


def test_export_takes_no_file_behind_a_link(run: Path, tmp_path: Path) -> None:
    source = Source.open(run)
    (tmp_path / "key").write_text("secret")
    (run / "policy" / "notes.txt").symlink_to(tmp_path / "key")
    with pytest.raises(RunFolderError, match=r"notes\.txt"):
        export_policy(source, tmp_path / "out", load_plugins())
    assert not (tmp_path / "out").exists()
    with pytest.raises(RunFolderError, match=r"notes\.txt"):
        _copy_policy(run / "policy", tmp_path / "copied")  # of a base, say, which is no run's


@pytest.mark.parametrize("path", ["/tmp/x.jsonl", "../x", "a/../../x", ".", "", "live/x.jsonl"])
def test_tracker_outside_of_the_run_folder_or_behind_a_link_is_refused(
    path: str, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "run" / "live").symlink_to(tmp_path / "outside")
    with pytest.raises(ConfigError, match=f"'{path}'"):
        JsonlTracker(tmp_path / "run", path)
    assert not list((tmp_path / "outside").iterdir()) and len(list(tmp_path.iterdir())) == 2
    assert place_inside(tmp_path / "run", "a/x.jsonl", "path") == tmp_path / "run" / "a" / "x.jsonl"
