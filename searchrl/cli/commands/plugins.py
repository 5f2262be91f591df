"""`searchrl plugins` and `searchrl new`: what is registered, and a plugin to change. No torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import click

from searchrl.cli import options
from searchrl.cli.loading import find_permission, run_of_config
from searchrl.cli.options import Command, option, read_layers
from searchrl.config import RunConfig, merge
from searchrl.errors import PluginError
from searchrl.hookspecs import HOOKS, PLUGIN_API
from searchrl.plugins import Registry, load_plugins
from searchrl.scaffold import KINDS, make_scaffold, write_scaffold
from searchrl.screen.lines import print_json, say, style


@click.command(cls=Command)
@options.CONFIG
@options.LOADED
def plugins(**values: Any) -> None:
    """List what is registered, by whom, and what could not be loaded.

    \b
    Examples:
      searchrl plugins
      searchrl plugins --plugin my_env.py --json
      searchrl plugins --strict
    """
    settings: Mapping[str, Any] = reduce(merge, read_layers(), {})
    sources = settings.get("plugins", [])
    permission, named = find_permission(), RunConfig(plugins=sources)
    registry = load_plugins(
        sources, permit=lambda installed: permission.ensure(named, run_of_config(), installed)
    )
    if values["json"]:
        print_json(describe(registry), indent=2)
    else:
        _show(registry)
    faults = [*map(str, registry.failures), *registry.conflicts]
    if settings.get("strict_plugins") and faults:
        raise PluginError("\n".join(faults))


def describe(registry: Registry) -> dict[str, Any]:
    """The whole registry as JSON-able values."""
    return {
        "plugin_api": PLUGIN_API,
        "kinds": {kind: list(registry.names(kind)) for kind in HOOKS},
        "plugins": [
            {**record, "hooks": [HOOKS[kind] for kind in record["names"]]}
            for record in registry.provenance()
        ],
        "entries": [
            {
                "kind": entry.kind,
                "name": entry.name,
                "plugin": entry.owner.name,
                "where": entry.where,
                "description": entry.description,
            }
            for entry in registry.entries()
        ],
        "conflicts": list(registry.conflicts),
        "failures": [dataclasses.asdict(failure) for failure in registry.failures],
    }


def _show(registry: Registry) -> None:
    for record in describe(registry)["plugins"]:
        title = f"{record['plugin']} {record['version']}".rstrip()
        say(style(title, bold=True), f" ({record['origin']})")
        facts = {
            "distribution": record["distribution"],
            "file": record["file"],
            "hash": record["sha256"][:16],
            "hooks": ", ".join(record["hooks"]),
        }
        for name, value in facts.items():
            if value:
                say(f"  {name:<13} {value}")
        for entry in registry.entries():
            if entry.owner.name == record["plugin"]:
                about = f"  {entry.description}".rstrip()
                say(f"  {entry.kind:<13} ", style(entry.name, fg="cyan"), about)
        say()
    for conflict in registry.conflicts:
        say(style("conflict: ", fg="yellow"), conflict)
    for failure in registry.failures:
        say(style("not loaded: ", fg="red"), str(failure))


@click.command(cls=Command)
@click.argument("kind", type=click.Choice(list(KINDS)))
@click.argument("name")
@option("--package", "A package to install instead of one file.", is_flag=True)
@option("--force", "Replace what is there already.", is_flag=True)
@options.JSON
def new(kind: str, name: str, **values: Any) -> None:
    """Write a plugin that works, with its tests, to change into your own.

    It writes one short file to this folder, and says how to check it and how to use it.

    \b
    Examples:
      searchrl new env capitals
      searchrl new reward was_read
      searchrl new retriever fuzzy-words --package
    """
    scaffold = make_scaffold(kind, name, is_package=values["package"])
    write_scaffold(scaffold, Path.cwd(), is_forced=values["force"])
    if values["json"]:
        print_json(scaffold.to_dict())
        return
    written = [path.as_posix() for path in scaffold.files]
    for heading, lines in (("Wrote:", written), ("Next:", scaffold.steps)):
        for number, line in enumerate(lines):
            say(style(f"{'' if number else heading:<8}", bold=True), line)
