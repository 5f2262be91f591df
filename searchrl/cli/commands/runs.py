"""`searchrl runs` and `searchrl inspect`: which run folders there are, and what is in one.

Owns the table, what is said of pruning, and of a report that was written. The folders are read by
`searchrl.results.listing`, the report is made by `searchrl.report`. No torch.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from searchrl.cli.json_output import print_json
from searchrl.cli.lines import say
from searchrl.cli.options import (
    JSON,
    PLUGIN,
    RUNS,
    STRICT,
    TRUST,
    Flag,
    GroupedCommand,
    options,
)
from searchrl.errors import ConfigError

if TYPE_CHECKING:
    from searchrl.report.rewards import Again
    from searchrl.results.listing import Pruned, RunRow

_PATH_WIDTH = 24
"""Characters of a path that stay on one line however narrow the terminal is."""


@click.command(cls=GroupedCommand)
@click.argument("folders", nargs=-1, metavar="[DIR]...")
@options(RUNS)
def runs(folders: tuple[str, ...], **values: Any) -> None:
    """List run folders: what, when, how far, figures and size on disk.

    DIR is a run, or a folder with runs in it; by default runs/. With --prune, their checkpoints
    are removed, but for the newest and the best of each run. Damaged files are named; with
    --verify every file is read and compared with its checksum.

    \b
    Examples:
      searchrl runs
      searchrl runs runs/mine --prune --keep 1
      searchrl runs --json
    """
    from searchrl.results.listing import DEFAULT_FOLDER, find_runs, list_runs, prune_checkpoints

    chosen = [Path(folder) for folder in folders or (DEFAULT_FOLDER,)]
    if not values["prune"]:
        for name in ("keep", "dry_run"):
            if values[name] is not None:
                raise ConfigError(f"--{name.replace('_', '-')} goes with --prune")
        rows = list_runs(chosen, deep=bool(values["verify"]))
        if values["json"]:
            listed = [row.to_dict() for row in rows]
            print_json({"runs": listed})
        else:
            _show(rows, chosen)
        return
    keep = 1 if values["keep"] is None else values["keep"]
    is_dry = bool(values["dry_run"])
    pruned = [prune_checkpoints(run, keep, is_dry=is_dry) for run in find_runs(chosen)]
    if values["json"]:
        listed = [one.to_dict() for one in pruned]
        print_json({"runs": listed})
    else:
        _show_pruned(pruned, is_dry=is_dry)


def _show(rows: list[RunRow], folders: list[Path]) -> None:
    from rich.table import Column, Table
    from rich.text import Text

    from searchrl.cli.screen.figures import format_seconds, format_value, label
    from searchrl.cli.terminal import make_console
    from searchrl.engine.memory.plan import format_bytes

    if not rows:
        say(f"no runs in {', '.join(map(str, folders))}; `searchrl train` makes one")
        return
    longest = max(len(str(row.path)) for row in rows)
    table = Table(
        Column("run", overflow="fold", min_width=min(_PATH_WIDTH, longest)),
        "what",
        "started (UTC)",
        Column("took", justify="right"),
        "state",
        "figures",
        Column("on disk", justify="right"),
        box=None,
        padding=(0, 2, 0, 0),
        header_style="dim",
    )
    for row in rows:
        figures = ""
        if (found := row.figures) is not None:
            both = ((found.before, found.before_on), (found.after, found.after_on))
            told = [(format_value(found.name, v), on) for v, on in both if v is not None]
            if len({on for _, on in told}) == 1:  # an arrow is between figures of the same tasks
                told = [(" → ".join(value for value, _ in told), told[0][1])]
            figures = f"{label(found.name)} " + ", ".join(f"{value} ({on})" for value, on in told)
        state = f"{row.state}, damaged" if row.damaged else str(row.state)
        if row.state != "finished" and row.num_steps:
            state = f"{state}, step {row.step} of {row.num_steps}"
        table.add_row(
            str(row.path),
            f"{row.program} {', '.join(row.envs)}, {row.model}",
            row.started[:16].replace("T", " "),
            "" if row.duration_s is None else format_seconds(row.duration_s),
            state,
            figures,
            format_bytes(row.num_bytes),
        )
    console = make_console(sys.stdout)
    if not console.is_terminal:  # a line for each run, for other programs to read
        console.width = 10_000
    console.print(table)
    for text in (text for row in rows for text in row.damaged):
        console.print(Text(text, "yellow"))
    total = sum(row.num_bytes for row in rows)
    held = sum(row.checkpoint_bytes for row in rows)
    console.print(
        f"{len(rows)} run{'' if len(rows) == 1 else 's'}, {format_bytes(total)}, "
        f"{format_bytes(held)} of it checkpoints (searchrl runs --prune)",
        style="dim",
    )


def _show_pruned(pruned: list[Pruned], *, is_dry: bool) -> None:
    from searchrl.engine.memory.plan import format_bytes

    word = "would remove" if is_dry else "removed"
    for one in pruned:
        if one.reason:
            say(f"{one.run}: left alone, {one.reason}")
        elif one.removed:
            names = ", ".join(one.removed)
            say(f"{one.run}: {word} {names} ({format_bytes(one.freed_bytes)})")
        else:
            say(f"{one.run}: nothing to remove")
    freed = sum(one.freed_bytes for one in pruned)
    say(f"{'would free' if is_dry else 'freed'} {format_bytes(freed)}")


INSPECT = (
    Flag("--out", "", "Where the report goes; by default RUN/report.", metavar="DIR"),
    Flag("--compare", "", "A second run, compared on the tasks that both played.", metavar="RUN"),
    Flag("--text", "", "Print it here and write nothing: for ssh.", is_switch=True),
    Flag("--rollout", "", "With --text: one rollout, token by token.", metavar="NAME"),
    Flag(
        "--reward",
        "",
        "Another reward to show beside the recorded one; may be repeated.",
        str,
        "EXPR",
        True,
    ),
    PLUGIN,
    TRUST,
    STRICT,
    JSON,
)
"""Its flags."""


@click.command(cls=GroupedCommand)
@click.argument("run", metavar="RUN")
@options(INSPECT)
def inspect(run: str, **values: Any) -> None:
    """Write a page that shows a run: figures, alarms, rollouts, every token.

    RUN is a run folder. The page is a folder of plain files; open its index.html from disk, or put
    it on any web server. Nothing that the run names is run, but for a --reward.

    \b
    Examples:
      searchrl inspect runs/mine
      searchrl inspect runs/mine --reward 0.2*format+f1
      searchrl inspect runs/mine --out report --compare runs/other
      searchrl inspect runs/mine --text
      searchrl inspect runs/mine --text --rollout after.40/eval/0/0/0
    """
    from searchrl.run_folder import Run

    found = Run.find(run) or Run.open(run)
    if values["text"]:
        for flag in ("out", "compare", "json"):
            if values[flag] is not None:
                raise ConfigError(f"--{flag} goes without --text, which writes nothing")
        if values["reward"]:
            raise ConfigError(
                "--reward goes without --text; in a terminal, this compares two rewards: "
                f"searchrl score {run} --reward '{values['reward'][0]}'"
            )
        from searchrl.cli.screen.report import show_rollout, show_run

        show_rollout(found, values["rollout"]) if values["rollout"] else show_run(found)
        return
    if values["rollout"] is not None:
        raise ConfigError(
            "--rollout goes with --text; on the page, a rollout has its own address: "
            f"index.html#/rollout/{values['rollout']}"
        )
    from searchrl.engine.memory.plan import format_bytes
    from searchrl.report.folder import write_report

    runs = [found] if values["compare"] is None else [found, Run.open(values["compare"])]
    again: list[list[Again]] = []
    if values["reward"]:
        from searchrl.cli.loading import load_run
        from searchrl.report.rewards import score_run

        rewards, plugins = list(dict.fromkeys(values["reward"])), values["plugin"] or ()
        for one in runs:
            loaded = load_run(one, plugins, is_strict=bool(values["strict"]))
            again.append(score_run(one, *loaded, rewards))
    report = write_report(runs, Path(values["out"] or found.path / "report"), again)
    if values["json"]:
        facts = {"num_rollouts": report.num_rollouts, "num_bytes": report.num_bytes}
        print_json({"page": str(report.page), **facts})
        return
    say(f"{report.page}: {report.num_rollouts:,} rollouts, {format_bytes(report.num_bytes)}")
    for note in report.notes:
        say(f"note: {note}")
    say(f"Next:  open {report.page.resolve().as_uri()}")
