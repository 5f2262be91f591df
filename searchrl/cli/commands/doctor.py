"""`searchrl doctor`: would a run train on what it sampled? Checked before it begins, or afterwards.

Owns the choice of what is looked at (a run, or flags as for `train`) and the exit status. The
checks are `programs/doctor`, the display `screen/checks`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from searchrl.cli.json_output import print_json
from searchrl.cli.options import DOCTOR, SHARED, GroupedCommand, Layers, options, read_layers

if TYPE_CHECKING:
    from searchrl.programs.setup.planning import Plan


@click.command(cls=GroupedCommand)
@click.argument("run", required=False)
@options(SHARED, DOCTOR)
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
    from searchrl.cli.loading import load_registry
    from searchrl.cli.planned import ensure_model_policy
    from searchrl.cli.screen.checks import show_report
    from searchrl.cli.screen.console import ConsoleObserver, make_console
    from searchrl.programs.doctor import examine_plan
    from searchrl.run_folder import Run

    with ConsoleObserver(make_console(sys.stderr)) as observer:
        plan = _plan(run, read_layers(values, SHARED, DOCTOR))
        ensure_model_policy(plan.config, "doctor")
        found = Run.find(run) if run is not None else None
        registry = load_registry(plan.config, None if found is None else found.path)
        plan = plan.settled(registry)
        for note in plan.notes:
            observer.note(note)
        report = examine_plan(plan, registry)
    if values["json"]:
        print_json(report.to_dict(), indent=2)
    else:
        show_report(make_console(), report)
    if not report.is_good:
        sys.exit(1)


def _plan(run: str | None, layers: Layers) -> Plan:
    from searchrl.config import build_config
    from searchrl.programs.agent import run_settings
    from searchrl.programs.setup.planning import Plan, plan_run
    from searchrl.run_folder import Run

    if run is None:
        return plan_run(*layers)
    return Plan.of(build_config(run_settings(Run.find(run) or Run.open(run), run), *layers))
