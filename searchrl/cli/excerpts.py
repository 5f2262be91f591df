"""A picture of neighbouring tokens on a terminal, and the error of a check that comes with one.

Owns their colours and layout; the data is `core.excerpt`.
"""

from __future__ import annotations

import sys

from rich.table import Table
from rich.text import Text

from searchrl.cli.lines import say, style
from searchrl.cli.terminal import make_console
from searchrl.core.excerpt import COLUMNS, Excerpt
from searchrl.errors import CheckError

_AUTHORS = {"prompt": "dim", "model": "", "env": "yellow"}
"""Colours of tokens by author, as in transcripts."""


def render_excerpt(excerpt: Excerpt) -> Table:
    """Neighbouring tokens as rows; the one at fault is marked."""
    table = Table(
        "",
        *COLUMNS,
        box=None,
        padding=(0, 2, 0, 0),
        pad_edge=False,
        header_style="dim",
        title=excerpt.title,
        title_justify="left",
        title_style="dim",
    )
    for token in excerpt.tokens:
        style = "bold red" if token.is_fault else _AUTHORS.get(token.author, "")
        # As texts: what a token says is never taken for markup.
        cells = (Text(cell, style) for cell in token.cells)
        table.add_row(Text(">" if token.is_fault else "", style), *cells)
    return table


def show_check_error(error: CheckError) -> None:
    """Print what a check found and the tokens around the place, on standard error."""
    head = style("Error:", fg="red", bold=True)
    say(head, f" check '{error.check}': {error.what}", err=True)
    if isinstance(error.excerpt, Excerpt):
        make_console(sys.stderr).print(render_excerpt(error.excerpt))
