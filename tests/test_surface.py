"""The public surface: eleven modules, few names, each documented, and nothing else for packages."""

import ast
import importlib
import re
import sys
from pathlib import Path
from types import FunctionType

import pytest

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "docs"))

from reference import MODULES  # noqa: E402

MAX_NAMES = 179
PACKAGE_FILES = sorted(
    file
    for package in (REPO / "plugins").iterdir()
    for file in (package / package.name.replace("-", "_")).rglob("*.py")
)


def names_of(module: str) -> list[str]:
    return list(importlib.import_module(module).__all__)


def test_there_are_few_names_and_each_has_one_place() -> None:
    names = [name for module in MODULES for name in names_of(module)]
    assert len(set(names)) == len(names) <= MAX_NAMES


@pytest.mark.parametrize("module", MODULES)
def test_every_name_has_a_docstring(module: str) -> None:
    things = {name: getattr(importlib.import_module(module), name) for name in names_of(module)}
    assert not [
        name
        for name, one in things.items()
        if isinstance(one, type | FunctionType) and not one.__doc__
    ]


def find_closed(source: str) -> list[str]:
    """What a file names of SearchRL beside the public names: by an import, or as a text."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [one.name for one in node.names if one.name.partition(".")[0] == "searchrl"]
        elif isinstance(node, ast.ImportFrom) and re.match(r"searchrl\b", node.module or ""):
            module = node.module or ""
            known = names_of(module) if module in MODULES else []
            found += [f"{module}.{one.name}" for one in node.names if one.name not in known]
        elif isinstance(node, ast.Constant) and re.fullmatch(r"searchrl(\.\w+)+", str(node.value)):
            found.append(str(node.value))
    return found


@pytest.mark.parametrize("file", PACKAGE_FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_a_package_uses_public_names_alone(file: Path) -> None:
    assert find_closed(file.read_text("utf-8")) == []
