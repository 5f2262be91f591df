"""The four floors: imports point downward only, whatever the place in the file they stand in.

The map below is the architecture; a module that is not in it belongs to the programs on top.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "searchrl"
MODULES = sorted(PACKAGE.rglob("*.py"))
MAX_LINES = 450
FORBIDDEN_NAMES = {"utils", "util", "common", "helpers", "helper", "base", "misc"}

FLOORS = {
    "core": 0,
    "errors": 0,
    "contracts": 1,
    "algorithms": 1,
    "hookspecs": 1,
    "run_folder": 1,
    "config": 1,
    "plugins": 1,
    "protocols": 1,
    "envs": 1,
    "rewards": 1,
    "retrieval": 1,
    "trackers": 1,
    "engine": 2,
    "programs": 3,
    "scaffold": 3,
    "testing": 3,
    "cli": 3,
}
ENGINE_ROOMS = ("model", "sampling", "episodes", "learning", "memory")
"""The rooms of the engine, from the bottom up: a room imports itself and the ones below it."""
TOP = 3

PARTS = {"protocols", "envs", "rewards", "retrieval", "trackers", "algorithms", "config"}
"""Floor-1 parts. They meet in the contracts and do not know each other."""

OPEN_TO_PARTS = (
    "searchrl.contracts",
    "searchrl.core",
    "searchrl.errors",
    "searchrl.hookspecs",
    "searchrl.config.sections",
    "searchrl.plugins.deadline",
    "searchrl.retrieval.indexes",
)
"""What every part may import: contracts, facts, the keys of the config, and two shared tools."""

NAMES_TO_OBJECTS = "searchrl.trackers.feed"
"""Outside `plugins/`, the only module of a part that turns names into objects."""

PUBLIC_NAMES = "searchrl"
"""`searchrl/__init__.py` lists names of every floor; it resolves them lazily."""


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every imported module of a file with its line, imports inside functions included."""
    name = module_name(path)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            target = node.module or ""
            if node.level:
                above = package.split(".")
                above = above[: len(above) - node.level + 1]
                target = ".".join([*above, *filter(None, [target])])
            if target == "searchrl":
                # `from searchrl import envs` names a module, `from searchrl import hookimpl` none.
                for alias in node.names:
                    is_module = (PACKAGE / f"{alias.name}.py").is_file()
                    is_package = (PACKAGE / alias.name).is_dir()
                    found = is_module or is_package
                    yield (f"searchrl.{alias.name}" if found else "searchrl", node.lineno)
            else:
                yield target, node.lineno


def part(name: str) -> str:
    """`searchrl.envs.text` -> `envs`; the package itself -> ``."""
    return name.partition(".")[2].partition(".")[0]


def floor(name: str) -> int:
    return FLOORS.get(part(name), TOP)


def is_below(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def ours(path: Path) -> list[tuple[str, int]]:
    return [(name, line) for name, line in imports(path) if name.startswith("searchrl.")]


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_imports_point_downward(path: Path) -> None:
    name = module_name(path)
    if name == PUBLIC_NAMES:
        return
    upward = [f"{path}:{line} imports {t}" for t, line in ours(path) if floor(t) > floor(name)]
    assert not upward, f"{name} is on floor {floor(name)}: {upward}"


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_parts_know_each_other_through_contracts_only(path: Path) -> None:
    name = module_name(path)
    if part(name) not in PARTS or name == NAMES_TO_OBJECTS:
        return
    sideways = [
        f"{path}:{line} imports {target}"
        for target, line in ours(path)
        if part(target) != part(name) and not is_below(target, OPEN_TO_PARTS)
    ]
    assert not sideways, f"{name} may import {OPEN_TO_PARTS}: {sideways}"


@pytest.mark.parametrize("path", [p for p in MODULES if "core" in p.parts], ids=module_name)
def test_core_imports_torch_and_the_standard_library_only(path: Path) -> None:
    roots = {name.partition(".")[0] for name, _ in imports(path)}
    assert roots <= set(sys.stdlib_module_names) | {"torch", "searchrl"}
    assert all(part(name) == "core" for name, _ in ours(path))


def test_core_package_and_errors_import_nothing_of_ours_and_no_torch() -> None:
    assert not list(imports(PACKAGE / "core" / "__init__.py"))
    for name in ("errors.py", "core/episode.py"):
        roots = {target.partition(".")[0] for target, _ in imports(PACKAGE / name)}
        assert roots <= set(sys.stdlib_module_names), name


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_file_is_one_noun_with_a_docstring(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    num_lines = len(text.splitlines())
    assert num_lines <= MAX_LINES, f"{path} has {num_lines} lines; past {MAX_LINES} it is two nouns"
    assert not FORBIDDEN_NAMES & set(path.relative_to(PACKAGE).with_suffix("").parts)
    assert ast.get_docstring(ast.parse(text)), f"{path} does not say what it owns"


def test_every_module_of_the_map_exists() -> None:
    missing = [
        name
        for name in FLOORS
        if not (PACKAGE / f"{name}.py").is_file() and not (PACKAGE / name).is_dir()
    ]
    assert not missing


def run(code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize(
    "code",
    [
        "import searchrl",
        "import searchrl.plugins as p; r = p.load_plugins(); r.provenance()",
        "import searchrl.config",
        "import searchrl.contracts, searchrl.core.episode, searchrl.rewards, searchrl.protocols",
    ],
)
def test_model_free_modules_never_import_torch(code: str) -> None:
    heavy = run(f"{code}; import sys; print(*{{'torch', 'transformers'}} & set(sys.modules))")
    assert heavy.split() == []


def test_help_imports_no_torch() -> None:
    code = (
        "import sys, runpy; sys.argv = ['searchrl', '--help']\n"
        "try: runpy.run_module('searchrl', run_name='__main__')\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    assert "Usage" in run(code)
