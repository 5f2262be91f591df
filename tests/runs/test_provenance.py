"""`provenance.json`: the commit of the code, the machine, and how long the run took."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from searchrl.config import build_config
from searchrl.plugins.provenance import find_commit
from searchrl.run_folder import Run, RunWriter


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    command = ["git", "-C", str(folder), *who, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "__init__.py").write_text("x = 1\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def test_commit_is_that_of_the_folder(repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    assert find_commit(repository) == find_commit(repository, "__init__.py") == commit


def test_run_records_commit_machine_and_duration(micro_run: Path) -> None:
    record = Run.open(micro_run).provenance
    assert record["program"] == "train"
    assert record["commit"].keys() == {"searchrl", "folder"}
    assert record["machine"]["cpu"] and record["machine"]["cores"] > 0
    assert record["machine"]["gpu"] is None
    assert record["duration_s"] > 0


def test_duration_goes_on_after_a_resume_and_leaves_the_pause_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def duration() -> float:
        record = json.loads((tmp_path / "run" / "provenance.json").read_text())
        return float(record["duration_s"])

    writer = RunWriter.create(build_config({}), tmp_path / "run")
    writer.write_provenance([])
    now[0] += 30
    writer.log(1, {}, "train")
    assert duration() == 30
    now[0] += 1000  # nobody works on it
    again = RunWriter.reopen(tmp_path / "run", 1)
    now[0] += 12
    again.write_summary({})
    assert duration() == 42
