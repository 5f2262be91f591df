"""The table of a study: every arm against the first one, paired by seed and by task."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

from searchrl.contracts import Metric
from searchrl.programs.study import Cell
from searchrl.run_folder import Run

_COSTS = ("tokens", "seconds", "searches", "dead_groups")


@dataclass(frozen=True, slots=True)
class Arm:
    """A row: means over the seeds that have finished.

    `figure` and `difference` have Student's t-interval over the seeds. `difference` is that to the
    first arm, over the seeds and tasks that both have.
    """

    name: str
    num_runs: int
    num_missing: int
    figure: Metric | None
    difference: Metric | None
    costs: Mapping[str, float]
    curve: Sequence[tuple[float, float]]
    """Sampled tokens, and the mean of the figure in training until there, over the seeds."""

    def to_dict(self) -> dict[str, Any]:
        """The row as JSON."""
        return asdict(self)


def tabulate(cells: Sequence[tuple[Cell, Run | None]], figure: str) -> list[Arm]:
    """The rows of a study, in the order of its arms."""
    runs: dict[str, dict[int, Run]] = {}
    for cell, run in cells:
        runs.setdefault(cell.arm, {})
        if run is not None:
            runs[cell.arm][cell.seed] = run
    scores = {
        arm: {seed: _scores(run, figure) for seed, run in own.items()} for arm, own in runs.items()
    }
    first, rows = next(iter(runs)), []
    for arm, own in runs.items():
        pairs = [(scores[arm][seed], scores[first][seed]) for seed in own if seed in scores[first]]
        shared = [(mine, theirs, mine.keys() & theirs.keys()) for mine, theirs in pairs]
        gaps = [fmean(a[task] - b[task] for task in both) for a, b, both in shared if both]
        means = [fmean(one.values()) for one in scores[arm].values() if one]
        rows.append(
            Arm(
                name=arm,
                num_runs=len(own),
                num_missing=sum(cell.arm == arm for cell, _ in cells) - len(own),
                figure=over_seeds(means),
                difference=None if arm == first else over_seeds(gaps),
                costs=_costs([*own.values()]),
                curve=_curve([*own.values()], figure),
            )
        )
    return rows


def over_seeds(values: Sequence[float]) -> Metric | None:
    """The mean of some seeds with Student's t-interval; of one seed there is none."""
    from scipy.special import stdtrit

    if not values:
        return None
    made: Metric = {"value": fmean(values), "n": len(values)}
    if len(values) > 1:
        half = float(stdtrit(len(values) - 1, 0.975)) * stdev(values) / math.sqrt(len(values))
        made |= {"low": made["value"] - half, "high": made["value"] + half}
    return made


def remarks(rows: Sequence[Arm], tried: Mapping[str, int]) -> list[str]:
    """Sentences about what the table can show, and what it cannot."""
    said = []
    halves = [
        one["high"] - one["value"] for row in rows if (one := row.difference) and "high" in one
    ]
    if halves:
        said.append(
            f"differences below {max(halves):.3f} could not be shown by these seeds: that is the "
            "greatest half width"
        )
    elif len(rows) > 1:
        said.append("one seed shows no difference between arms: how much seeds differ is not known")
    counts = {row.name: tried.get(row.name, 1) for row in rows}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{name} {count}" for name, count in counts.items())
        said.append(
            f"the arms were not given the same search of settings (tried: {told}): part of a "
            "difference may be that"
        )
    if missing := sum(row.num_missing for row in rows):
        said.append(f"{missing} runs have not finished; searchrl study FILE goes on with them")
    return said


def _scores(run: Run, figure: str) -> dict[str, float]:
    """The figure of each task after training."""
    return {
        f"{row['env']}/{row['task']['id']}": row["scores"][figure]
        for row in run.rollouts("after")
        if row["scores"].get(figure) is not None
    }


def _costs(runs: Sequence[Run]) -> dict[str, float]:
    """Means over runs: sampled tokens, seconds, searches per episode, share of dead groups."""
    found: dict[str, list[float]] = {name: [] for name in _COSTS}
    for run in runs:
        rows = [row["metrics"] for row in run.metric_rows() if row["phase"] == "train"]
        if rows:
            found["tokens"].append(rows[-1].get("sampled_tokens", {}).get("value", 0.0))
        if (seconds := run.provenance.get("duration_s")) is not None:
            found["seconds"].append(seconds)
        for name in ("searches", "dead_groups"):
            if values := [row[name]["value"] for row in rows if name in row]:
                found[name].append(fmean(values))
    return {name: fmean(values) for name, values in found.items() if values}


def _curve(runs: Sequence[Run], figure: str) -> list[tuple[float, float]]:
    """The mean over runs at each step that all have: tokens so far, and the figure."""
    columns = []
    for run in runs:
        rows = [row["metrics"] for row in run.metric_rows() if row["phase"] == "train"]
        columns.append(
            [
                (row["sampled_tokens"]["value"], row[figure]["value"])
                for row in rows
                if figure in row and "sampled_tokens" in row
            ]
        )
    return [
        (fmean(x for x, _ in step), fmean(y for _, y in step))
        for step in zip(*columns, strict=False)
    ]
