"""Plugins for a command: loads them, and says which failed and which changed since the run.

An installed plugin that is broken does not stop a command, so the user must be told why its names
are missing; one that the user named ends it. And a user who evaluates an old run must know whether
its plugins are still the same code.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from searchrl.cli.lines import say, style
from searchrl.cli.permission import permit
from searchrl.config import RunConfig, build_config
from searchrl.plugins import Registry, load_plugins
from searchrl.plugins.loading import absolute_source
from searchrl.plugins.provenance import read_records
from searchrl.programs.setup.carrying import find_source
from searchrl.run_folder import Run, find_damage


def load_registry(config: RunConfig, run_dir: str | Path | None = None) -> Registry:
    """Load the installed plugins and those of a resolved config; failures are named on stderr.

    `run_dir` is the run that the config belongs to; by default, the run that `init_from` names, or
    the folder of the `--config` file.
    Raises `PluginError` if the run names code that may not run, if a named file or module does not
    exist or fails to load, and for any failure if `strict_plugins` is set.
    """
    if run_dir is None and (source := find_source(config)) is not None:
        run_dir = source.path
    pinned = permit(config, run_dir)
    file = click.get_current_context().params.get("config")
    if run_dir is None and file:
        run_dir = Path(file).parent
    registry = load_plugins(
        config.plugins,
        strict=config.strict_plugins,
        must_load=True,
        pinned=pinned,
        recorded=read_records(run_dir, config.to_dict()),
    )
    say_failures(registry)
    say_notes(find_damage(Path(run_dir)) if run_dir is not None else ())
    return registry


def load_run(run: Run) -> tuple[RunConfig, Registry]:
    """The config of a run with the plugins of the command line as well, and all of them.

    Raises as `load_registry`.
    """
    values = click.get_current_context().params
    every = dict.fromkeys([*run.config.plugins, *map(absolute_source, values["plugin"])])
    own = {"plugins": list(every), "strict_plugins": values["strict"]}
    config = build_config(run.config.to_dict(), own)
    return config, load_registry(config, run.path)


def say_notes(notes: Iterable[str]) -> None:
    """Print what the user should know of a run's files and weights, a line each, on stderr."""
    for note in notes:
        say(style("note: ", fg="yellow"), note, err=True)


def say_failures(registry: Registry) -> None:
    """Print one line on stderr per plugin that is not loaded, or that changed since the run."""
    for failure in registry.failures:
        say(style("not loaded: ", fg="red"), str(failure), err=True)
    for change in registry.changes:
        say(style("changed: ", fg="yellow"), change, err=True)
