"""`searchrl study`: several arms, the same seeds and budget, and one table. No torch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from searchrl.cli import options
from searchrl.cli.options import Command, option
from searchrl.errors import ConfigError
from searchrl.screen.lines import print_json, say

if TYPE_CHECKING:
    from searchrl.runs.study import Arm


@click.command(cls=Command)
@click.argument("words", nargs=-1, required=True, metavar="[show] FILE")
@option("--out DIR", "The folder of its runs; by default runs/NAME of the file.", type=Path)
@option("--jobs N", "Runs at a time.", type=click.IntRange(min=1), default=1, show_default=True)
@option("--commands", "Print the command of each run that is left, and run none.", is_flag=True)
@options.JSON
def study(words: tuple[str, ...], **values: Any) -> None:
    """Compare arms that differ in their settings: the same seeds, one budget, one table.

    FILE holds the settings of all runs (base), those of each arm, the seeds and a budget. Every run
    is an ordinary run folder. Those that have finished are not made again, so a study can be
    stopped, and grow. `show` prints the table of what is there.

    \b
    Examples:
      searchrl study credit.yaml --jobs 2
      searchrl study show credit.yaml
      searchrl study credit.yaml --commands
    """
    from searchrl.programs.study import cells, command, open_study, read_cells, run_study
    from searchrl.runs.study import remarks, tabulate

    if len(words) > 2 or (len(words) == 2 and words[0] != "show"):
        raise ConfigError("name one file: searchrl study FILE, or searchrl study show FILE")
    file = Path(words[-1])
    folder = values["out"] or Path("runs") / file.stem
    made = open_study(file, folder)
    pending = [cell for cell in cells(made, folder) if not cell.is_done]
    if values["commands"]:
        for cell in pending:
            say(" ".join(command(made, cell)))
        return
    failed = []
    if words[0] != "show" or len(words) == 1:
        failed = run_study(
            made,
            pending,
            values["jobs"],
            lambda cell, what: say(f"{cell.arm}, seed {cell.seed}: {what}", err=True),
        )
    rows = tabulate([*read_cells(folder)], made.figure)
    notes = remarks(rows, made.tried)
    if values["json"]:
        print_json({"figure": made.figure, "arms": [row.to_dict() for row in rows], "notes": notes})
    else:
        _show(rows, made.figure)
        for note in notes:
            say(f"note: {note}")
    if failed:
        sys.exit(1)


def _show(rows: list[Arm], figure: str) -> None:
    from searchrl.screen.figures import make_table
    from searchrl.screen.terminal import make_console

    def interval(one: Any, sign: str = "") -> str:
        if one is None:
            return "—"
        band = f" ± {one['high'] - one['value']:.3f}" if "high" in one else ""
        return f"{one['value']:{sign}.3f}{band}"

    columns = [figure, f"minus {rows[0].name}", "runs", *rows[0].costs]
    table = {
        row.name: [
            interval(row.figure),
            interval(row.difference, "+"),
            f"{row.num_runs} of {row.num_runs + row.num_missing}",
            *(f"{row.costs.get(name, float('nan')):,.4g}" for name in rows[0].costs),
        ]
        for row in rows
    }
    make_console().print(make_table("arm", columns, table, name=str))
