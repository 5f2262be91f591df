"""`provenance.json`: the commit of the code, the machine, and how long the run took."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from searchrl.plugins.provenance import find_commit
from searchrl.run_folder import Run


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
