"""Commits: which version of a folder of code was used, as git or the installer knows it.

Owns the questions to git; without git, or outside a repository, the answer is None.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from searchrl.plugins.owners import find_url

_TIMEOUT_S = 5.0
_CHANGED = "+changes"
"""Behind a commit whose files were not all as they are in it."""
_UNCHECKED = "+unchecked"
"""Behind a commit whose files cannot be compared without running programs of the repository."""


def find_commit(folder: Path, distribution: str = "") -> str | None:
    """The commit of a folder, `+changes` behind it if tracked files differ; None if unknown.

    `+unchecked` stands there if whether they do is not asked, see `_runs_programs`.

    With `distribution`, the folder is that of an installed package: the repository it was
    installed from counts, and one that it merely lies in (a virtual environment) does not.
    """
    if distribution:
        _, at, commit = find_url(distribution).rpartition("@")
        if at and commit.isalnum():
            return commit
        if _ask_git(folder, "ls-files", "--error-unmatch", "__init__.py") is None:
            return None
    commit_here = _ask_git(folder, "rev-parse", "HEAD")
    if not commit_here:
        return None
    if _runs_programs(folder):
        return f"{commit_here}{_UNCHECKED}"
    words = ("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all")
    return f"{commit_here}{_CHANGED}" if _ask_git(folder, *words) else commit_here


def _runs_programs(folder: Path) -> bool:
    """Whether `git status` would run what the repository's own settings name.

    A repository that came with somebody's runs can name a program as its filter of files.
    """
    listed = _ask_git(folder, "config", "--list", "--name-only", "--show-scope")
    own = [line.lower().split("\t") for line in (listed or "local\tfilter.unknown").splitlines()]
    return any(
        scope in ("local", "worktree") and name.startswith(("filter.", "include"))
        for scope, name in own
    )


def _ask_git(folder: Path, *words: str) -> str | None:
    """What git says, or None if it says nothing good."""
    try:
        answer = subprocess.run(
            # Never the program that a repository names to watch its files.
            ["git", "-c", "core.fsmonitor=false", "-C", str(folder), *words],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
