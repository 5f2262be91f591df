"""The packages in `plugins/`: what their README promises of each of them, and that they work."""

import re
import tomllib
from pathlib import Path

import pytest

from searchrl.errors import UnknownNameError
from searchrl.plugins import load_plugins

PLUGINS = Path(__file__).resolve().parent.parent / "plugins"
PACKAGES = sorted(path for path in PLUGINS.iterdir() if path.is_dir())
MAX_LINES = 250
every_package = pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)


def sources(package: Path) -> list[Path]:
    return sorted((package / package.name.replace("-", "_")).rglob("*.py"))


@every_package
def test_a_package_can_be_installed_and_is_found(package: Path) -> None:
    project = tomllib.loads((package / "pyproject.toml").read_text("utf-8"))["project"]
    module = package.name.replace("-", "_")
    assert project["name"] == package.name
    assert module in project["entry-points"]["searchrl"].values()
    assert any(re.match(r"searchrl\b(?!-)", need) for need in project["dependencies"])
    assert (package / module / "__init__.py").is_file()


def test_name_of_a_package_that_is_not_installed_says_how_to_find_packages() -> None:
    """In general words: no room of the core knows a package by name."""
    with pytest.raises(UnknownNameError, match="unknown retriever 'bm25s'.*pip install"):
        load_plugins(entry_points=False).get("retriever", "bm25s")
    core = PLUGINS.parent / "searchrl"
    for file in core.rglob("*.py"):
        text = file.read_text("utf-8")
        assert not [p.name for p in PACKAGES if p.name.replace("-", "_") in text], file
