"""Plugins for a command: loads them and says which ones could not be, or are not those of the run.

A broken plugin stops nothing by itself, but nobody should have to wonder where its names went; nor
whether the figures of an old run were made with the same code.
"""

from __future__ import annotations

from pathlib import Path

import click

from searchrl.config import RunConfig
from searchrl.plugins import Registry, load_plugins
from searchrl.plugins.records import read_records


def load_registry(config: RunConfig, run_dir: str | Path | None = None) -> Registry:
    """Load the installed plugins and those of a config; failures are named on stderr.

    Args:
        config: the resolved config.
        run_dir: the run it is of; by default that whose `config.yaml` was given as `--config`.

    Raises:
        PluginError: if a named file or module does not exist, or `strict_plugins` is set.
    """
    file = click.get_current_context().params.get("config")
    if run_dir is None and file:
        run_dir = Path(file).parent
    registry = load_plugins(
        config.plugins,
        strict=config.strict_plugins,
        recorded=read_records(run_dir, config.to_dict()),
    )
    say_failures(registry)
    return registry


def say_failures(registry: Registry) -> None:
    """One line on stderr per plugin that is not loaded, or is another one than in the run."""
    for failure in registry.failures:
        click.echo(click.style("not loaded: ", fg="red") + str(failure), err=True)
    for change in registry.changes:
        click.echo(click.style("changed: ", fg="yellow") + change, err=True)
