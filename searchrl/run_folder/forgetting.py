"""Gains and losses of every environment of a run between two evaluations, task by task."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from searchrl.config import RunConfig
from searchrl.contracts import Metric, Paired
from searchrl.rewards.expression import RewardSchedule
from searchrl.statistics import compare, estimate

Row = dict[str, Any]
_Entries = dict[tuple[str, str], dict[str, list[Row]]]
"""Episodes by environment and place among those played (`eval/0`), then by task."""
_SURE = 0.05
"""p of a change that counts where there is no interval."""


class Verdict(StrEnum):
    """The 95 % interval of a change in a word."""

    FORGOT = "forgot"
    """All of it is below 0."""
    GAINED = "gained"
    """All of it is above 0."""
    KEPT = "no change shown"
    """It holds 0. A wide one may hide a loss."""
    UNKNOWN = "no interval"
    """Too few tasks changed, and the test of the change is not sure either."""


class Change(NamedTuple):
    """One environment: its `figure` in two evaluations, over the tasks that both asked."""

    env: str
    figure: str
    before: Metric
    after: Metric
    change: Paired

    @property
    def verdict(self) -> Verdict:
        """Forgotten, gained, or neither."""
        low, high = self.change.get("low"), self.change.get("high")
        if low is None or high is None:
            if self.change["p"] >= _SURE:
                return Verdict.UNKNOWN
            low = high = self.change["value"]  # all tasks changed alike
        if high < 0:
            return Verdict.FORGOT
        return Verdict.GAINED if low > 0 else Verdict.KEPT


def find_changes(config: RunConfig, before: Iterable[Row], after: Iterable[Row]) -> list[Change]:
    """Every environment of `config` that was asked some of its tasks both times.

    The figure is what its reward pays: `em`, `env`, or else the reward itself. Entries of one
    environment are paired by the tasks that they share.
    """
    earlier, changes = group_rows(before), list[Change]()
    for (env, place), now in group_rows(after).items():
        entries = {f"eval/{n}": one for n, one in enumerate(config.tasks) if one.env.name == env}
        # A single one needs none: short evaluations leave out entries, and count on.
        name = env if len(entries) == 1 else f"{env}.{place.removeprefix('eval/')}"
        entry = next(iter(entries.values())) if len(entries) == 1 else entries.get(place)
        shared = {
            (len(was.keys() & now.keys()), other == place): was
            for (other_env, other), was in earlier.items()
            if other_env == env
        }
        if entry is None or not shared:
            continue
        figure = RewardSchedule.parse(entry.reward).headline
        first, second = means_of(shared[max(shared)], figure), means_of(now, figure)
        if both := [task for task in first if task in second]:
            sides = [{figure: {task: one[task] for task in both}} for one in (first, second)]
            old, new = (estimate(side)[figure] for side in sides)
            change = compare(sides[1], sides[0])[figure]
            changes.append(Change(name, figure, old, new, change))
    return changes


def group_rows(rows: Iterable[Row]) -> _Entries:
    """Episodes by entry and task."""
    entries: _Entries = {}
    for row in rows:
        place = "/".join(row["group_id"].split("/")[:2])  # a forced one has more parts
        # All three: environments may give their tasks the same ids.
        task = "\n".join(row["task"][key] for key in ("split", "id", "question"))
        entries.setdefault((row["env"], place), {}).setdefault(task, []).append(row)
    return entries


def means_of(tasks: Mapping[str, list[Row]], figure: str) -> dict[str, float]:
    """The mean of a figure over the episodes of each task that have one."""
    means = {}
    for task, rows in tasks.items():
        scores = (
            row["reward"] if figure == "reward" else row["scores"].get(figure) for row in rows
        )
        if values := [value for value in scores if value is not None]:
            means[task] = math.fsum(values) / len(values)
    return means
