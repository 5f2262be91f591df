"""What a command line allows: the code that it names, and with `--trust` what a run folder names.

Owns the difference between what a user wrote and what a run folder says. The rule itself is
`searchrl.trust.permission`. Imports no torch. Callers: all commands that use the settings of a run.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from searchrl.cli.group import plugin_sources
from searchrl.cli.lines import say, style
from searchrl.cli.options import is_of_run, listed_plugins, read_file
from searchrl.config import merge, parse_set
from searchrl.trust.permission import Permission


def find_permission(values: Mapping[str, Any]) -> Permission:
    """What the flags of a command allow, and its `--config` if that is no file of a run.

    The plugins of such a file are listed, before they run.
    """
    sources = [*plugin_sources(click.get_current_context()), *(values.get("plugin") or ())]
    named_by_flag = {key: values[key] for key in ("env", "retriever", "judge") if values.get(key)}
    layers: list[dict[str, Any]] = [{"plugins": sources, **named_by_flag}]
    sets = map(parse_set, values.get("set") or ())
    layers.append(functools.reduce(merge, sets, {}))
    config = values.get("config") or ""
    if config and not is_of_run(config):
        own = read_file(values)
        layers.insert(0, own)
        if listed := listed_plugins(own):
            text = f"{config} names plugins, which run: {', '.join(listed)}"
            say(style("note: ", dim=True), text, err=True)
    # Together, too: whom a retriever asks may be said in one place, and with which key in another.
    layers.append(functools.reduce(merge, layers, {}))
    named = [Permission.of(layer).sources for layer in layers]
    return Permission(frozenset().union(*named), bool(values.get("trust")))


def permit(settings: Mapping[str, Any], run_dir: str | Path | None = None) -> dict[str, str]:
    """Look at the code that settings name, before any of it is loaded; returns what to pin.

    `run_dir` is the run that they came from; by default the folder of `--config`.

    Raises:
        PluginError: if a run folder names code that may not run.
    """
    values = click.get_current_context().params
    if run_dir is None and values.get("config"):
        run_dir = Path(values["config"]).parent
    return find_permission(values).ensure(settings, run_dir)
