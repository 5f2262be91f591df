"""`searchrl doctor` and `bench`: before a run, its tokens are checked and its speed is measured."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import click

from searchrl.cli import options
from searchrl.cli.options import Command, option, read_layers
from searchrl.screen.lines import print_json


@click.command(cls=Command)
@click.argument("run", required=False)
@options.SHARED
@options.TRAINED
@options.ALGORITHM
@options.BETA
def doctor(run: str | None, **values: Any) -> None:
    """Check that what a run would train is what it samples, on a few tokens.

    Plays short episodes with the real model, environment and protocol, and compares ids, texts,
    masks and log-probs on their way from the sampler to the loss. Nothing is trained or written.
    RUN is a run folder or a checkpoint in one: its configuration and weights are taken, and flags
    replace parts of it. Exit status 1 if a check fails.

    \b
    Examples:
      searchrl doctor --env regulations --model tiny
      searchrl doctor runs/mine --json
      searchrl doctor --plugin my_env.py --env my-env --model Qwen/Qwen3-0.6B
    """
    from searchrl.cli.loading import find_permission, run_of_config
    from searchrl.config import build_config
    from searchrl.programs.agent import run_settings
    from searchrl.programs.setup.planning import Plan, plan_run, prepare
    from searchrl.programs.setup.session import examine_plan
    from searchrl.run_folder import Run
    from searchrl.screen.checks import show_report
    from searchrl.screen.console import ConsoleObserver, make_console

    with ConsoleObserver(make_console(sys.stderr)) as observer:
        if run is None:
            plan = replace(plan_run(*read_layers()), read_from=run_of_config())
        else:
            opened = Run.find(run) or Run.open(run)
            plan = Plan.of(build_config(run_settings(opened, run), *read_layers()))
            plan = replace(plan, read_from=opened.path)
        plan, registry = prepare("doctor", plan, on_note=observer.note, trust=find_permission())
        report = examine_plan(plan, registry)
    if values["json"]:
        print_json(report.to_dict(), indent=2)
    else:
        show_report(make_console(), report)
    if not report.is_good:
        sys.exit(1)


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
