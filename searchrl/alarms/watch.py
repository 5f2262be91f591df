"""The watch of a run: its alarms, what they see, and which of them have sounded already.

An alarm sounds once per trouble; an error in one names its plugin. Nothing is written here, and no
run ended.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from searchrl.config.alarms import OFF, AlarmSpec
from searchrl.config.sections import AUTO
from searchrl.contracts.history import History
from searchrl.contracts.watching import Alarm, find_alert_problem
from searchrl.errors import PluginError
from searchrl.plugins import Entry, Registry
from searchrl.plugins.registry import raising_of
from searchrl.rewards.expression import RewardSchedule

QUIET = 20
"""Steps without its trouble after which an alarm may sound again."""


class Watch:
    """Asks the alarms of a run after every step.

    `specs` is `alarms.watch` of the configuration, `history` what the alarms see, `rewards` the
    reward of every task by its name ("" if there is one).
    """

    def __init__(
        self,
        registry: Registry,
        specs: Mapping[str, AlarmSpec],
        history: History,
        rewards: Mapping[str, RewardSchedule] | None = None,
    ) -> None:
        self.history = history
        self._alarms: list[tuple[str, Entry, Alarm, str]] = []
        for name, spec in specs.items():
            if spec.action != OFF:
                entry = registry.get("alarm", name)
                self._alarms.append((name, entry, entry.make(**spec.settings), spec.action))
        self._rewards = dict(rewards or {})
        self._held: dict[str, int] = {}

    def ask(self, step: int) -> list[dict[str, Any]]:
        """The alarms that begin to sound after `step`, as rows of alarms.jsonl."""
        self.history.weights = {
            name: {c: weight for weight, c in schedule.at(step).terms if c is not None}
            for name, schedule in self._rewards.items()
        }
        new = []
        for name, entry, alarm, action in self._alarms:
            what = f"{entry} failed in check() at step {self.history.step}:"
            advice = f". Leave it out with --set alarms.watch.{entry.name}=off"
            with raising_of(what, advice=advice):
                alert = alarm.check(self.history)
            if problem := find_alert_problem(alert, self.history.step):
                raise PluginError(f"{entry} returned {problem}")
            if alert is None:
                continue
            held, self._held[name] = self._held.get(name), step
            if held is None or step - held > QUIET:
                row = {
                    "step": step,
                    "alarm": name,
                    "severity": alert.severity,
                    "action": alert.action if action == AUTO else action,
                    "since": alert.since,
                    "what": alert.what,
                    "why": alert.why,
                    "tries": list(alert.tries),
                }
                new.append(row)
        return new

    def begin_anew(self) -> None:
        """Forget what was seen and what has sounded: the policy is another one now."""
        self.history.clear()
        self._held.clear()

    def replay(self, rows: Iterable[Mapping[str, Any]], last_step: int, anew: int = -1) -> None:
        """Take in the rows of metrics.jsonl of a run that goes on; what sounds is not said.

        The alarms are asked again about the last `QUIET` steps up to `last_step`: that tells which
        of them sound. What came before `anew`, where the watch began anew, is left out.
        """
        by_step = itertools.groupby(rows, lambda row: int(row["step"]))
        for step, of_step in by_step:
            if step <= anew:
                continue
            for row in of_step:
                self.history.add(step, row["phase"], row["metrics"])
            if last_step - QUIET <= step <= last_step and self.history.steps():
                self.ask(step)
