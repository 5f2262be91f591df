"""The table of a study: every arm against the first one, paired by seed and by task."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from searchrl.contracts import Metric
from searchrl.programs.study import Cell
from searchrl.report.curves import Curve, find_curve, read_steps
from searchrl.run_folder import Run
from searchrl.run_folder.forgetting import group_rows, means_of
from searchrl.screen.figures import sparkline
from searchrl.statistics import over_seeds


class Arm(NamedTuple):
    """A row: means over the runs that have finished, with Student's t-interval over seeds.

    `difference` is that to the first arm, on the seeds and tasks of both; `failed` a share of runs.
    """

    name: str
    num_runs: int
    num_missing: int
    failed: float
    figure: Metric | None
    difference: Metric | None
    costs: Mapping[str, float]
    curve: Curve


def tabulate(cells: Sequence[Cell], figure: str) -> list[Arm]:
    """The rows of a study, in the order of its arms."""
    done = {cell: run for cell in cells if (run := cell.run)}
    scores = {(cell.arm, cell.seed): _by_task(run, figure) for cell, run in done.items()}
    rows, base = list[Arm](), cells[0].arm
    for arm in dict.fromkeys(cell.arm for cell in cells):
        own = [cell for cell in cells if cell.arm == arm]
        runs = [done[cell] for cell in own if cell in done]
        means, gaps = list[float](), list[float]()
        for cell in own:
            values, first = (scores.get((one, cell.seed), {}) for one in (arm, base))
            if values:
                means.append(fmean(values.values()))
            if arm != base and (both := values.keys() & first.keys()):
                gaps.append(fmean(values[task] - first[task] for task in both))
        steps = [read_steps(run) for run in runs]
        costs = {"seconds": [s for run in runs if (s := run.provenance.get("duration_s"))]}
        for name in ("sampled_tokens", "searches", "dead_groups"):
            seen = [[row[name]["value"] for row in one if name in row] for one in steps]
            mean = max if name == "sampled_tokens" else fmean
            costs[name] = [mean(values) for values in seen if values]
        rows.append(
            Arm(
                name=arm,
                num_runs=len(runs),
                num_missing=len(own) - len(runs),
                failed=fmean(cell not in done and cell.failed.exists() for cell in own),
                figure=over_seeds(means) if means else None,
                difference=over_seeds(gaps) if gaps else None,
                costs={name: fmean(values) for name, values in costs.items() if values},
                curve=find_curve(steps, figure),
            )
        )
    return rows


def remarks(rows: Sequence[Arm], tried: Mapping[str, int]) -> list[str]:
    """Sentences about what the table can show, and what it cannot."""
    texts = []
    differences = [row.difference for row in rows if row.difference]
    if halves := [one["high"] - one["value"] for one in differences if "high" in one]:
        texts.append(
            "intervals are over seeds, on the same tasks; a difference below "
            f"{max(halves):.3f} (half the widest) cannot be told from none with these seeds"
        )
    elif differences:
        texts.append("one seed shows no difference between arms: seeds may differ by as much")
    counts = {row.name: tried.get(row.name, 1) for row in rows}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{name} {count}" for name, count in counts.items())
        texts.append(
            f"the arms were not given the same search of settings (tried: {told}): a difference "
            "may come from that"
        )
    if missing := sum(row.num_missing for row in rows):
        texts.append(f"runs that have not finished: {missing}; searchrl study FILE goes on")
    return texts


def format_rows(rows: Sequence[Arm], figure: str) -> tuple[list[str], dict[str, list[str]]]:
    """The heads of the columns, and the cells by arm, as the terminal and the page have them."""
    costs = list(next((row.costs for row in rows if row.costs), ()))
    cells = {
        row.name: [
            _show(row.figure),
            _show(row.difference, "+"),
            f"{row.num_runs} of {row.num_runs + row.num_missing}",
            f"{row.failed:.0%}",
            *(_show_cost(row.costs[name]) if name in row.costs else "—" for name in costs),
        ]
        for row in rows
    }
    heads = [figure, f"minus {rows[0].name}", "runs", "failed", *costs]
    return [head.replace("_", " ") for head in heads], cells


def format_curve(curve: Curve) -> list[str]:
    """A line of blocks, and four of the points."""
    points = [curve[math.ceil(part * len(curve) / 4) - 1][1] for part in (1, 2, 3, 4)]
    return [sparkline([metric["value"] for _, metric in curve], 20), *map(_show, points)]


def _show(one: Metric | None, sign: str = "") -> str:
    if one is None:
        return "—"
    half = f" ± {one['high'] - one['value']:.3f}" if "high" in one else ""
    return f"{one['value']:{sign}.3f}{half}"


def _show_cost(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _by_task(run: Run, figure: str) -> dict[tuple[str, str], float]:
    """The figure of each task after training."""
    entries = group_rows(run.rollouts("after")).items()
    means = [(env, means_of(tasks, figure)) for (env, _), tasks in entries]
    return {(env, task): value for env, of in means for task, value in of.items()}
