"""What the commands of this package share: flags, settings, and where figures go."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from searchrl import ConfigError

FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(path_type=Path)

set_flag = click.option(
    "--set", "assignments", multiple=True, metavar="env.K=V",
    help="A setting of the environment for all collections; may be repeated.",
)  # fmt: skip
collection_flag = click.option(
    "--collection", "names", multiple=True, metavar="NAME",
    help="A folder, or a name as env.collection takes it; repeat it for several.",
)  # fmt: skip
out_flag = click.option("--out", type=FILE, metavar="FILE", help="Write all figures as JSON.")


def read_assignments(assignments: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of the environment in `env.K=V`, and the other assignments.

    Raises:
        ConfigError: an assignment cannot be read.
    """
    from searchrl import parse_sets

    said = parse_sets(assignments)
    of_env = said.pop("env", {})
    if not isinstance(of_env, dict):
        raise ConfigError("--set env.KEY=VALUE sets the environment; env alone is none")
    return of_env, said


def read_settings(assignments: Sequence[str]) -> dict[str, Any]:
    """The settings in `env.K=V`; raises `ConfigError` if there is another assignment."""
    said, others = read_assignments(assignments)
    if others:
        raise ConfigError(
            f"--set {next(iter(others))}…: this command has settings of the environment alone, "
            "such as --set env.actions=heads"
        )
    return said


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
