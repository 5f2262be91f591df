"""`searchrl forgetting`: which tasks of a mixture a run lost, and how far each is from a run alone.

The pairing and the verdicts are those of `Run.changes`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from searchrl import ConfigError, Run

if TYPE_CHECKING:
    from searchrl.contracts import Metric, Paired

_FORGOT = "forgot"


@click.command("forgetting")
@click.argument("folder", metavar="RUN")
@click.option("--step", type=int, metavar="N", help="The evaluation after N steps, not the last.")
@click.option("--before", metavar="RUN", help="A run whose last evaluation is the one before.")
@click.option(
    "--alone", "others", multiple=True, metavar="RUN",
    help="A run on one of the tasks alone; may be repeated.",
)  # fmt: skip
@click.option("--strict", is_flag=True, help="End with status 1 if a task was forgotten.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def forgetting(
    folder: str,
    step: int | None,
    before: str | None,
    others: tuple[str, ...],
    strict: bool,
    as_json: bool,
) -> None:
    """Name the tasks of a mixture that a run forgot.

    RUN is a run of several environments. Each is compared on the tasks that the evaluations before
    and after training both asked. It is forgotten if the 95 % interval of the change is below 0.

    \b
    Examples:
      searchrl forgetting runs/mixture
      searchrl forgetting runs/mixture --alone runs/search --alone runs/code
    """
    run = Run.open(folder)
    if len(run.config.tasks) < 2:
        raise ConfigError(
            f"'{folder}' has one environment, and a mixture has several: train with "
            "--set tasks.1.env=NAME"
        )
    changes = run.changes(None if before is None else Run.open(before), step)
    if not changes:
        raise ConfigError(_why_nothing(run, before, step))
    alone = {}
    for name in others:
        (only,) = _compare_alone(run, name, step)
        alone[only.env] = only
    rows = [
        {**one._asdict(), "verdict": str(one.verdict), **_beside(alone.get(one.env))}
        for one in changes
    ]
    forgotten = [row["env"] for row in rows if row["verdict"] == _FORGOT]
    if as_json:
        click.echo(json.dumps({"run": folder, "tasks": rows, "forgotten": forgotten}))
    else:
        _show(rows, has_alone=bool(others))
        if missing := len(run.config.tasks) - len(rows):
            click.echo(f"{missing} of the run's tasks were not asked both times")
    if strict and forgotten:
        click.get_current_context().exit(1)


def _why_nothing(run: Run, before: str | None, step: int | None) -> str:
    """Why no task was found in both evaluations, and what to do."""
    rows = run.metric_rows()
    steps = {row["phase"]: row["step"] for row in rows}
    if not run.config.log.rollouts:
        return f"'{run.path}' recorded no episodes; train with --set log.rollouts=true"
    if before is None and "before" not in steps:
        return (
            f"'{run.path}' recorded no evaluation before training, as runs of sft do not: "
            "evaluate what it began with (`searchrl eval START --run-dir DIR`), and add "
            "--before DIR"
        )
    known = [row["step"] for row in rows if row["phase"] in ("during", "after")]
    if (step is None and "after" not in steps) or (step is not None and step not in known):
        shown = ", ".join(map(str, dict.fromkeys(known))) or "none"
        return f"'{run.path}' has no such evaluation; there are some after step (--step): {shown}"
    return (
        f"the two evaluations of '{run.path}' share no task. Those during training play the split "
        f"validation, those before and after {run.config.eval.split}; with --set "
        "eval.split=validation they are the same"
    )


def _compare_alone(run: Run, name: str, step: int | None) -> Sequence[Any]:
    """The task of a run alone, as `before`, and what the mixture reached, as `after`."""
    other = Run.open(name)
    envs = [task.env.name for task in other.config.tasks]
    if len(envs) > 1:
        raise ConfigError(f"--alone {name}: it has several environments ({', '.join(envs)})")
    changes = run.changes(other, step)
    if not changes:
        raise ConfigError(
            f"--alone {name}: its last evaluation ({envs[0]}, split {other.config.eval.split}) "
            f"shares no task with those of '{run.path}', so nothing can be compared; use the same "
            "env, env settings and eval.split"
        )
    return changes[:1]


def _beside(alone: Any) -> dict[str, Any]:
    """The figure of a run on the task alone, and the share of it that the mixture has."""
    if alone is None:
        return {}
    reached, value = alone.before["value"], alone.after["value"]
    return {"alone": alone.before, "ratio": value / reached if reached > 0 else None}


def _show(rows: Sequence[Mapping[str, Any]], *, has_alone: bool) -> None:
    """A row for each task, then a line for each that was forgotten."""
    from rich.console import Console
    from rich.table import Table

    columns = ["figure", "before [95 %]", "after", "change", "tasks", "verdict"]
    table = Table("task", *columns, *(["alone", "of alone"] if has_alone else []), box=None)
    for row in rows:
        cells = [_say(row["before"]), _say(row["after"]), _say(row["change"], "+")]
        cells += [str(row["change"]["n"]), row["verdict"]]
        if has_alone:
            ratio = row.get("ratio")
            cells += [_say(row["alone"]) if "alone" in row else "—"]
            cells += ["—" if ratio is None else f"{ratio:.2f}"]
        table.add_row(row["env"], row["figure"], *cells)
    # In a file or a pipe there is no width that lines must fit.
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False, markup=False)
    console.print(table)
    lost = [row for row in rows if row["verdict"] == _FORGOT]
    for row in lost:
        change = f"{row['figure']} {_say(row['change'], '+')} over {row['change']['n']} tasks"
        console.print(f"forgot {row['env']}: {change}", style="red")
    if not lost:
        console.print("no task lost more than its interval")


def _say(metric: Metric | Paired, sign: str = "") -> str:
    """A figure with its interval, if it has one."""
    text = f"{metric['value']:{sign}.3f}"
    if "low" not in metric or "high" not in metric:
        return text
    return f"{text} [{metric['low']:{sign}.3f}, {metric['high']:{sign}.3f}]"
