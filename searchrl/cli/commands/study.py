"""`searchrl study`: several arms, the same seeds and budget, and one table. No torch."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from searchrl.cli import options
from searchrl.cli.options import Command, option
from searchrl.errors import ConfigError
from searchrl.screen.lines import print_json, say


@click.command(cls=Command)
@click.argument("words", nargs=-1, required=True, metavar="[show] FILE")
@option("--run-dir DIR", "The folder of its runs; by default runs/NAME of the file.", type=Path)
@option("--jobs N", "Runs at a time.", type=click.IntRange(min=1), default=1, show_default=True)
@option("--commands", "Print the command of each run that is left.", is_flag=True)
@option("--out DIR", "Write a page: the table, curves as SVG, and every run.", type=Path)
@options.JSON
def study(words: tuple[str, ...], **values: Any) -> None:
    """Compare arms that differ in their settings: the same seeds, one budget, one table.

    FILE holds the settings of all runs (base), those of each arm, the seeds and a budget. Runs that
    have finished are not made again. `show` makes none, and prints the table of what is there.

    \b
    Examples:
      searchrl study credit.yaml --jobs 2
      searchrl study show credit.yaml --out page
      searchrl study show credit.yaml --commands
    """
    from searchrl.config.study import load_study
    from searchrl.programs.study import open_cells, run_cells
    from searchrl.report.folder import write_report
    from searchrl.runs.study import format_curve, format_rows, remarks, tabulate
    from searchrl.screen.figures import make_table
    from searchrl.screen.terminal import make_console

    if len(words) > 2 or (len(words) == 2 and words[0] != "show"):
        raise ConfigError("name one file: searchrl study FILE, or searchrl study show FILE")
    file = Path(words[-1])
    made = load_study(file)
    cells = open_cells(made, values["run_dir"] or Path("runs") / file.stem)
    pending = [cell for cell in cells if cell.run is None]
    if values["commands"]:
        for cell in pending:
            say(shlex.join(["searchrl", *cell.command()]))
        return
    if len(words) == 1:
        run_cells(pending, values["jobs"], lambda text: say(text, err=True))
    rows = tabulate(cells, made.figure)
    heads, table = format_rows(rows, made.figure)
    notes = remarks(rows, made.tried)
    if values["json"]:
        arms = [row._asdict() for row in rows]
        print_json({"figure": made.figure, "arms": arms, "notes": notes})
    else:
        console = make_console()
        console.print(make_table("arm", heads, table, name=str, can_wrap=True))
        curves = {row.name: format_curve(row.curve) for row in rows if row.curve}
        columns = ["by sampled tokens", "at 1/4", "at 1/2", "at 3/4", "at the end"]
        console.print(
            make_table(f"{made.figure} in training", columns, curves, name=str, can_wrap=True)
        )
        for note in notes:
            say(f"note: {note}")
    if values["out"]:
        done = {arm: [c.run for c in cells if c.arm == arm and c.run] for arm in made.arms}
        if not (runs := [run for own in done.values() for run in own]):
            raise ConfigError(f"no run of {file} has finished; searchrl study {file} makes them")
        told = {"name": file.stem, "heads": heads, "table": table, "notes": notes}
        say(f"page: {write_report(runs, values['out'], done, **told).page}", err=True)
    if any(row.failed for row in rows):
        sys.exit(1)
