"""What the commands of this package share: the plugins of the command line, and clean output.

Owns how a command gets its registry and how `--json` keeps standard output to itself. Called by
every command in this room.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any

import click

from searchrl import Registry, load_plugins


def load_registry(plugins: Sequence[str] = ()) -> Registry:
    """Load the installed plugins, those named before the command and `plugins`.

    A plugin that is installed and cannot be loaded is named on standard error, once.

    Raises:
        PluginError: one that the user named cannot be loaded.
    """
    before = click.get_current_context().find_root().params.get("plugin") or ()
    registry = load_plugins([*before, *plugins], must_load=True)
    for failure in registry.failures:
        click.echo(f"not loaded: {failure}", err=True)
    return registry


@contextmanager
def quiet_stdout(is_json: bool) -> Iterator[Callable[[Any], None]]:
    """Yield what prints a value as JSON on standard output.

    With `is_json`, whatever else is printed meanwhile, by a plugin say, goes to standard error.
    """
    stream = sys.stdout

    def print_json(value: Any) -> None:
        click.echo(json.dumps(value, ensure_ascii=False), file=stream)

    if not is_json:
        yield print_json
        return
    with redirect_stdout(sys.stderr):
        yield print_json
