"""Where a command prints: a rich console with colours on a terminal, plain lines elsewhere.

Owns nothing but its making, so that a command which shows no run need not import what a run shows.
"""

from __future__ import annotations

import sys
from typing import TextIO

from rich.console import Console

PLAIN_WIDTH = 110
"""Columns of plain output, whatever the terminal of whoever reads the log."""


def make_console(file: TextIO | None = None) -> Console:
    """A rich console: colours on a terminal, plain text of fixed width elsewhere.

    Text is shown as it is: what is in brackets is no style, and `:key:` no picture.
    """
    stream = file or sys.stdout
    is_terminal = stream.isatty()
    return Console(
        file=stream,
        width=None if is_terminal else PLAIN_WIDTH,
        no_color=None if is_terminal else True,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=not is_terminal,
    )
