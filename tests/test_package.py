"""What a wheel and an sdist carry: every file the programs read at run time, and its declaration.

Hatchling packs the folder `searchrl` whole, apart from what git ignores. So two mistakes can lose a
file: a declaration that names less than the folder, and an ignore pattern that matches an asset.
"""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

REPO = Path(__file__).resolve().parent.parent
PACKAGE = REPO / "searchrl"


def data_files() -> list[Path]:
    """Every file of the package that is no module: what a packer could leave behind."""
    return sorted(
        path
        for path in PACKAGE.rglob("*")
        if path.is_file()
        and path.suffix not in (".py", ".pyi", ".pyc", ".pyo")
        and not path.name.startswith(".")
    )


@pytest.fixture(scope="module")
def build_settings() -> dict[str, Any]:
    text = (REPO / "pyproject.toml").read_text("utf-8")
    return dict(tomllib.loads(text)["tool"]["hatch"]["build"])


def test_declaration_takes_the_package_whole(build_settings: dict[str, Any]) -> None:
    wheel, sdist = (build_settings["targets"][name] for name in ("wheel", "sdist"))
    assert wheel["packages"] == ["searchrl"] and "/searchrl" in sdist["include"]
    for settings in (build_settings, wheel, sdist):
        # Any of these could take a file away again.
        assert not {"exclude", "only-include", "only-packages", "sources"} & set(settings)


def test_no_data_file_is_ignored_by_git_and_so_by_the_packer() -> None:
    git = shutil.which("git")
    if git is None or not (REPO / ".git").exists():
        pytest.skip("no git checkout: what is packed was decided elsewhere")
    names = [path.relative_to(REPO).as_posix() for path in data_files()]
    # Exit status 1: none is ignored. `--no-index`: tracked files are asked about too.
    done = subprocess.run(
        [git, "check-ignore", "--no-index", "--stdin"],
        input="\n".join(names),
        capture_output=True,
        text=True,
        cwd=REPO,
    )
    assert (done.returncode, done.stdout) == (1, ""), done.stdout + done.stderr
