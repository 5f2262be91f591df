"""The commit of a folder is found without running what the repository names."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from searchrl.plugins.provenance import find_commit


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "notes.txt").write_text("one")
    git = ["git", "-C", str(folder), "-c", "user.name=x", "-c", "user.email=x@x"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    return folder


def settings(repository: Path, text: str) -> Path:
    """Add settings that name a program; returns the file that it writes."""
    program, trace = repository.parent / "program.sh", repository.parent / "ran"
    program.write_text(f"#!/bin/sh\ntouch {trace}\ncat\n")
    program.chmod(0o755)
    with (repository / ".git" / "config").open("a") as file:
        file.write(text.format(program=program))
    return trace


def test_commit_says_whether_files_changed(repository: Path) -> None:
    commit = find_commit(repository)
    assert commit is not None and commit.isalnum()
    (repository / "notes.txt").write_text("two")
    assert find_commit(repository) == f"{commit}+changes"
    assert find_commit(repository.parent) is None


def test_program_that_watches_files_does_not_run(repository: Path) -> None:
    trace = settings(repository, "[core]\n\tfsmonitor = {program}\n")
    (repository / "notes.txt").write_text("two")
    assert str(find_commit(repository)).endswith("+changes")
    assert not trace.exists()


@pytest.mark.parametrize("is_included", [False, True])
def test_program_that_filters_files_does_not_run(repository: Path, is_included: bool) -> None:
    text = '[filter "evil"]\n\tclean = {program}\n'
    if is_included:
        inner = repository.parent / "inner"
        inner.write_text(text.format(program=repository.parent / "program.sh"))
        text = f"[include]\n\tpath = {inner}\n"
    trace = settings(repository, text)
    (repository / ".gitattributes").write_text("* filter=evil\n")
    (repository / "notes.txt").write_text("two")
    assert str(find_commit(repository)).endswith("+unchecked")
    assert not trace.exists()
