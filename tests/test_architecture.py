"""The house: floors, rooms, who imports whom, and the picture that is drawn from it.

The map of floors is in docs/draw_rooms.py, which also reads the imports and draws them.
"""

import ast
import importlib.util
import sys
from functools import cache
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parent.parent
_SPEC = importlib.util.spec_from_file_location("draw_rooms", REPO / "docs" / "draw_rooms.py")
assert _SPEC is not None and _SPEC.loader is not None
rooms: Any = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = rooms
_SPEC.loader.exec_module(rooms)

PACKAGE: Path = rooms.PACKAGE
MODULES: dict[str, Path] = {rooms.module_name(path): path for path in rooms.find_modules()}
HOUSE = rooms.read_house()

MAX_LINES = 450
FILES_IN_A_ROOM = range(3, 15)
FORBIDDEN_NAMES = {"utils", "util", "common", "helpers", "helper", "base", "misc"}

PARTS = {
    *("protocols", "envs", "rewards", "retrieval", "trackers", "alarms", "algorithms", "config"),
}
"""Floor-1 parts. They meet in the contracts and do not know each other."""

OPEN_TO_PARTS = (
    "searchrl.contracts",
    "searchrl.core",
    "searchrl.errors",
    "searchrl.files",
    "searchrl.cache",
    "searchrl.hookspecs",
    "searchrl.config.sections",
    "searchrl.config.curriculum",
    "searchrl.tool_calls",
    "searchrl.tracing",
    "searchrl.config.endpoint",
    "searchrl.api_client",
    "searchrl.data",
    "searchrl.retrieval",
    "searchrl.trust.folders",
    "searchrl.trust.secrets",
)
"""What every part may import: contracts, facts, the keys of the config, and shared tools."""

NAMES_TO_OBJECTS = ("searchrl.trackers.feed", "searchrl.alarms.watch")
"""Outside `plugins/`, the only modules of parts that turn names into objects."""

PUBLIC_NAMES = "searchrl"  # its `__init__` lists names of every floor and resolves them lazily


@cache
def ours(name: str) -> list[tuple[str, int]]:
    return [(t, line) for t, line in rooms.read_imports(MODULES[name]) if t.startswith("searchrl.")]


def is_below(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def test_imports_point_downward() -> None:
    upward = [
        f"{MODULES[name]}:{line} (floor {rooms.floor(name)}) imports {target}"
        for name in MODULES
        if name != PUBLIC_NAMES
        for target, line in ours(name)
        if rooms.floor(target) > rooms.floor(name)
    ]
    assert not upward, upward


def test_parts_know_each_other_through_contracts_only() -> None:
    sideways = [
        f"{MODULES[name]}:{line} imports {target}"
        for name in MODULES
        if rooms.part(name) in PARTS and name not in NAMES_TO_OBJECTS
        for target, line in ours(name)
        if rooms.part(target) != rooms.part(name) and not is_below(target, OPEN_TO_PARTS)
    ]
    assert not sideways, f"a part may import {OPEN_TO_PARTS}: {sideways}"


def test_every_file_is_one_noun_with_a_docstring() -> None:
    faults = []
    for name, path in MODULES.items():
        text = path.read_text(encoding="utf-8")
        num_lines = len(text.splitlines())
        if num_lines > MAX_LINES:
            faults.append(f"{path} has {num_lines} lines; past {MAX_LINES} it is two nouns")
        if FORBIDDEN_NAMES & set(name.split(".")):
            faults.append(f"{path}: the name says nothing")
        if not ast.get_docstring(ast.parse(text)):
            faults.append(f"{path} does not say what it owns")
    assert not faults, faults


def test_a_room_has_three_to_fourteen_files() -> None:
    sizes = {name: len(files) for name, files in HOUSE.modules.items() if files != (name,)}
    wrong = {name: size for name, size in sizes.items() if size not in FILES_IN_A_ROOM}
    assert not wrong, wrong


def test_rooms_do_not_import_each_other_in_a_circle() -> None:
    circles = [name for name in HOUSE.modules if name in HOUSE.reachable(name)]
    assert not circles, circles


def test_the_picture_of_the_rooms_is_current() -> None:
    drawn = rooms.PICTURE.read_text("utf-8")
    assert drawn == rooms.draw(HOUSE), "the imports changed: run `python docs/draw_rooms.py`"


def test_core_imports_torch_and_the_standard_library_only() -> None:
    allowed = set(sys.stdlib_module_names) | {"torch", "searchrl"}
    for name in (name for name in MODULES if rooms.part(name) == "core"):
        roots = {target.partition(".")[0] for target, _ in rooms.read_imports(MODULES[name])}
        assert roots <= allowed, name
        assert all(rooms.part(target) == "core" for target, _ in ours(name)), name


def test_core_package_and_errors_import_nothing_of_ours_and_no_torch() -> None:
    assert not list(rooms.read_imports(MODULES["searchrl.core"]))
    for name in ("searchrl.errors", "searchrl.core.episode"):
        roots = {target.partition(".")[0] for target, _ in rooms.read_imports(MODULES[name])}
        assert roots <= set(sys.stdlib_module_names), name
