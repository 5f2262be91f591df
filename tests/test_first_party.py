"""The packages in `plugins/`: what their README promises of each of them, and that they work."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from searchrl.errors import UnknownNameError
from searchrl.plugins import load_plugins

PLUGINS = Path(__file__).resolve().parent.parent / "plugins"
PACKAGES = sorted(path for path in PLUGINS.iterdir() if path.is_dir())
MAX_LINES = 250
MANY_ROOMS = {"searchrl-control", "searchrl-dag", "searchrl-judge", "searchrl-retrieval"}
"""Packages of several subjects: ADR 0013 says why, and what holds for them instead."""
MAX_LINES_OF_A_FILE = 450
MAX_FILES_OF_A_ROOM = 14
every_package = pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)


def sources(package: Path) -> list[Path]:
    return sorted((package / package.name.replace("-", "_")).rglob("*.py"))


def count_lines(package: Path) -> int:
    """Lines of a package, blank ones included."""
    return sum(len(f.read_text("utf-8").splitlines()) for f in sources(package))


def test_there_are_packages() -> None:
    assert "searchrl-gsm-tools" in [package.name for package in PACKAGES]


@every_package
def test_a_package_can_be_installed_and_is_found(package: Path) -> None:
    project = tomllib.loads((package / "pyproject.toml").read_text("utf-8"))["project"]
    module = package.name.replace("-", "_")
    assert project["name"] == package.name
    assert module in project["entry-points"]["searchrl"].values()
    assert any(re.match(r"searchrl\b(?!-)", need) for need in project["dependencies"])
    assert (package / module / "__init__.py").is_file()


@every_package
def test_a_package_is_small(package: Path) -> None:
    if package.name not in MANY_ROOMS:
        assert 0 < count_lines(package) < MAX_LINES
        return
    for file in sources(package):
        assert len(file.read_text("utf-8").splitlines()) <= MAX_LINES_OF_A_FILE, file
    rooms = Counter(file.parent for file in sources(package))
    assert max(rooms.values()) <= MAX_FILES_OF_A_ROOM, rooms


@every_package
def test_a_package_has_a_readme_and_tests_and_stands_in_the_list(package: Path) -> None:
    assert f"# {package.name}" in (package / "README.md").read_text("utf-8")
    assert any("def test_" in file.read_text("utf-8") for file in package.glob("tests/test_*.py"))
    assert f"[{package.name}]({package.name}/README.md)" in (PLUGINS / "README.md").read_text(
        "utf-8"
    )


def test_name_of_a_package_that_is_not_installed_says_how_to_find_packages() -> None:
    """In general words: no room of the core knows a package by name."""
    with pytest.raises(UnknownNameError, match="unknown retriever 'bm25s'.*pip install"):
        load_plugins(entry_points=False).get("retriever", "bm25s")
    core = PLUGINS.parent / "searchrl"
    for file in core.rglob("*.py"):
        text = file.read_text("utf-8")
        assert not [p.name for p in PACKAGES if p.name.replace("-", "_") in text], file
