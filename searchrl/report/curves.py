"""Curves of many runs together: a line and a band over the runs of an arm, by sampled tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape

import numpy as np

from searchrl.contracts import Metric
from searchrl.run_folder import Run
from searchrl.screen.figures import Figures, chosen_keys, format_value, label
from searchrl.statistics import over_seeds

Curve = list[tuple[float, Metric]]
"""Tokens that a run had sampled, and the mean over runs there, with its interval."""

_NUM_POINTS = 20
_COLOURS = ("#4477aa", "#ee6677", "#228833", "#aa3377", "#bb8800", "#2299bb", "#888888")
_STYLE = """text { font: 12px system-ui, sans-serif; fill: #7a818c } .grid { stroke: #8886 }
.line { fill: none; stroke-width: 2 } .band { fill-opacity: .14 }"""


def read_steps(run: Run) -> list[Figures]:
    """The figures of each training step of a run."""
    return [row["metrics"] for row in run.metric_rows() if row["phase"] == "train"]


def find_curve(runs: Sequence[Sequence[Figures]], name: str) -> Curve:
    """The curve of a figure over some runs, to where the shortest ends; empty if none has it.

    A point is the mean over the tokens since the one before, so that every step counts.
    """
    seen = [[row for row in steps if {name, "sampled_tokens"} <= row.keys()] for steps in runs]
    keys = ("sampled_tokens", name)
    columns = [np.array([[row[k]["value"] for row in one] for k in keys]) for one in seen if one]
    if not columns:
        return []
    num_points = min(_NUM_POINTS, *(len(tokens) for tokens, _ in columns))
    edges = np.linspace(0, min(tokens[-1] for tokens, _ in columns), num_points + 1)
    means = []
    for tokens, values in columns:
        sums = np.cumsum(np.diff(tokens, prepend=0) * values)
        means.append(np.diff(np.interp(edges, [0, *tokens], [0, *sums])) / np.diff(edges))
    at = zip(edges[1:].tolist(), np.transpose(means).tolist(), strict=True)
    return [(place, over_seeds(values)) for place, values in at]


def draw_all(arms: Mapping[str, Sequence[Run]]) -> dict[str, str]:
    """A picture of each figure that a person reads, by a name for its file."""
    steps = {arm: [read_steps(run) for run in runs] for arm, runs in arms.items()}
    drawn = {}
    for key in chosen_keys(rows[-1] for runs in steps.values() for rows in runs if rows):
        curves = {arm: find_curve(runs, key) for arm, runs in steps.items()}
        if any(len(curve) > 1 for curve in curves.values()):
            drawn[re.sub(r"[^\w.-]+", "_", key)[:80]] = "\n".join(_draw(curves, label(key)))
    return drawn


def _draw(curves: Mapping[str, Curve], title: str) -> Iterator[str]:
    """The curves of some arms as SVG, for light and dark pages."""
    points = [one for curve in curves.values() for one in curve]
    values, most = [metric["value"] for _, metric in points], max(tokens for tokens, _ in points)
    room = (max(values) - min(values)) / 2 or 0.5  # a wide band is cut, so that lines stay apart
    low = max(min(m.get("low", m["value"]) for _, m in points), min(values) - room)
    low = low if min(values) < 0 else max(low, 0.0)
    high = min(max(m.get("high", m["value"]) for _, m in points), max(values) + room)

    def x(tokens: float) -> float:
        return round(50 + 300 * tokens / most, 1)

    def y(value: float) -> float:
        return round(210 - 190 * (min(max(value, low), high) - low) / (high - low or 1), 1)

    size = 260 + 18 * len(curves)
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 380 {size}">'
    yield f"<style>{_STYLE}</style>"
    yield f'<text x="50" y="250">{escape(title)} in training, by sampled tokens</text>'
    for part in (0, 0.5, 1):
        value, tokens = low + part * (high - low), part * most
        yield f'<path class="grid" d="M50 {y(value)}H350"/>'
        yield f'<text x="44" y="{y(value)}" text-anchor="end">{format_value("", value)}</text>'
        yield f'<text x="{x(tokens)}" y="230" text-anchor="middle">{tokens:,.0f}</text>'
    coloured = [(*one, _COLOURS[n % len(_COLOURS)]) for n, one in enumerate(curves.items())]
    for _, curve, colour in coloured:  # bands below all lines
        seen = [(x(at), y(m["high"]), y(m["low"])) for at, m in curve if "low" in m]
        edge = [f"{at},{up}" for at, up, _ in seen] + [f"{at},{down}" for at, _, down in seen[::-1]]
        yield f'<polygon class="band" fill="{colour}" points="{" ".join(edge)}"/>'
    for top, (arm, curve, colour) in enumerate(coloured):
        line = [f"{x(at)},{y(metric['value'])}" for at, metric in curve]
        yield f'<polyline class="line" stroke="{colour}" points="{" ".join(line)}"/>'
        yield f'<path class="line" stroke="{colour}" d="M50 {264 + 18 * top}h16"/>'
        yield f'<text x="72" y="{268 + 18 * top}">{escape(arm)}</text>'
    yield "</svg>\n"
