"""A rich console for tables and transcripts, in which foreign text commands nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import IO, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from searchrl.core.excerpt import COLUMNS, Excerpt
from searchrl.errors import CheckError
from searchrl.screen.lines import behind, say, style
from searchrl.trust.texts import clean

_AUTHORS = {"prompt": "dim", "model": "", "env": "yellow"}
"""Colours of tokens by author, as in transcripts."""

PLAIN_WIDTH = 110
"""Columns of plain output: a log is read on another terminal than the one that wrote it."""


class CleanConsole(Console):
    """A console that shows all text as it is, and none of what commands a terminal."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Segments to print; every table, panel and line of text goes through here."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(clean(segment.text), segment.style)


def make_console(file: TextIO | None = None) -> Console:
    """A rich console: colours on a terminal, plain text of fixed width elsewhere.

    Text is shown as it is: rich takes nothing in brackets for a style, and `:key:` for no emoji.
    """
    stream: IO[str] = behind(file or sys.stdout)
    is_terminal = stream.isatty()
    return CleanConsole(
        file=stream,
        width=None if is_terminal else PLAIN_WIDTH,
        # Else FORCE_COLOR, TTY_COMPATIBLE and the like put half of the styles into a file.
        force_terminal=is_terminal,
        no_color=None if is_terminal else True,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=not is_terminal,
    )


def show_finding(console: Console, indent: int, label: str, text: str, style: str = "") -> None:
    """A labelled text, wrapped below itself on a terminal; elsewhere every line is whole."""
    for number, line in enumerate(text.splitlines() or [""]):
        row = Text.assemble((f"{'' if number else label:<7}", "dim"), (line, style))
        if console.is_terminal:
            console.print(Padding(row, (0, 0, 0, indent)))
        else:
            console.print(Text.assemble(" " * indent, row))


def show_check_error(error: CheckError) -> None:
    """Print what a check found and the tokens around the place, on standard error."""
    head = style("Error:", fg="red", bold=True)
    say(head, f" check '{error.check}': {error.what}", err=True)
    if isinstance(error.excerpt, Excerpt):
        make_console(sys.stderr).print(draw_excerpt(error.excerpt))


def draw_excerpt(excerpt: Excerpt) -> Table:
    """Neighbouring tokens as rows; the one at fault is marked."""
    table = Table("", *COLUMNS, box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.title, table.title_justify, table.title_style = excerpt.title, "left", "dim"
    for token in excerpt.tokens:
        colour = "bold red" if token.is_fault else _AUTHORS.get(token.author, "")
        # As texts: what a token says is never taken for markup.
        cells = (Text(cell, colour) for cell in token.cells)
        table.add_row(Text(">" if token.is_fault else "", colour), *cells)
    return table
