"""Plugins for a command: the permission to load them, and notes on those that failed or changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from searchrl.cli.options import is_of_run, listed_plugins
from searchrl.config import RunConfig, build_config, parse_set
from searchrl.plugins import Registry
from searchrl.plugins.loading import absolute_source
from searchrl.programs.setup.init_from import find_source
from searchrl.run_folder import Run, find_damage, read_config_file
from searchrl.screen.lines import say, style
from searchrl.trust.permission import Permission


def find_permission() -> Permission:
    """Permission for what the user names; lists the plugins of a `--config` before they run."""
    values = click.get_current_context().params
    flags = {key: value for key, value in values.items() if key not in ("config", "plugin", "set")}
    layers: list[Mapping[str, Any]] = [{"plugins": values.get("plugin") or ()}, flags]
    layers += map(parse_set, values.get("set") or ())
    # Flags that name a folder are kept as its absolute path.
    folders = (values.get(flag) for flag in ("model", "init_from"))
    layers.append({"folders": [str(Path(one).resolve()) for one in folders if one]})
    config = values.get("config") or ""
    if config and not is_of_run(config):
        layers.append(file := read_config_file(Path(config)))
        if listed := listed_plugins(file):
            text = f"{config} names plugins, which run: {', '.join(listed)}"
            say(style("note: ", dim=True), text, err=True)
    return Permission.of(*layers, is_given=bool(values.get("trust")))


def run_of_config() -> Path | None:
    """The run folder that `--config` lies in, which may be a stranger's."""
    config = click.get_current_context().params.get("config") or ""
    return Path(config).parent if config and is_of_run(config) else None


def load_registry(config: RunConfig, run_dir: Path | None = None) -> Registry:
    """Load the installed plugins and those of a resolved config; failures are named on stderr.

    `run_dir` is the run that the config belongs to; by default, the run that `init_from` names, or
    the folder of the `--config` file. Raises `PluginError`: see `Permission.load`.
    """
    if run_dir is None:
        source = find_source(config.init_from)
        run_dir = run_of_config() if source is None else source.path
    registry = find_permission().load(config, run_dir)
    say_notes((*registry.news, *(find_damage(run_dir) if run_dir is not None else ())))
    return registry


def load_run(run: Run) -> tuple[RunConfig, Registry]:
    """The config of a run with the plugins of the command line as well, and all of them."""
    values = click.get_current_context().params
    every = dict.fromkeys([*run.config.plugins, *map(absolute_source, values["plugin"])])
    given = {"plugins": list(every), "strict_plugins": values["strict"]}
    config = build_config(run.config.to_dict(), given)
    return config, load_registry(config, run.path)


def say_notes(notes: Iterable[str]) -> None:
    """Print notes on plugins and on a run's files, a line each, on stderr."""
    for note in notes:
        say(style("note: ", fg="yellow"), note, err=True)
