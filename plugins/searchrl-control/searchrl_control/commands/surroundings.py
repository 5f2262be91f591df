"""What the commands of this package share: flags, plugins, and where figures go.

Owns how a command gets its registry, how `--set env.K=V` becomes settings, and how `--out` is
written. Called by every command in this room.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from searchrl.errors import ConfigError

if TYPE_CHECKING:
    from searchrl.plugins import Registry

FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(path_type=Path)

set_flag = click.option(
    "--set", "assignments", multiple=True, metavar="env.K=V",
    help="A setting of the environment for all collections; may be repeated.",
)  # fmt: skip
plugin_flag = click.option(
    "--plugin", "plugins", multiple=True, metavar="FILE",
    help="A plugin file or module; may be repeated.",
)  # fmt: skip
out_flag = click.option("--out", type=FILE, metavar="FILE", help="Write all figures as JSON.")


def load_registry(plugins: Sequence[str]) -> Registry:
    """Load the installed plugins, those named before the command, and `plugins`.

    A plugin that is installed and cannot be loaded is named on standard error, once.

    Raises:
        PluginError: one that the user named cannot be loaded.
    """
    from searchrl.plugins import load_plugins

    before = click.get_current_context().find_root().params.get("plugin") or ()
    registry = load_plugins([*before, *plugins], must_load=True)
    for failure in registry.failures:
        click.echo(f"not loaded: {failure}", err=True)
    return registry


def read_settings(assignments: Sequence[str]) -> dict[str, Any]:
    """The settings in `env.K=V`.

    Raises:
        ConfigError: an assignment is of something else.
    """
    from searchrl.config import merge, parse_set

    said: dict[str, Any] = reduce(merge, map(parse_set, assignments), {})
    if set(said) - {"env"} or not isinstance(said.get("env", {}), Mapping):
        wrong = next(iter(set(said) - {"env"}), "env")
        raise ConfigError(
            f"--set {wrong}…: this command has settings of the environment alone, such as "
            "--set env.actions=heads"
        )
    return dict(said.get("env", {}))


def ensure_writable(path: Path | None) -> None:
    """Raise `ConfigError` before anything is measured if `--out` cannot be written there."""
    if path is not None and not path.absolute().parent.is_dir():
        raise ConfigError(f"--out {path}: there is no folder '{path.parent}'")


def write_out(path: Path | None, value: Any) -> None:
    """Write figures as JSON, if a file was named."""
    if path is not None:
        path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        click.echo(f"\nfigures: {path}")


def say(text: str) -> None:
    """Say on standard error what takes a while."""
    click.echo(text, err=True)
