"""`searchrl runs`, `inspect` and `trust`: run folders, the page of one, its plugins. No torch."""

from __future__ import annotations

import platform
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

import click

from searchrl.cli import options
from searchrl.cli.options import Command, option
from searchrl.errors import ConfigError
from searchrl.screen.lines import print_json, say, style

if TYPE_CHECKING:
    from searchrl.run_folder import Run
    from searchrl.runs.listing import Pruned, RunRow


@click.command(cls=Command)
@click.argument("folders", nargs=-1, metavar="[DIR]...")
@option("--prune", "Remove checkpoints, but for the newest and the best.", is_flag=True)
@option("--keep N", "With --prune: how many of the newest stay.", type=click.IntRange(min=1))
@option("--dry-run", "With --prune: only say what would go.", is_flag=True)
@option("--verify", "Read every file and compare it with its checksum.", is_flag=True)
@options.JSON
def runs(folders: tuple[str, ...], **values: Any) -> None:
    """List run folders: what, when, how far, figures and size on disk.

    DIR is a run, or a folder with runs in it; by default runs/. With --prune, their checkpoints
    are removed, but for the newest and the best of each run. Damaged files are named; with
    --verify every file is read and compared with its checksum, and damage ends it with status 1.

    \b
    Examples:
      searchrl runs
      searchrl runs runs/mine --prune --keep 1
      searchrl runs --json
    """
    from searchrl.runs.listing import DEFAULT_FOLDER, find_runs, list_runs, prune_checkpoints

    chosen = [Path(folder) for folder in folders or (DEFAULT_FOLDER,)]
    is_dry = values["dry_run"]
    if values["prune"]:
        keep = 1 if values["keep"] is None else values["keep"]
        pruned = [prune_checkpoints(run, keep, is_dry=is_dry) for run in find_runs(chosen)]
        if values["json"]:
            print_json({"runs": [asdict(one) for one in pruned]})
        else:
            _show_pruned(pruned, is_dry=is_dry)
        return
    if is_dry or values["keep"] is not None:
        raise ConfigError(f"{'--dry-run' if is_dry else '--keep'} goes with --prune")
    rows = list_runs(chosen, deep=values["verify"])
    if values["json"]:
        print_json({"runs": [asdict(row) for row in rows]})
    else:
        _show(rows, chosen)
    if values["verify"] and any(row.damaged for row in rows):
        sys.exit(1)


def _show(rows: list[RunRow], folders: list[Path]) -> None:
    from rich.text import Text

    from searchrl.engine.memory.plan import format_bytes
    from searchrl.screen.figures import format_value, label, make_table
    from searchrl.screen.terminal import make_console

    if not rows:
        say(f"no runs in {', '.join(map(str, folders))}; `searchrl train` makes one")
        return

    columns = ["what", "started (UTC)", "state", "figures"]
    shown = {}
    for row in rows:
        what = f"{row.program} {', '.join(row.envs)}, {row.model}"
        started = row.started[:16].replace("T", " ")
        state = f"{row.state}, damaged" if row.damaged else str(row.state)
        if row.state != "finished" and row.num_steps:
            state += f", step {row.step} of {row.num_steps}"
        key = row.figure or ""
        values = [format_value(key, v) for v in (row.before, row.after) if v is not None]
        figures = f"{label(key)} {' → '.join(values)}" if key else ""
        shown[str(row.path)] = [what, started, state, figures]
    console = make_console(sys.stdout)
    if not console.is_terminal:  # a line for each run, for other programs to read
        console.width = 10_000
    console.print(make_table("run", columns, shown, name=str, can_wrap=True))
    for text in (text for row in rows for text in row.damaged):
        console.print(Text(text, "yellow"))
    total = sum(row.bytes for row in rows)
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
            say(f"{one.path}: left alone, {one.reason}")
        elif one.removed:
            names = ", ".join(one.removed)
            say(f"{one.path}: {word} {names} ({format_bytes(one.freed_bytes)})")
        else:
            say(f"{one.path}: nothing to remove")
    freed = sum(one.freed_bytes for one in pruned)
    say(f"{'would free' if is_dry else 'freed'} {format_bytes(freed)}")


@click.command(cls=Command)
@click.argument("run", metavar="RUN")
@option("--out DIR", "Where the report goes; by default RUN/report.")
@option("--compare RUN", "Another run, compared on the tasks that both played.", multiple=True)
@option("--watch", "Serve the page of a run that is still going, until Ctrl-C.", is_flag=True)
@options.JSON
def inspect(run: str, **values: Any) -> None:
    """Write a page that shows a run: figures, alarms, rollouts, every token.

    RUN is a run folder. The page is a folder of plain files; open its index.html from disk, or put
    it on any web server. Nothing that the run names is run.

    With --watch the page follows the run, at an address of this machine that nobody can guess; it
    lies in a temporary folder, and nothing is written into the run folder.

    \b
    Examples:
      searchrl inspect runs/mine
      searchrl inspect runs/mine --watch
      searchrl inspect runs/mine --out report --compare runs/other
    """
    from searchrl.engine.memory.plan import format_bytes
    from searchrl.report.folder import write_report
    from searchrl.run_folder import Run

    opened = Run.find(run) or Run.open(run)
    if values["watch"]:
        for name in ("out", "compare"):
            if values[name]:
                raise ConfigError(f"--{name} does not go with --watch; leave one of them out")
        _watch(opened, is_json=values["json"])
    runs = [opened, *map(Run.open, values["compare"])]
    report = write_report(runs, Path(values["out"] or opened.path / "report"))
    if values["json"]:
        facts = {"num_rollouts": report.num_rollouts, "num_bytes": report.num_bytes}
        print_json({"page": str(report.page), **facts})
        return
    say(f"{report.page}: {report.num_rollouts:,} rollouts, {format_bytes(report.num_bytes)}")
    for note in report.notes:
        say(f"note: {note}")
    say(f"Next:  open {report.page.resolve().as_uri()}")


def _watch(run: Run, *, is_json: bool) -> NoReturn:
    from searchrl.report.live import LiveReport, serving

    with tempfile.TemporaryDirectory(prefix="searchrl-") as folder:
        report = LiveReport(run, Path(folder))
        with serving(Path(folder)) as page:
            if is_json:
                print_json({"page": page})
            else:
                port = urlsplit(page).port
                say(f"Watching {run.path}; Ctrl-C ends it.")
                say(f"Next:  open {page}")
                say(
                    f"From another machine first:  ssh -L {port}:127.0.0.1:{port} {platform.node()}"
                )
            while True:
                time.sleep(1)
                report.refresh()


@click.command(cls=Command)
@click.argument("run", metavar="RUN")
@options.JSON
def trust(run: str, **values: Any) -> None:
    """Allow for good what a run folder names and may not use without you.

    Plugins, paths, addresses, models, and all other text in the settings of plugins. Look at it
    first: code runs with your rights, and a server gets your queries and the key that is named for
    it. What is remembered is the hash of each, in your own state folder; a file that changes is
    asked for again. What your own runs name is trusted on this machine.

    \b
    Examples:
      searchrl trust runs/from-a-colleague
      searchrl eval runs/from-a-colleague --trust
    """
    from searchrl.plugins import load_plugins
    from searchrl.run_folder import Run
    from searchrl.trust.needs import find_needs
    from searchrl.trust.permission import trust as remember

    opened = Run.find(run) or Run.open(run)
    needs = find_needs(opened.config, load_plugins(()), opened.path)
    remember(needs, opened.path)
    if values["json"]:
        rows = [{"what": n.what, "value": n.value, "key": n.key, "hash": n.digest()} for n in needs]
        print_json({"trusted": rows})
        return
    for need in needs:
        say(style("trusted: ", fg="green"), str(need))
    if not needs:
        say(f"{opened.path} names nothing that needs permission")
