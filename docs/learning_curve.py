"""Draws the learning curve of the recorded run as SVG: `record_run.py` writes learning_curve.svg.

Owns how the picture looks: EM and searched of the greedy evaluations over the steps, with their
intervals, and horizontal lines: the EM of the start, as it is and forced to search first, and of
the trained model, and that of the scripted policies. It is given figures
and computes none. Plain SVG, no plotting library; colours for light and dark backgrounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

from searchrl.contracts import Metric

WIDTH, HEIGHT = 700, 420
"""Pixels; the text keeps its size at this width."""
LEFT, RIGHT, TOP, BOTTOM = 46, 184, 62, 48
"""Margins in pixels: labels of the axis, of the policies, the legend, the steps."""
LABEL_GAP = 17
"""Least distance of two labels, in pixels."""

LEGEND = (46, 300, 528)
"""Where the columns of the legend begin, in pixels."""

CURVES = {
    "em": ("exact match (EM)", "em"),
    "searched": ("searched", "searched"),
}
"""Metric -> its name in the legend and its colour's name."""

STYLE = """\
  .paper { fill: #ffffff } .ink { fill: #24292f } .faint { fill: #57606a }
  .grid { stroke: #d8dee4 } .axis { stroke: #57606a }
  .em { --c: #0b62c4 } .searched { --c: #2c7a3f }
  .line { stroke: var(--c); stroke-width: 2.2; fill: none } .dot { fill: var(--c) }
  .band { fill: var(--c); fill-opacity: 0.14 }
  .plain { --c: #57606a }
  .sampled { stroke: var(--c); stroke-width: 1; stroke-opacity: 0.5; fill: none }
  .policy { stroke: #6e7781; stroke-width: 1.3; stroke-dasharray: 6 4 }
  .level { stroke: #b3500f; stroke-width: 2 }
  .leader { stroke: #6e7781; stroke-width: 0.8; fill: none }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #0d1117 } .ink { fill: #e6edf3 } .faint { fill: #9da7b1 }
    .grid { stroke: #2b323b } .axis { stroke: #9da7b1 }
    .plain { --c: #9da7b1 } .em { --c: #58a6ff } .searched { --c: #56d364 }
    .band { fill-opacity: 0.2 } .level { stroke: #f0883e } .policy, .leader { stroke: #9da7b1 }
  }"""


class Point(NamedTuple):
    """After how many steps something was measured, and its metrics."""

    step: int
    metrics: Mapping[str, Metric]


class Curve(NamedTuple):
    """Everything the picture shows.

    `points` are greedy evaluations, `sampled` the training steps, on training tasks; `levels` has
    the EM of the model before and after, `policies` that of each scripted policy, by name.
    """

    title: str
    max_steps: int
    points: Sequence[Point]
    sampled: Sequence[Point]
    levels: dict[str, float]
    policies: dict[str, float]


def draw_curve(curve: Curve) -> str:
    """The picture as SVG, the same for the same figures."""
    measured = [key for key in CURVES if any(key in point.metrics for point in curve.points)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'font-family="system-ui, sans-serif" font-size="13" role="img">',
            f"<title>{escape(curve.title)}</title>",
            f"<style>\n{STYLE}\n</style>",
            '<rect class="paper" width="100%" height="100%" rx="6"/>',
            *_axes(curve.max_steps),
            *_levels(curve),
            *(line for key in CURVES for line in _draw_sampled(curve, key)),
            *(line for key in measured for line in _draw_one(curve, key)),
            *_legend(measured, has_sampled=bool(curve.sampled)),
            "</svg>",
            "",
        ]
    )


def _x(step: float, max_steps: int) -> float:
    return round(LEFT + (WIDTH - LEFT - RIGHT) * step / max(max_steps, 1), 1)


def _y(value: float) -> float:
    return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value, 1)


def _text(x: float, y: float, text: str, style: str = "ink", anchor: str = "start") -> str:
    return f'<text class="{style}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'


def _axes(max_steps: int) -> Iterator[str]:
    right = WIDTH - RIGHT
    for value in (0, 0.2, 0.4, 0.6, 0.8, 1):
        y = _y(value)
        style = "grid" if value else "axis"
        yield f'<path class="{style}" d="M{LEFT} {y:g}H{right}"/>'
        yield _text(LEFT - 8, y + 4, f"{value:.1f}", "faint", "end")
    for step in _ticks(max_steps):
        yield _text(_x(step, max_steps), _y(0) + 19, str(step), "faint", "middle")
    yield _text((LEFT + right) / 2, HEIGHT - 10, "training steps", "faint", "middle")


def _ticks(max_steps: int) -> list[int]:
    """Five or so round numbers from 0 to the last step."""
    width = next((w for w in (1, 2, 5, 10, 20, 50, 100, 200, 500) if max_steps <= 6 * w), 1000)
    return list(range(0, max_steps + 1, width))


def _draw_one(curve: Curve, key: str) -> Iterator[str]:
    """The band, the line and the dots of one metric."""
    seen = [(p.step, p.metrics[key]) for p in curve.points if key in p.metrics]
    at = [(_x(step, curve.max_steps), metric) for step, metric in seen]
    if all("low" in metric and "high" in metric for _, metric in at):
        upper = [f"{x:g},{_y(metric['high']):g}" for x, metric in at]
        lower = [f"{x:g},{_y(metric['low']):g}" for x, metric in reversed(at)]
        yield f'<polygon class="{CURVES[key][1]} band" points="{" ".join(upper + lower)}"/>'
    line = " ".join(f"{x:g},{_y(metric['value']):g}" for x, metric in at)
    yield f'<polyline class="{CURVES[key][1]} line" points="{line}"/>'
    for x, metric in at:
        y = _y(metric["value"])
        yield f'<circle class="{CURVES[key][1]} dot" cx="{x:g}" cy="{y:g}" r="3.2"/>'


def _draw_sampled(curve: Curve, key: str) -> Iterator[str]:
    """A thin line of what the training steps measured of one metric, if they did."""
    seen = [(point.step, point.metrics[key]) for point in curve.sampled if key in point.metrics]
    line = " ".join(f"{_x(step, curve.max_steps):g},{_y(m['value']):g}" for step, m in seen)
    if line:
        yield f'<polyline class="{CURVES[key][1]} sampled" points="{line}"/>'


def _legend(measured: Sequence[str], *, has_sampled: bool) -> Iterator[str]:
    entries = [(CURVES[key][0], f"{CURVES[key][1]} line") for key in measured]
    if has_sampled:
        entries.append(("in training, sampled", "plain sampled"))
    entries.append(("EM before, search first, after", "level"))
    entries.append(("EM of a scripted policy", "policy"))
    for number, (name, style) in enumerate(entries):
        column, row = number % len(LEGEND), number // len(LEGEND)
        x, y = LEGEND[column], 22 + 20 * row
        yield f'<path class="{style}" d="M{x} {y - 4}h22"/>'
        yield _text(x + 28, y, name)


def _levels(curve: Curve) -> Iterator[str]:
    """A line for each level, its label at the right, moved where labels would meet."""
    right = WIDTH - RIGHT
    rows = sorted((curve.levels | curve.policies).items(), key=lambda item: -item[1])
    wanted = [_y(value) for _, value in rows]
    for (name, value), line, label in zip(rows, wanted, spread(wanted, LABEL_GAP), strict=True):
        style = "level" if name in curve.levels else "policy"
        yield f'<path class="{style}" d="M{LEFT} {line:g}H{right}"/>'
        yield f'<path class="leader" d="M{right} {line:g}L{right + 12} {label:g}"/>'
        yield _text(right + 16, label + 4, f"{name} {value:.2f}")


def spread(wanted: Sequence[float], gap: float) -> list[float]:
    """Places in rising order, at least `gap` apart, each as near as it can be to where it should.

    >>> spread([10.0, 12.0, 90.0], 20.0)
    [1.0, 21.0, 90.0]
    """
    pools: list[tuple[float, int]] = []
    for number, place in enumerate(wanted):
        pools.append((place - gap * number, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, m), (b, n) = pools[-2:]
            pools[-2:] = [((a * m + b * n) / (m + n), m + n)]
    starts = [start for start, count in pools for _ in range(count)]
    return [round(start + gap * number, 1) for number, start in enumerate(starts)]
