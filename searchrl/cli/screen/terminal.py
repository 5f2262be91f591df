"""Where a command prints: a rich console with colours on a terminal, plain lines elsewhere.

Owns only how it is made. A command that shows no run imports this and not the display of a run.
"""

from __future__ import annotations

import sys
from typing import TextIO

from rich.console import Console

PLAIN_WIDTH = 110
"""Columns of plain output: a log is read on another terminal than the one that wrote it."""


def make_console(file: TextIO | None = None) -> Console:
    """A rich console: colours on a terminal, plain text of fixed width elsewhere.

    Text is shown as it is: rich takes nothing in brackets for a style, and `:key:` for no emoji.
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
