"""What a command line allows: what it names and, with `--trust`, what a run folder names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from searchrl.cli.group import plugin_sources
from searchrl.cli.lines import say, style
from searchrl.cli.options import is_of_run, listed_plugins, read_file
from searchrl.config import RunConfig, parse_set
from searchrl.trust.permission import Permission


def find_permission(values: Mapping[str, Any]) -> Permission:
    """What the flags of a command allow, and its `--config` if that is no file of a run.

    The plugins of such a file are listed, before they run.
    """
    sources = [*plugin_sources(click.get_current_context()), *(values.get("plugin") or ())]
    flags = {key: value for key, value in values.items() if key not in ("config", "plugin", "set")}
    layers: list[Mapping[str, Any]] = [{"plugins": sources}, flags]
    layers += map(parse_set, values.get("set") or ())
    # Flags that name a folder are kept as its absolute path.
    folders = (values.get(flag) for flag in ("model", "init_from"))
    layers.append({"folders": [str(Path(one).resolve()) for one in folders if one]})
    config = values.get("config") or ""
    if config and not is_of_run(config):
        layers.append(own := read_file(values))
        if listed := listed_plugins(own):
            text = f"{config} names plugins, which run: {', '.join(listed)}"
            say(style("note: ", dim=True), text, err=True)
    return Permission.of(*layers, is_given=bool(values.get("trust")))


def permit(config: RunConfig, run_dir: str | Path | None = None) -> dict[str, str]:
    """Look at a configuration before anything of it is used; returns what to pin.

    `run_dir` is the run that it came from; by default the folder of a `--config` of a run.

    Raises:
        PluginError: if a run folder names what needs permission.
    """
    values = click.get_current_context().params
    if run_dir is None and is_of_run(values.get("config") or ""):
        run_dir = Path(values["config"]).parent
    return find_permission(values).ensure(config, run_dir)
