"""Lines of text on the standard streams: ours, and those of libraries, warnings and tracebacks.

What would command the terminal is made visible; our own colours are added after that. Imports no
rich, which costs a tenth of a second.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Iterable
from typing import Any, TextIO

import click

from searchrl.trust.secrets import redact
from searchrl.trust.texts import clean, clean_json

MAX_LINES, MAX_WIDTH, MAX_CHARS = 17, 1200, 3600
"""Limits of an error; with the usage that click prints above it, at most 20 lines."""

_STDOUT = "searchrl.stdout"

_COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")
"""Colours, which others may use on a terminal: a plugin's command has its own."""


class Styled(str):
    """Text with our own colours in it; what is inside is clean."""


def style(text: str, **look: Any) -> Styled:
    """The text in a colour; `look` is what `click.style` takes."""
    return Styled(click.style(clean(text), **look))


def say(*parts: str, err: bool = False, nl: bool = True, file: TextIO | None = None) -> None:
    """Print the parts, one behind the other, on standard output, or error; or to `file`."""
    stream = file if file is not None else sys.stderr if err else sys.stdout
    text = "".join(part if isinstance(part, Styled) else clean(part) for part in parts)
    click.echo(text, nl=nl, file=behind(stream))


class CleanStream:
    """A standard stream for whoever does not print with `say`: libraries, warnings, tracebacks."""

    def __init__(self, stream: TextIO) -> None:
        self.behind = stream

    def write(self, text: str) -> int:
        """Write text that commands nothing; colours pass on a terminal."""
        pieces = _COLOUR.split(text) if self.behind.isatty() else [text]
        # Every second one is a colour. A carriage return draws a bar again in its own line.
        self.behind.write(
            "".join(
                piece if number % 2 else "\r".join(map(clean, piece.split("\r")))
                for number, piece in enumerate(pieces)
            )
        )
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)


def shorten(text: str) -> str:
    """An error that fits a screen: its middle is left out, because the end says what to do.

    A long text is mostly not ours: the name, value or exception that it is about.
    """
    lines = text.strip("\n").splitlines()
    if len(lines) > MAX_LINES:
        left = len(lines) - MAX_LINES + 1
        lines[MAX_LINES - 6 : -5] = [f"… ({left} lines are left out here)"]
    is_long = sum(map(len, lines)) > MAX_CHARS
    width = MAX_CHARS // MAX_LINES if is_long and len(lines) > 1 else MAX_WIDTH
    head, tail = width * 2 // 3, width // 3
    return "\n".join(
        line
        if len(line) <= width
        else f"{line[:head]} … ({len(line) - head - tail:,} characters) … {line[-tail:]}"
        for line in lines
    )


def clean_streams() -> None:
    """From now on, what anybody prints on the standard streams is clean."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, CleanStream):
            setattr(sys, name, CleanStream(stream))


def behind(stream: Any) -> Any:
    """The stream itself, for text that is clean."""
    return stream.behind if isinstance(stream, CleanStream) else stream


def keep_stdout_clean(
    ctx: click.Context, parameter: click.Parameter, value: bool | None
) -> bool | None:
    """The callback of `--json`: from now on only `print_json` reaches standard output.

    Whatever else is written there, by a plugin, say, goes to standard error.
    """
    if value:
        ctx.meta[_STDOUT] = sys.stdout
        ctx.with_resource(contextlib.redirect_stdout(sys.stderr))
    return value


def print_json(value: Any, *, indent: int | None = None) -> None:
    """Print a value as JSON on the standard output that the command began with."""
    stream = click.get_current_context().meta.get(_STDOUT, sys.stdout)
    text = json.dumps(redact(value), indent=indent, ensure_ascii=False, default=str)
    say(clean_json(text), file=stream)
