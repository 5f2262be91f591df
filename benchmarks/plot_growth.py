"""Draw how the cost of a step grows with turns, from what `bench_turns.py --json` wrote.

    python benchmarks/plot_growth.py RESULT.json docs/growth.svg

Two panels, each relative to one turn of our side: CPU seconds per step, and prompt and observation
tokens computed. Plain SVG, no plotting library.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

WIDTH, HEIGHT, MARGIN = 340, 240, 46
COLOURS = {"re-prefill loop": "#c0392b", "SearchRL": "#1f6f8b", "linear": "#999999"}


def panel(
    title: str, turns: Sequence[int], lines: Mapping[str, Sequence[float]], left: int
) -> list[str]:
    """One panel with linear axes from 0."""
    top = max(max(values) for values in lines.values())
    last = max(turns)

    def x(turn: float) -> float:
        return left + MARGIN + (WIDTH - 2 * MARGIN) * turn / last

    def y(value: float) -> float:
        return HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * value / top

    middle = left + WIDTH / 2
    parts = [
        f'<text x="{middle}" y="22" text-anchor="middle" font-weight="bold">{title}</text>',
        f'<path d="M{x(0)} {y(top)}V{y(0)}H{x(last)}" fill="none" stroke="#444"/>',
        f'<text x="{x(last / 2)}" y="{HEIGHT - 10}" text-anchor="middle">turns</text>',
    ]
    for turn in turns:
        parts.append(f'<text x="{x(turn)}" y="{y(0) + 15}" text-anchor="middle">{turn}</text>')
    for share in (0.5, 1.0):
        label = f"{share * top:.0f}×" if top >= 10 else f"{share * top:.1f}×"
        parts.append(
            f'<text x="{x(0) - 5}" y="{y(share * top) + 4}" text-anchor="end">{label}</text>'
        )
    for number, (name, values) in enumerate(lines.items()):
        points = " ".join(
            f"{x(turn):.1f},{y(value):.1f}" for turn, value in zip(turns, values, strict=True)
        )
        dash = ' stroke-dasharray="4 3"' if name == "linear" else ""
        colour = COLOURS[name]
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>'
        )
        parts.append(
            f'<text x="{x(0) + 10}" y="{y(top) + 12 + 15 * number}" fill="{colour}">{name}</text>'
        )
    return parts


def main() -> None:
    """Read, draw, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("result", type=Path)
    parser.add_argument("svg", type=Path)
    args = parser.parse_args()
    rows = json.loads(args.result.read_text("utf-8"))["turns"]
    turns = sorted(map(int, rows))
    found = [rows[str(turn)] for turn in turns]
    panels = {}
    for title, loop, ours in (
        (
            "CPU seconds per step",
            [row["loop"]["cpu_s"] for row in found],
            [row["ours"]["cpu_s"] for row in found],
        ),
        (
            "prompt and observation tokens computed",
            [row["loop_prefill"] for row in found],
            [row["ours_prefill"] for row in found],
        ),
    ):
        panels[title] = {
            "re-prefill loop": [value / ours[0] for value in loop],
            "SearchRL": [value / ours[0] for value in ours],
        }
    panels["CPU seconds per step"]["linear"] = [float(turn) / turns[0] for turn in turns]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, (title, lines) in enumerate(panels.items()):
        parts += panel(title, turns, lines, number * WIDTH)
    args.svg.write_text("\n".join([*parts, "</svg>"]) + "\n", "utf-8")


if __name__ == "__main__":
    main()
