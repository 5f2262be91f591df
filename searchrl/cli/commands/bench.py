"""`searchrl bench`: speed and memory of this machine with a configuration."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import click

from searchrl.cli import options
from searchrl.cli.options import Command, option, read_layers
from searchrl.screen.lines import print_json


@click.command(cls=Command)
@option("--steps N", "Steps to time, after one that is not.", type=click.IntRange(min=1), default=3)
@options.AGENT
@options.SHARED
@options.TRAINED
@options.ALGORITHM
@options.GROUP_SIZE
def bench(**values: Any) -> None:
    """Take a few training steps and say what this machine will do with this configuration.

    Takes the flags and the configuration of train. One step warms up; nothing is evaluated,
    recorded or kept.

    \b
    Examples:
      searchrl bench --env regulations --model tiny
      searchrl bench --config run.yaml --group-size 16 --steps 5 --json
    """
    from searchrl.cli.loading import find_permission, run_of_config
    from searchrl.engine.memory.plan import format_bytes
    from searchrl.programs.benchmark import measure
    from searchrl.programs.setup.planning import plan_run, prepare
    from searchrl.screen.console import ConsoleObserver, make_console
    from searchrl.screen.figures import make_table

    with ConsoleObserver(make_console(sys.stderr)) as observer:
        plan = replace(plan_run(*read_layers()), read_from=run_of_config())
        plan, registry = prepare("bench", plan, on_note=observer.note, trust=find_permission())
        measured = measure(
            plan,
            registry,
            values["steps"],
            on_step=lambda done, total: observer.phase("bench", done, total),
            on_note=observer.note,
        )
    if values["json"]:
        print_json(measured)
        return
    measured["peak_memory"] = format_bytes(measured.pop("peak_memory_bytes"))
    rows = {
        name.replace("_", " "): [one if isinstance(one, str) else f"{one:,.4g}"]
        for name, one in measured.items()
    }
    make_console().print(make_table("figure", ["value"], rows))
