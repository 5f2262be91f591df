"""`--json`: one JSON text on standard output, and nothing else there.

While a command with `--json` runs, whatever else is written to standard output (by a plugin, say)
goes to standard error. Owns the option's callback and the printing.
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

import click

from searchrl.cli.lines import say
from searchrl.trust.texts import clean_json

_STDOUT = "searchrl.stdout"


def keep_stdout_clean(
    ctx: click.Context, parameter: click.Parameter, value: bool | None
) -> bool | None:
    """The callback of `--json`: from now on only `print_json` reaches standard output."""
    if value:
        ctx.meta[_STDOUT] = sys.stdout
        ctx.with_resource(contextlib.redirect_stdout(sys.stderr))
    return value


def print_json(value: Any, *, indent: int | None = None) -> None:
    """Print a value as JSON on the standard output that the command began with."""
    stream = click.get_current_context().meta.get(_STDOUT, sys.stdout)
    say(clean_json(json.dumps(value, indent=indent, ensure_ascii=False)), file=stream)
