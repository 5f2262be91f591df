"""The picture of an evaluation: every retriever with its 95 % interval, one panel for each figure.

Owns how it looks. Drawn by matplotlib without a display. Called by `searchrl retrieve-eval --plot`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from searchrl import ConfigError
from searchrl_retrieval.evaluation.judging import Judged
from searchrl_retrieval.evaluation.measures import ALL_GOLD
from searchrl_retrieval.evaluation.table import headline, title
from searchrl_retrieval.extras import need

COLOUR = "#0b62c4"
PANEL_INCHES, ROW_INCHES = 3.4, 0.36


def ensure_can_draw(path: Path) -> None:
    """Refuse a picture that cannot be written, before retrievers search for minutes.

    Raises:
        ConfigError: matplotlib is not installed, there is no such folder, or no such format.
    """
    figure = _make_figure(1, 1)
    formats = figure.canvas.get_supported_filetypes()
    if path.suffix.lower().removeprefix(".") not in formats:
        raise ConfigError(
            f"--plot {path}: expected a file that ends in .{', .'.join(sorted(formats))}"
        )
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"--plot {path}: there is no folder '{path.parent}'")


def draw_judged(path: Path, heading: str, judged: Mapping[str, Judged]) -> None:
    """Write the picture; the end of the path says in which format."""
    keys = panel_keys(list(next(iter(judged.values())).metrics))
    figure = _make_figure(len(keys), len(judged))
    for axes, key in zip(figure.subplots(1, len(keys), sharey=True, squeeze=False)[0], keys,
                         strict=True):  # fmt: skip
        _draw_panel(axes, key, judged)
    figure.suptitle(heading, fontsize=11)
    # A fixed date and ids: the same figures give the same file.
    fixed = {"Date": None} if path.suffix.lower() in (".svg", ".svgz", ".pdf") else None
    figure.savefig(path, metadata=fixed)


def panel_keys(keys: Sequence[str]) -> list[str]:
    """Figures with a panel: nDCG, recall and, of multi-hop questions, all gold, at one cut-off."""
    first = headline(keys)
    cutoff = first.partition("@")[2]
    wanted = [first, f"recall@{cutoff}", f"{ALL_GOLD}@{cutoff}"]
    return [key for key in wanted if key in keys]


def _make_figure(num_panels: int, num_rows: int) -> Any:
    need("--plot", "eval", "matplotlib")
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    rcParams["svg.hashsalt"] = "searchrl"
    size = (PANEL_INCHES * num_panels + 1.2, ROW_INCHES * num_rows + 1.5)
    return Figure(figsize=size, layout="constrained")


def _draw_panel(axes: Any, key: str, judged: Mapping[str, Judged]) -> None:
    metrics = [one.metrics[key] for one in judged.values()]
    rows = range(len(metrics))
    values = [one["value"] for one in metrics]
    spread = [
        [one["value"] - one.get("low", math.nan) for one in metrics],
        [one.get("high", math.nan) - one["value"] for one in metrics],
    ]
    axes.errorbar(values, rows, xerr=spread, fmt="o", color=COLOUR, capsize=3, markersize=5)
    for row, value in zip(rows, values, strict=True):
        axes.annotate(f"{value:.3f}", (value, row), (0, 6), textcoords="offset points",
                      ha="center", fontsize=8)  # fmt: skip
    axes.set_yticks(list(rows), list(judged))
    axes.set_ylim(len(metrics) - 0.4, -0.7)  # the first one is on top
    axes.set_xlim(-0.03, 1.03)
    axes.set_title(title(key), fontsize=10)
    axes.grid(axis="x", color="#d8dee4", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
