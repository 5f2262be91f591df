"""Recorded curves as the alarms see them: a run is a line of a JSONL file of curves.

tests/fixtures/alarms/README.md says where the runs are from.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from searchrl.alarms.watch import Watch
from searchrl.config import build_config
from searchrl.contracts.history import History
from searchrl.errors import ConfigError
from searchrl.plugins import Registry, load_plugins
from searchrl.rewards.expression import RewardSchedule

FOLDER = Path(__file__).resolve().parents[1] / "fixtures" / "alarms"

BELLS = Path(__file__).resolve().parents[1] / "fixtures" / "bells.py"

Run = Mapping[str, Any]
Row = tuple[int, str, dict[str, dict[str, float]]]


@cache
def registry() -> Registry:
    """The built-in alarms, and bells."""
    return load_plugins([str(BELLS)], entry_points=False)


def read_runs(name: str) -> dict[str, Run]:
    """The runs of a file by name."""
    lines = (FOLDER / f"{name}.jsonl").read_text("utf-8").splitlines()
    return {run["name"]: run for run in map(json.loads, lines)}


def rows_of(run: Run) -> list[Row]:
    """The rows of metrics.jsonl in order: a number in place of a list stands at every step."""
    rows: list[Row] = []
    for phase in ("train", "during"):
        curves = run.get(phase, {"step": []})
        for number, step in enumerate(curves["step"]):
            here = {
                name: values[number] if isinstance(values, list) else values
                for name, values in curves.items()
                if name != "step"
            }
            metrics = {
                name: {"value": value, "n": 64}
                | ({"low": 0.0, "high": here[f"{name}_high"]} if f"{name}_high" in here else {})
                for name, value in here.items()
                if value is not None and not name.endswith("_high")
            }
            rows.append((step, phase, metrics))
    return sorted(rows, key=lambda row: (row[0], row[1] == "during"))


def make_watch(run: Run, **watch: Any) -> Watch:
    """The alarms that watch by default, over the settings of a run."""
    specs = build_config({"alarms": {"watch": watch}}).alarms.watch
    try:
        rewards = {"": RewardSchedule.parse(run["reward"])}
    except ConfigError:
        rewards = {}
    return Watch(registry(), specs, History(run["settings"]), rewards)


def steps_of(run: Run) -> Iterator[tuple[int, list[Row]]]:
    """The rows of every step after step 0, in order; those of step 0 come with the first."""
    rows = rows_of(run)
    waiting: list[Row] = []
    for number, row in enumerate(rows):
        waiting.append(row)
        is_last = number + 1 == len(rows) or rows[number + 1][0] != row[0]
        if is_last and row[0]:
            yield row[0], waiting
            waiting = []


def play(run: Run, watch: Watch | None = None) -> list[dict[str, Any]]:
    """Everything that sounds in a run."""
    watch = watch or make_watch(run)
    sounded = []
    for step, rows in steps_of(run):
        for row in rows:
            watch.history.add(*row)
        sounded += watch.ask(step)
    return sounded
