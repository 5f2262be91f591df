"""`searchrl bench`: what this machine will do with a configuration.

Owns the rows of the table. The measurement is `searchrl.programs.benchmark`.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from searchrl.cli import options
from searchrl.cli.lines import print_json
from searchrl.cli.options import Command, option, read_layers

if TYPE_CHECKING:
    from searchrl.programs.benchmark import Measured


@click.command(cls=Command)
@option("--steps N", "Steps to time, after one that is not.", type=click.IntRange(min=1), default=3)
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
    from searchrl.cli.screen.console import ConsoleObserver, make_console
    from searchrl.cli.screen.figures import make_table
    from searchrl.programs.benchmark import measure
    from searchrl.programs.setup.planning import plan_run, prepare

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
        print_json(measured.to_dict())
        return
    rows = {name: [value] for name, value in describe(measured).items()}
    make_console().print(make_table("figure", ["value"], rows))


def describe(one: Measured) -> dict[str, str]:
    """The figures by name, as they are shown."""
    from searchrl.cli.screen.figures import NOT_MEASURED
    from searchrl.engine.memory.plan import format_bytes

    trained, use, peak = one.train_tokens_per_s, one.slot_use, one.peak_memory_bytes
    return {
        "model": f"{one.model} on {one.device}",
        "steps timed": f"{one.num_steps} of {one.rollouts_per_step} rollouts",
        "s per step": f"{one.step_s:.2f} (sampling {one.sample_s:.2f}, update {one.update_s:.2f})",
        "steps/h": f"{one.steps_per_hour:,.0f}",
        "rollouts/s": f"{one.rollouts_per_s:.2f}",
        "model tokens per step": f"{one.model_tokens_per_step:,.0f}",
        "model tokens/s, sampling": f"{one.sample_tokens_per_s:,.0f}",
        "model tokens/s, training": NOT_MEASURED if trained is None else f"{trained:,.0f}",
        "slot use": NOT_MEASURED if use is None else f"{use:.1%}",
        "peak memory": format_bytes(peak),
    }
