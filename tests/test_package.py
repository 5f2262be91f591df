"""What a wheel and an sdist carry: every file the programs read at run time, and its declaration.

Hatchling packs the folder `searchrl` whole, apart from what git ignores: an ignore pattern that
matches an asset loses it.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent
PACKAGE = REPO / "searchrl"


def test_no_data_file_is_ignored_by_git_and_so_by_the_packer() -> None:
    git = shutil.which("git")
    if git is None or not (REPO / ".git").exists():
        pytest.skip("no git checkout: what is packed was decided elsewhere")
    files = (path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix[:3] != ".py")
    names = [path.relative_to(REPO).as_posix() for path in files]
    # Exit status 1: none is ignored. `--no-index`: tracked files are asked about too.
    done = subprocess.run(
        [git, "check-ignore", "--no-index", "--stdin"],
        input="\n".join(names),
        capture_output=True,
        text=True,
        cwd=REPO,
    )
    assert (done.returncode, done.stdout) == (1, ""), done.stdout + done.stderr
