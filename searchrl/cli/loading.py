"""Plugins for a command: loads them and says which ones could not be loaded.

A broken plugin stops nothing by itself, but nobody should have to wonder where its names went.
"""

from __future__ import annotations

import click

from searchrl.config import RunConfig
from searchrl.plugins import Registry, load_plugins


def load_registry(config: RunConfig) -> Registry:
    """Load the installed plugins and those of a config; failures are named on stderr.

    Raises:
        PluginError: if a named file or module does not exist, or `strict_plugins` is set.
    """
    registry = load_plugins(config.plugins, strict=config.strict_plugins)
    say_failures(registry)
    return registry


def say_failures(registry: Registry) -> None:
    """One line on stderr per plugin that is not loaded."""
    for failure in registry.failures:
        click.echo(click.style("not loaded: ", fg="red") + str(failure), err=True)
