"""What every environment of a run gained or lost between two evaluations, task by task.

Owns how episodes are paired, and when an environment counts as forgotten. The intervals are those
of `searchrl.statistics`.
"""

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
Asked = Mapping[str, list[Row]]
"""By split, id and question: environments may give their tasks the same ids."""


_SURE = 0.05
"""p of a change that counts where there is no interval."""


class Verdict(StrEnum):
    """What the 95 % interval of a change says."""

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
        """Whether it was forgotten."""
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
    earlier, changes = _by_entry(before), list[Change]()
    for (env, place), now in _by_entry(after).items():
        entries = {f"eval/{n}": one for n, one in enumerate(config.tasks) if one.env.name == env}
        # Of a single one it does not matter: short evaluations leave out entries, and count on.
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
        first, second = _means(shared[max(shared)], figure), _means(now, figure)
        if both := [task for task in first if task in second]:
            sides = [{figure: {task: one[task] for task in both}} for one in (first, second)]
            old, new = (estimate(side)[figure] for side in sides)
            change = compare(sides[1], sides[0])[figure]
            changes.append(Change(name, figure, old, new, change))
    return changes


def _by_entry(rows: Iterable[Row]) -> Mapping[tuple[str, str], dict[str, list[Row]]]:
    """The episodes of an evaluation by environment and place among those played (`eval/0`)."""
    found: dict[tuple[str, str], dict[str, list[Row]]] = {}
    for row in rows:
        place = row["group_id"].rpartition("/")[0]
        asked = "\n".join(row["task"][key] for key in ("split", "id", "question"))
        found.setdefault((row["env"], place), {}).setdefault(asked, []).append(row)
    return found


def _means(asked: Asked, figure: str) -> dict[str, float]:
    """The mean of a figure per task, of those that have it."""
    values = {
        task: [
            value
            for row in rows
            if (value := {**row["scores"], "reward": row["reward"]}.get(figure)) is not None
        ]
        for task, rows in asked.items()
    }
    return {task: math.fsum(of_task) / len(of_task) for task, of_task in values.items() if of_task}
