"""What a person sees while a run goes on: an `Observer` on a terminal, or on plain lines.

On a terminal a live table shows every metric with its trend, the progress of the current phase
and the time left. Elsewhere (a pipe, a log, CI) every step is one plain line without control codes.
It computes nothing: the programs tell it everything. `train`, `sft`, `eval` and `bench` use it. The
bar is that of the whole run (`progress`); at its end comes one sentence (`ending`), then the table.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from searchrl.cli.screen.ending import describe_result, list_alarms
from searchrl.cli.screen.figures import (
    CHOOSES,
    format_duration,
    format_metric,
    format_seconds,
    is_kind,
    is_share,
    label,
    shown_keys,
    sparkline,
)
from searchrl.cli.screen.next_command import after_training
from searchrl.cli.screen.progress import RunProgress
from searchrl.cli.screen.transcript import render_rollout, render_sample
from searchrl.cli.terminal import make_console as make_console
from searchrl.config import RunConfig
from searchrl.contracts import Metric
from searchrl.engine.episodes.playing import Rollout
from searchrl.engine.figures.metrics import Metrics
from searchrl.engine.memory.plan import MemoryPlan, format_bytes
from searchrl.errors import DamagedError
from searchrl.programs.observer import Row, Work
from searchrl.programs.setup.indexes import INDEX
from searchrl.rewards.expression import RewardSchedule

LOSS_HINT = (
    "a loss of 0 is right here: at ratio 1 centred advantages cancel; the gradient is not 0. "
    "Watch reward, KL and entropy."
)
DEAD_HINT = (
    "this step taught nothing: in every group all rollouts have the same reward, so the gradient "
    "is 0. That is normal now and then; if dead groups stay at 1, tasks are too hard or too easy."
)

_BAR = 24
"""Columns of the progress bar."""
_WIDE = 110
"""Columns from which on the phase stands beside the bar; below, it has a line of its own."""
_TREND = (6, 18)
"""Fewest and most columns of a trend."""
_TABLE_REST = 74
"""Columns that the rest of the table needs."""
_SAMPLES = 5
"""Sample episodes that plain output shows of a run, besides that of the first step."""


class ConsoleObserver:
    """Shows a run. Use as a context manager: at its end the terminal is in order again.

    Args:
        console: where to.
        details: show every metric, and the parts of the memory plan.
    """

    def __init__(self, console: Console, *, details: bool = False) -> None:
        self.console = console
        self.details = details
        self.started = time.monotonic()
        self._live: Live | None = None
        self._progress: RunProgress | None = None
        self._phase: tuple[str, int, int] = ("", 0, 0)
        self._step = 0
        self._max_steps = 0
        self._now: Metrics = {}
        self._seen: Metrics = {}
        self._history: dict[str, list[float]] = {}
        # The loss has no row unless details are shown; then 0 needs no explanation either.
        self._hints = [LOSS_HINT, DEAD_HINT] if details else [DEAD_HINT]
        self._held_out: dict[str, Mapping[str, Metric]] = {}
        self._latest_step = 0
        self._sample: tuple[int, Rollout] | None = None
        self._pair: tuple[Row | None, Row] | None = None

    def __enter__(self) -> ConsoleObserver:
        return self

    def __exit__(self, *raised: object) -> None:
        self._stop_live()

    # The Observer interface.

    def begin(self, work: Work) -> None:
        """Start the bar of the run; take in what an earlier process recorded of it."""
        self._progress = RunProgress(work)
        self._step, self._max_steps = work.done, work.steps
        for row in work.rows:
            self._take_in(row["phase"], row["step"], row["metrics"])

    def plan(self, config: RunConfig, facts: Mapping[str, Any]) -> None:
        """Print the plan in a few lines."""
        tasks = (f"{t.env.name} (reward {RewardSchedule.parse(t.reward)})" for t in config.tasks)
        for name, value in {"tasks": ", ".join(tasks), **facts}.items():
            if isinstance(value, MemoryPlan):
                self._show_memory(value)
                continue
            self.console.print(Text.assemble((f"{name:<11}", "bold"), str(value)))

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
        if self._progress is not None:
            self._progress.phase(name, done, total)
        if self.console.is_terminal:
            self._start_live()
        elif is_new and name.startswith("evaluate"):
            self.console.print(f"{name}: {total} episode{'s' if total != 1 else ''} …")
        elif is_new and name.startswith(INDEX):
            self.console.print(f"{name} …")

    def step(self, step: int, max_steps: int, metrics: Metrics) -> None:
        """Take in a finished step."""
        self._step, self._max_steps = step, max_steps
        self._take_in("train", step, metrics)
        if self._progress is not None:
            self._progress.step(step)
        hint = loss_hint(metrics)
        if hint in self._hints:
            self._hints.remove(hint)
            self.note(hint)
        if self.console.is_terminal:
            self._start_live()
            return
        keys = [key for key in self._keys([metrics]) if not is_kind(key)]
        parts = [f"step {step}/{max_steps}", _on_a_line(keys, metrics)]
        if eta := self._eta():
            parts.append(f"ETA {eta}")
        self.console.print("  ".join(parts))
        if self._sample is not None and self._is_sample_due():
            self.console.print(self._render_sample())

    def evaluation(self, label: str, step: int, metrics: Metrics) -> None:
        """Take in a finished evaluation."""
        self._take_in(label, step, metrics)
        if self._progress is not None:
            self._progress.evaluation()
        if not self.console.is_terminal:
            values = _on_a_line(shown_keys([metrics]), metrics)
            self.console.print(f"evaluation {label} (step {step}): {values}")

    def _take_in(self, phase: str, step: int, metrics: Metrics) -> None:
        if phase not in ("train", "sft"):
            self._held_out[phase] = metrics
            self._latest_step = step
            return
        self._now = metrics
        self._seen |= metrics
        for name, metric in metrics.items():
            self._history.setdefault(name, []).append(metric["value"])

    def episodes(self, rollouts: Sequence[Rollout]) -> None:
        """Keep a sample of a step."""
        shown = next((r for r in rollouts if r.is_scored), None)
        self._sample = None if shown is None else (self._step + 1, shown)

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
        gap = "  " if len(result) + len(took) + 2 <= self.console.width else "\n"
        self.console.print(Text.assemble((result, "bold"), gap * bool(result), (took, "dim")))
        self.console.print()
        if "after" in self._held_out:
            self.console.print(self._table(), "")
        if self._pair is not None:
            was, now = self._pair
            if was is not None:
                self.console.print(render_rollout("before training", was), "")
            self.console.print(render_rollout("after training", now), "")
        self._say_where(run_dir, summary)

    def _show_memory(self, plan: MemoryPlan) -> None:
        """The plan in a line; its parts as rows if details are asked for."""
        self.console.print(Text.assemble((f"{'memory':<11}", "bold"), str(plan)))
        if plan.advice:
            self.warn(plan.advice)
        if not self.details:
            return
        size = Column(justify="right", no_wrap=True)
        columns = (Column(min_width=9), Column(), size, Column(style="dim"), Column(style="dim"))
        table = Table(*columns, box=None, padding=(0, 2, 0, 0), show_header=False)
        for part in plan.parts:
            table.add_row("", part.name, format_bytes(part.num_bytes), part.phase, part.why)
        self.console.print(table)

    # The live table.

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
        progress = self._progress
        head = Text(no_wrap=True, overflow="ellipsis")
        if progress is not None:
            head.append(f"{100 * progress.share:.0f} % of the run", "bold")
            head.append(f"  step {self._step}/{self._max_steps}")
            if eta := self._eta():
                head.append(f"  ETA {eta}", "dim")
        doing = f"{name} {done}/{total}" if name else ""
        is_beside = progress is None or self.console.width >= _WIDE
        if is_beside:
            head.append("  " * bool(head) + doing, "cyan")
        share = done / max(total, 1) if progress is None else progress.share
        line = Table.grid(padding=(0, 1))
        line.add_row(ProgressBar(total=1.0, completed=share, width=_BAR), head)
        above: list[RenderableType] = [line]
        if not is_beside:  # also while there is nothing to say, or the table would jump
            above.append(Text(doing, "cyan", no_wrap=True, overflow="ellipsis"))
        # The last empty line is for the `^C` that a terminal echoes: it would shift what is drawn.
        below = [""] if self._sample is None else ["", *self._render_sample().renderables, ""]
        if not self._now and not self._held_out:
            return Group(*above, *below)
        room = self.console.height - len(above) - len(below)
        return Group(*above, self._table(room), *below)

    def _render_sample(self) -> Group:
        assert self._sample is not None
        step, rollout = self._sample
        return render_sample(f"an episode of step {step}", rollout)

    def _is_sample_due(self) -> bool:
        every = max(1, self._max_steps // _SAMPLES)
        return self._step == 1 or self._step % every == 0

    def _keys(self, metrics: Sequence[Mapping[str, Metric]]) -> list[str]:
        return shown_keys(metrics, None if self.details else self._history)

    def _table(self, room: int | None = None) -> Table:
        """Metrics as rows: held out before, training now and its trend, held out latest.

        With `room` for fewer lines, kinds and slices of tasks have no row, nor have actions.
        """
        before = self._held_out.get("before", {})
        latest_label = next((k for k in ("after", "during") if k in self._held_out), "")
        latest = self._held_out.get(latest_label, {})
        trend = min(max(_TREND[0], self.console.width - _TABLE_REST), _TREND[1])
        table = Table("metric", box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
        keys = self._keys([before, self._now, latest, self._seen])
        for is_detail in (is_kind, is_share):
            if room is not None and len(keys) >= room:  # one line more is the head
                keys = [key for key in keys if not is_detail(key)]
        cells = [[label(key) for key in keys]]
        if before:
            table.add_column("held out, before", no_wrap=True)
            cells.append([format_metric(key, before) for key in keys])
        if self._now:
            table.add_column("training", justify="right", no_wrap=True)
            cells.append([format_metric(key, self._now, is_bare=True) for key in keys])
            table.add_column("trend", no_wrap=True, style="green")
            cells.append([sparkline(self._history.get(key, []), trend) for key in keys])
        if latest:
            when = "after" if latest_label == "after" else f"step {self._latest_step}"
            table.add_column(f"held out, {when}", no_wrap=True)
            cells.append([format_metric(key, latest) for key in keys])
        for row in zip(*cells, strict=True):
            table.add_row(*row)
        return table

    def _eta(self) -> str:
        left = None if self._progress is None else self._progress.seconds_left
        return format_seconds(left) if left and left >= 1 else ""

    def _say_where(self, run_dir: Path, summary: Mapping[str, Any]) -> None:
        places = {
            "run": run_dir,
            "summary": run_dir / "summary.json",
            "policy": summary.get("policy", run_dir / "policy"),
        }
        if sounded := list_alarms(summary.get("alarms", ())):
            self.console.print(Text.assemble(("alarms     ", "bold yellow"), sounded))
        for name, place in places.items():
            self.console.print(Text.assemble((f"{name:<11}", "bold"), str(place)))
        tries = after_training(run_dir, summary)
        self.console.print(Text.assemble(("try        ", "bold"), "\n           ".join(tries)))


def loss_hint(metrics: Mapping[str, Metric]) -> str:
    """What to say of a training step whose loss or gradient is 0; "" if there is nothing."""
    if "reward" not in metrics:  # nothing was scored, or it is supervised training
        return ""
    loss, grad_norm, dead = (metrics.get(key) for key in ("loss", "grad_norm", "dead_groups"))
    if dead is not None and dead["value"] == 1 and (grad_norm is None or not grad_norm["value"]):
        return DEAD_HINT
    is_zero = loss is not None and abs(loss["value"]) < 1e-6
    has_gradient = grad_norm is not None and grad_norm["value"] > 0
    return LOSS_HINT if is_zero and has_gradient else ""


def _on_a_line(keys: Sequence[str], metrics: Mapping[str, Metric]) -> str:
    shares = [key for key in keys if is_share(key) and key in metrics]
    parts = [f"{k} {format_metric(k, metrics, is_bare=True)}" for k in keys if not is_share(k)]
    if shares:
        said = (f"{label(key)} {100 * metrics[key]['value']:.0f} %" for key in shares)
        parts.append(", ".join(said).replace(f", {CHOOSES}", ", "))
    return "  ".join(parts)


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
