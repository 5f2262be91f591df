"""Draws the rooms of the package from its imports: `python docs/draw_rooms.py` writes rooms.svg.

Owns the map of floors and how a module finds its room and its imports. Draws what it reads and
nothing else. `tests/test_architecture.py` holds the package to the map and the picture to the code.
"""

from __future__ import annotations

import ast
import itertools
import math
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

DOCS = Path(__file__).resolve().parent
PACKAGE = DOCS.parent / "searchrl"
PICTURE = DOCS / "rooms.svg"

FLOORS: Mapping[str, int] = {
    "core": 0,
    "errors": 0,
    "files": 0,
    "cache": 0,
    "contracts": 1,
    "algorithms": 1,
    "hookspecs": 1,
    "run_folder": 1,
    "config": 1,
    "tool_calls": 1,
    "tracing": 1,
    "api_client": 1,
    "data": 1,
    "plugins": 1,
    "trust": 1,
    "protocols": 1,
    "envs": 1,
    "rewards": 1,
    "retrieval": 1,
    "statistics": 1,
    "trackers": 1,
    "alarms": 1,
    "engine": 2,
    "programs": 3,
    "report": 3,
    "runs": 3,
    "scaffold": 3,
    "testing": 3,
    "screen": 3,
    "cli": 3,
    "__main__": 3,
}
"""The floor of everything that lies directly in `searchrl/`."""

FLOOR_NAMES = ("facts", "parts", "engine", "programs")


def module_name(path: Path) -> str:
    """`searchrl/envs/text.py` -> `searchrl.envs.text`; a package has the name of its folder."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def find_modules() -> list[Path]:
    """Every Python file of the package."""
    return sorted(PACKAGE.rglob("*.py"))


def read_imports(path: Path) -> Iterator[tuple[str, int]]:
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
            for alias in node.names:
                # `from searchrl import envs` names a module, `from searchrl import hookimpl` none.
                inner = PACKAGE.parent.joinpath(*target.split("."), alias.name)
                is_module = inner.with_suffix(".py").is_file() or inner.is_dir()
                is_ours = target.partition(".")[0] == PACKAGE.name
                yield (f"{target}.{alias.name}" if is_ours and is_module else target), node.lineno


def part(module: str) -> str:
    """`searchrl.envs.text` -> `envs`; the package itself -> ``."""
    return module.partition(".")[2].partition(".")[0]


def floor(module: str) -> int:
    """The floor of a module of ours; the names that `searchrl` itself lists are on top."""
    return FLOORS.get(part(module), max(FLOORS.values()))


def room(module: str) -> str:
    """The folder a module lies in, as `engine/model`; a module in `searchrl/` is its own."""
    parts = module.split(".")[1:]
    is_folder = PACKAGE.joinpath(*parts).is_dir()
    return "/".join(parts if is_folder else parts[:-1]) or "/".join(parts)


@dataclass(frozen=True, slots=True)
class House:
    """The rooms: the modules of each, and which rooms it imports."""

    modules: Mapping[str, tuple[str, ...]]
    imports: Mapping[str, frozenset[str]]

    def reachable(self, start: str) -> set[str]:
        """Every room that a room imports, directly or through others."""
        found: set[str] = set()
        waiting = [start]
        while waiting:
            new = self.imports[waiting.pop()] - found
            found |= new
            waiting += new
        return found

    def arrows(self) -> list[tuple[str, str]]:
        """The imports that do not follow from others: a -> c is left out beside a -> b -> c."""
        return [
            (source, target)
            for source in sorted(self.imports)
            for target in sorted(self.imports[source])
            if not any(
                target in self.reachable(other)
                for other in self.imports[source]
                if other != target and other not in self.reachable(target)
            )
        ]


def read_house() -> House:
    """Read the rooms from the files. Lists of names (`__init__`) are doors and not drawn."""
    modules: dict[str, list[str]] = defaultdict(list)
    imports: dict[str, set[str]] = defaultdict(set)
    for path in find_modules():
        if path.name == "__init__.py":
            continue
        name = module_name(path)
        here = room(name)
        modules[here].append(path.stem)
        for target, _ in read_imports(path):
            if target.startswith(f"{PACKAGE.name}."):
                imports[here].add(room(target))
    return House(
        {name: tuple(sorted(modules[name])) for name in sorted(modules)},
        {name: frozenset(imports[name] - {name}) & modules.keys() for name in sorted(modules)},
    )


WIDTH, BOX, LINE, MARGIN = 1350, 190, 15, 84
"""Pixels: the picture, a box of a room, a line of text, the margin with the floor names."""
GAP, LANE, ROW_GAP = 18, 16, 44
"""Pixels: between boxes, the lane of an arrow that passes a row, between rows."""
EVERYWHERE = frozenset({"errors"})
"""Imported by nearly every room: its arrows would hide all others."""


@dataclass(slots=True)
class Spot:
    """A place in a row: a room, or the lane of an arrow on its way to a lower row."""

    room: str | None
    row: int
    width: float
    lines: tuple[str, ...] = ()
    x: float = 0.0
    """The centre."""
    above: list[Spot] = field(default_factory=list)
    below: list[Spot] = field(default_factory=list)

    @property
    def height(self) -> int:
        """In pixels; a lane has none."""
        return 0 if self.room is None else 28 + LINE * len(self.lines)


def _rows(house: House) -> list[tuple[int, list[str]]]:
    """Rooms from top to bottom, floor by floor; a room stands above those it imports."""
    rows: list[tuple[int, list[str]]] = []
    for level in sorted(set(FLOORS.values()), reverse=True):
        here = [r for r in house.modules if FLOORS[r.partition("/")[0]] == level]
        depth: dict[str, int] = {}
        while len(depth) < len(here):
            before = len(depth)
            for name in here:
                below = [other for other in here if other in house.imports[name]]
                if name not in depth and all(other in depth for other in below):
                    depth[name] = 1 + max((depth[other] for other in below), default=-1)
            if len(depth) == before:
                circle = ", ".join(sorted(set(here) - depth.keys()))
                raise ValueError(f"rooms import each other in a circle, among them: {circle}")
        for number in sorted(set(depth.values()), reverse=True):
            rows.append((level, [name for name in here if depth[name] == number]))
    return rows


def _make_spots(house: House) -> list[list[Spot]]:
    """The rows of the picture, arrows and their lanes joined from spot to spot."""
    rows: list[list[Spot]] = []
    spots: dict[str, Spot] = {}
    for number, (_, names) in enumerate(_rows(house)):
        rows.append([])
        for name in names:
            is_module = house.modules[name] == (name,)
            text = "" if is_module else ", ".join(house.modules[name])
            lines = tuple(textwrap.wrap(text, 30, break_long_words=False))
            spots[name] = Spot(name, number, 104 if is_module else BOX, lines)
            rows[-1].append(spots[name])
    for source, target in house.arrows():
        if target in EVERYWHERE:
            continue
        last = spots[source]
        for number in range(last.row + 1, spots[target].row):
            lane = Spot(None, number, LANE)
            rows[number].append(lane)
            _join(last, lane)
            last = lane
        _join(last, spots[target])
    return rows


def _join(upper: Spot, lower: Spot) -> None:
    upper.below.append(lower)
    lower.above.append(upper)


def _arrange(rows: list[list[Spot]]) -> None:
    """Order every row, and set every x, so that arrows are short and cross little."""
    for row in rows:
        _spread(row, [WIDTH / 2] * len(row))
    for sweep in range(40):
        is_down = sweep % 2 == 0
        for row in rows if is_down else reversed(rows):
            wanted = {id(s): _pull(s.above if is_down else s.below, s.x) for s in row}
            row.sort(key=lambda spot: wanted[id(spot)])
            _spread(row, [wanted[id(spot)] for spot in row])
    for _ in range(20):
        for row in rows:
            _spread(row, [_pull(spot.above + spot.below, spot.x) for spot in row])


def _pull(neighbours: Sequence[Spot], otherwise: float) -> float:
    return math.fsum(n.x for n in neighbours) / len(neighbours) if neighbours else otherwise


def _spread(row: Sequence[Spot], wanted: Sequence[float]) -> None:
    """Set x as near to what is wanted as order and widths allow (pooled adjacent violators)."""
    offsets = [0.0]
    for left, right in itertools.pairwise(row):
        gap = GAP if left.room and right.room else GAP / 2
        offsets.append(offsets[-1] + (left.width + right.width) / 2 + gap)
    pools: list[tuple[float, int]] = []
    for want, offset in zip(wanted, offsets, strict=True):
        pools.append((want - offset, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, m), (b, n) = pools[-2:]
            pools[-2:] = [((a * m + b * n) / (m + n), m + n)]
    starts = [value for value, count in pools for _ in range(count)]
    low = MARGIN + row[0].width / 2
    high = WIDTH - 14 - offsets[-1] - row[-1].width / 2
    for spot, start, offset in zip(row, starts, offsets, strict=True):
        spot.x = round(min(max(start, low), max(low, high)) + offset, 1)


def draw(house: House) -> str:
    """The picture as SVG, the same for the same imports."""
    rows = _make_spots(house)
    _arrange(rows)
    tops, y = [], 26
    for row in rows:
        tops.append(y)
        y += max(spot.height for spot in row) + ROW_GAP
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y - ROW_GAP + 26}" '
        'font-family="system-ui, sans-serif" role="img">',
        "<title>The rooms of searchrl: an arrow points from a room to one that it imports</title>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" fill="#5b6b7d"/></marker></defs>',
    ]
    levels = [level for level, _ in _rows(house)]
    for level, shade in enumerate(("#f3efe6", "#eaf1ea", "#e8eef6", "#f4ebf1")):
        numbers = [number for number, other in enumerate(levels) if other == level]
        top = tops[numbers[0]] - 20
        bottom = tops[numbers[-1]] + max(spot.height for spot in rows[numbers[-1]]) + 20
        out.append(
            f'<rect x="0" y="{top}" width="{WIDTH}" height="{bottom - top}" fill="{shade}"/>'
            f'<text x="10" y="{top + 22}" font-size="12" fill="#44505c">floor {level}</text>'
            f'<text x="10" y="{top + 39}" font-size="14" font-weight="600" fill="#44505c">'
            f"{FLOOR_NAMES[level]}</text>"
        )
    for row in rows:
        for spot in row:
            if spot.room is not None:
                out += [_draw_arrow(spot, follower, tops) for follower in spot.below]
    for row in rows:
        out += [_draw_box(spot, tops[spot.row]) for spot in row if spot.room is not None]
    return "\n".join([*out, "</svg>", ""])


def _draw_arrow(source: Spot, follower: Spot, tops: Sequence[int]) -> str:
    """A curve from a room through the lanes to the room it imports."""
    x, y = source.x, tops[source.row] + source.height
    path = [f"M{x:g} {y}"]
    spot = follower
    while True:
        end = tops[spot.row] - (2 if spot.room else 0)
        middle = (y + end) / 2
        path.append(f"C{x:g} {middle:g} {spot.x:g} {middle:g} {spot.x:g} {end}")
        if spot.room:
            break
        x, y = spot.x, tops[spot.row + 1] - ROW_GAP
        path.append(f"V{y}")
        spot = spot.below[0]
    return (
        f'<path d="{" ".join(path)}" fill="none" stroke="#5b6b7d" stroke-opacity="0.7" '
        'stroke-width="1.3" marker-end="url(#tip)"/>'
    )


def _draw_box(spot: Spot, top: int) -> str:
    left = spot.x - spot.width / 2
    texts = [
        f'<text x="{left + 9:g}" y="{top + 35 + LINE * number}" font-size="11.5" '
        f'fill="#44505c">{escape(line)}</text>'
        for number, line in enumerate(spot.lines)
    ]
    return (
        f'<rect x="{left:g}" y="{top}" width="{spot.width}" height="{spot.height}" rx="6" '
        f'fill="#ffffff" stroke="#5b6b7d"/><text x="{left + 9:g}" y="{top + 19}" '
        f'font-size="13.5" font-weight="600" fill="#1d2733">{escape(str(spot.room))}</text>'
        + "".join(texts)
    )


def main() -> None:
    """Write the picture."""
    PICTURE.write_text(draw(read_house()), encoding="utf-8")
    print(f"wrote {PICTURE.relative_to(DOCS.parent)}")


if __name__ == "__main__":
    main()
