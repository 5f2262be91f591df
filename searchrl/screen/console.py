"""The display of a run under way: an `Observer` on a terminal, or on plain lines.

On a terminal a live table shows the figures with their trends below the bar of the whole run.
Elsewhere (a pipe, a log, CI) every step is one plain line without control codes.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from searchrl.config import RunConfig
from searchrl.engine.metrics.metrics import Metrics
from searchrl.engine.rollout.worlds import SEARCH_METRICS
from searchrl.errors import DamagedError
from searchrl.rewards.expression import RewardSchedule
from searchrl.screen.ending import describe_result, list_alarms
from searchrl.screen.figures import (
    Figures,
    chosen_keys,
    format_duration,
    format_metric,
    is_kind,
    label,
    make_table,
    sparkline,
)
from searchrl.screen.observer import Observer, Row
from searchrl.screen.terminal import make_console as make_console
from searchrl.screen.transcript import render_rollout

_BAR = 24  # columns
_SPEED_S = 600  # of the run, whose speed gives the time left
_TREND = (6, 18)  # fewest and most columns
_TABLE_REST = 74  # columns that the rest of the table needs


class ConsoleObserver(Observer):
    """Shows a run. Use as a context manager: at its end the terminal is in order again.

    `details` shows every figure.
    """

    def __init__(self, console: Console, *, details: bool = False) -> None:
        self.console = console
        self.details = details
        self.started = time.monotonic()
        # A notebook draws anew with ipywidgets; else it gets lines, as a log does.
        self._is_live = console.is_terminal or (
            console.is_jupyter and find_spec("ipywidgets") is not None
        )
        self._live: Live | None = None
        self._progress = Progress(
            BarColumn(_BAR),
            TextColumn("{task.percentage:.0f} %{task.description}", markup=False),
            TextColumn("ETA", style="dim"),
            TimeRemainingColumn(),
            console=console,
            speed_estimate_period=_SPEED_S,
        )
        self._bar = self._progress.add_task("")
        self._is_run = False
        """True once the number of steps is known; else the bar is that of a phase."""
        self._phase: tuple[str, int, int] = ("", 0, 0)
        self._now: Metrics = {}
        self._seen: Metrics = {}
        self._history: dict[str, list[float]] = {}
        self._held_out: dict[str, Figures] = {}
        self._latest_step = 0
        self._pair: tuple[Row | None, Row] | None = None

    def __enter__(self) -> ConsoleObserver:
        return self

    def __exit__(self, *raised: object) -> None:
        self._stop_live()

    def begin(self, steps: int, done: int = 0, rows: Sequence[Row] = ()) -> None:
        """Start the bar of the run; take in what an earlier process recorded of it."""
        self._is_run = True
        self._progress.update(self._bar, completed=done, total=max(steps, 1))
        for row in rows:
            self._take_in(row["phase"], row["step"], row["metrics"])

    def plan(self, config: RunConfig, facts: Mapping[str, Any]) -> None:
        """Print the plan in a few lines."""
        tasks = (f"{t.env.name} (reward {RewardSchedule.parse(t.reward)})" for t in config.tasks)
        for name, value in {"tasks": ", ".join(tasks), **facts}.items():
            self._say(name, str(value))

    def note(self, text: str) -> None:
        """Print one line."""
        self.console.print(Text(text, "dim"))

    def warn(self, text: str) -> None:
        """Print a warning in its own colour."""
        self.console.print(Text.assemble(("warning: ", "bold yellow"), (text, "yellow")))

    def alarm(self, row: Mapping[str, Any]) -> None:
        """Print an alarm: what happened in colour, then why it matters and what to try."""
        colour = {"notice": "cyan", "critical": "red"}.get(row["severity"], "yellow")
        head = f"alarm {row['alarm']} ({row['severity']}, since step {row['since']}): "
        first, second = row["tries"]
        rest = {"why it matters": row["why"], "try first": first, "then": second}
        self.console.print(Text.assemble((head, f"bold {colour}"), (row["what"], colour)))
        for name, text in rest.items():
            self.console.print(Text.assemble((f"  {name}: ", "bold"), text))

    def last_words(self, text: str) -> None:
        """Print the last line, below the table."""
        self._stop_live()
        self.console.print(Text(text, "bold"), soft_wrap=True)

    def phase(self, name: str, done: int, total: int) -> None:
        """Move the progress bar; plain output says once that a long phase began."""
        is_new = name != self._phase[0]
        self._phase = (name, done, total)
        if not self._is_run:
            self._progress.update(self._bar, completed=done, total=max(total, 1))
        if self._is_live:
            self._start_live()
        elif is_new and name.startswith(("evaluate", "index")):
            episodes = f": {total} episode{'s' if total != 1 else ''}"
            self.console.print(f"{name}{episodes if name.startswith('evaluate') else ''} …")

    def step(self, step: int, max_steps: int, metrics: Metrics) -> None:
        """Take in a finished step."""
        self._phase = ("", 0, 0)
        self._take_in("train", step, metrics)
        place = f" of the run  step {step}/{max_steps}"
        self._progress.update(self._bar, completed=step, total=max_steps, description=place)
        if self._is_live:
            self._start_live()
            return
        keys = [key for key in self._keys([metrics]) if not is_kind(key)]
        left = self._progress.tasks[0].time_remaining
        eta = f"  ETA {format_duration(left)}" if left and left >= 1 else ""
        self.console.print(f"step {step}/{max_steps}  {_on_a_line(keys, metrics)}{eta}")

    def evaluation(self, label: str, step: int, metrics: Metrics) -> None:
        """Take in a finished evaluation."""
        self._take_in(label, step, metrics)
        self._phase = ("", 0, 0)
        if not self._is_live:
            values = _on_a_line(chosen_keys([metrics], details=self.details), metrics)
            self.console.print(f"evaluation {label} (step {step}): {values}")

    def compare(self, before: Iterable[Row], after: Iterable[Row]) -> None:
        """Choose one task to show twice."""
        try:
            self._pair = choose_pair(before, after)
        except DamagedError as error:
            self.warn(str(error))

    def done(self, run_dir: Path, summary: Mapping[str, Any]) -> None:
        """Print the result in a sentence, the table, an episode before and after, the places."""
        if "before" in summary:
            self._held_out.setdefault("before", summary["before"])
        if self._live is not None:
            self._live.transient = True  # the table comes once more, below the sentence
            self._stop_live()
        before, after = (self._held_out.get(side, {}) for side in ("before", "after"))
        result = describe_result(before, after, summary.get("headline", "em"))
        took = f"took {format_duration(time.monotonic() - self.started)}"
        self.console.print()
        line = Text.assemble((result, "bold"), "  " * bool(result), (took, "dim"))
        self.console.print(line, soft_wrap=True)
        self.console.print()
        if "after" in self._held_out:
            self.console.print(self._table(), "")
        if self._pair is not None:
            was, now = self._pair
            if was is not None:
                self.console.print(render_rollout("before training", was), "")
            self.console.print(render_rollout("after training", now), "")
        if sounded := list_alarms(summary.get("alarms", ())):
            self.console.print(Text.assemble(("alarms     ", "bold yellow"), sounded))
        self._say("run", str(run_dir))
        self._say("summary", str(run_dir / "summary.json"))
        self._say("policy", str(summary.get("policy", run_dir / "policy")))
        folder = shlex.quote(str(run_dir))
        again = f"searchrl eval {folder}"
        tries = [summary[name] for name in ("train", "ask") if name in summary]
        tries = [f"searchrl inspect {folder}", *tries, again]
        if any(key.rpartition("/")[2] in SEARCH_METRICS for key in summary.get("after", ())):
            tries.append(f"{again} --retriever random")
        self._say("try", f"\n{'':11}".join(tries))

    def _take_in(self, phase: str, step: int, metrics: Metrics) -> None:
        if phase not in ("train", "sft"):
            self._held_out[phase] = metrics
            self._latest_step = step
            return
        self._now = metrics
        self._seen |= metrics
        for name, metric in metrics.items():
            self._history.setdefault(name, []).append(metric["value"])

    def _say(self, name: str, text: str) -> None:
        self.console.print(Text.assemble((f"{name:<11}", "bold"), text))

    def _start_live(self) -> None:
        if self._live is None:
            self._live = Live(
                get_renderable=self._render, console=self.console, vertical_overflow="crop"
            )
            self._live.start()

    def _stop_live(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _render(self) -> RenderableType:
        name, done, total = self._phase
        # A line also while there is nothing to say, or the table would jump.
        doing = Text(f"{name} {done}/{total}" if name else "", "cyan", no_wrap=True)
        # The last empty line is for the `^C` that a terminal echoes: it would shift what is drawn.
        if not self._now and not self._held_out:
            return Group(self._progress, doing, "")
        return Group(self._progress, doing, self._table(self.console.height - 3), "")

    def _keys(self, metrics: Sequence[Figures]) -> list[str]:
        return chosen_keys(metrics, self._history, details=self.details)

    def _table(self, room: int | None = None) -> Table:
        """Metrics as rows: held out before, training now and its trend, held out latest.

        With `room` for fewer lines, kinds of tasks have no row.
        """
        before = self._held_out.get("before", {})
        latest_label = next((k for k in ("after", "during") if k in self._held_out), "")
        latest = self._held_out.get(latest_label, {})
        trend = min(max(_TREND[0], self.console.width - _TABLE_REST), _TREND[1])
        keys = self._keys([before, self._now, latest, self._seen])
        if room is not None and len(keys) >= room:  # one line more is the head
            keys = [key for key in keys if not is_kind(key)]
        columns: dict[str, list[str]] = {}
        if before:
            columns["held out, before"] = [format_metric(key, before) for key in keys]
        if self._now:
            columns["training"] = [format_metric(key, self._now, is_bare=True) for key in keys]
            columns["trend"] = [sparkline(self._history.get(key, []), trend) for key in keys]
        if latest:
            when = "after" if latest_label == "after" else f"step {self._latest_step}"
            columns[f"held out, {when}"] = [format_metric(key, latest) for key in keys]
        cells = zip(*columns.values(), strict=True) if columns else [()] * len(keys)
        return make_table("metric", columns, dict(zip(keys, cells, strict=True)))


def make_observer(observer: Observer | None, *, quiet: bool) -> AbstractContextManager[Observer]:
    """The observer of a program: a given one, none that speaks, or the display of the command."""
    if observer is not None or quiet:
        return nullcontext(observer or Observer())
    return ConsoleObserver(make_console())


def _on_a_line(keys: Sequence[str], metrics: Figures) -> str:
    return "  ".join(f"{label(k)} {format_metric(k, metrics, is_bare=True)}" for k in keys)


def choose_pair(before: Iterable[Row], after: Iterable[Row]) -> tuple[Row | None, Row] | None:
    """One task before and after: that whose reward grew most; at a tie, that with more turns.

    Episodes with an answer before come first. None if nothing was evaluated after; the first member
    is None if nothing was evaluated before.
    """
    earlier = {row["rollout_id"]: row for row in before}

    def gain(row: Row) -> tuple[bool, float, int]:
        old = earlier.get(row["rollout_id"])
        gained = (row["reward"] or 0.0) - (old["reward"] or 0.0 if old else 0.0)
        # A wrong answer before tells a reader more than an episode that broke off.
        is_answered = old is None or old["final_answer"] is not None
        return is_answered and gained > 0, gained, len(row["turns"])

    best = max(after, key=gain, default=None)
    return None if best is None else (earlier.get(best["rollout_id"]), best)
