"""What the commands of this package share: flags, settings, and where figures go.

Owns how `--set env.K=V` becomes settings, and how `--out` is written. The registry is got as the
commands of `searchrl-retrieval` get it. Called by every command in this room.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import click

from searchrl.errors import ConfigError

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
