"""`searchrl new`: writes a plugin that works, for the user to change. No torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from searchrl.cli import options
from searchrl.cli.options import Command, option
from searchrl.scaffold import KINDS, make_scaffold, write_scaffold
from searchrl.screen.lines import print_json, say, style


@click.command(cls=Command)
@click.argument("kind", type=click.Choice(list(KINDS)))
@click.argument("name")
@option("--package", "A package to install instead of one file.", is_flag=True)
@option("--force", "Replace what is there already.", is_flag=True)
@options.JSON
def new(kind: str, name: str, **values: Any) -> None:
    """Write a plugin that works, with its tests, to change into your own.

    It writes one short file to this folder, and says how to check it and how to use it.

    \b
    Examples:
      searchrl new env capitals
      searchrl new reward was_read
      searchrl new retriever fuzzy-words --package
    """
    scaffold = make_scaffold(kind, name, is_package=values["package"])
    write_scaffold(scaffold, Path.cwd(), is_forced=values["force"])
    if values["json"]:
        print_json(scaffold.to_dict())
        return
    written = [path.as_posix() for path in scaffold.files]
    for heading, lines in (("Wrote:", written), ("Next:", scaffold.steps)):
        for number, line in enumerate(lines):
            say(style(f"{'' if number else heading:<8}", bold=True), line)
