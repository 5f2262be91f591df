"""`searchrl bench`: what this machine will do with a configuration.

Owns the table of figures and the JSON. The measurement is `searchrl.programs.benchmark`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from searchrl.cli.json_output import print_json
from searchrl.cli.lines import say
from searchrl.cli.options import BENCH, SHARED, GroupedCommand, options, read_layers

if TYPE_CHECKING:
    from searchrl.programs.benchmark import Measured


@click.command(cls=GroupedCommand)
@options(SHARED, BENCH)
def bench(**values: Any) -> None:
    """Take a few training steps and say what this machine will do with this configuration.

    Takes the flags and the configuration of train. One step warms up; nothing is evaluated,
    recorded or kept.

    \b
    Examples:
      searchrl bench --env regulations --model tiny
      searchrl bench --config run.yaml --group-size 16 --steps 5 --json
    """
    from searchrl.cli.loading import load_registry
    from searchrl.cli.planned import ensure_model_policy
    from searchrl.cli.screen.console import ConsoleObserver, make_console
    from searchrl.config.policy import is_registered
    from searchrl.programs.benchmark import measure
    from searchrl.programs.setup.planning import plan_run

    with ConsoleObserver(make_console(sys.stderr)) as observer:
        plan = plan_run(*read_layers(values, SHARED, BENCH))
        ensure_model_policy(plan.config, "bench")
        registry = load_registry(plan.config)
        plan = plan.settled(registry)
        for note in plan.notes:
            observer.note(note)
        steps = values["steps"]
        measured = measure(
            plan,
            registry,
            3 if steps is None else steps,
            on_step=lambda done, total: observer.phase("bench", done, total),
            on_note=observer.note,
        )
    if values["json"]:
        print_json(measured.to_dict())
        return
    unit = "choices" if is_registered(plan.config.policy.name) else "model tokens"
    for name, value in _rows(measured, unit):
        say(f"{name:26}{value}")


def _rows(one: Measured, unit: str) -> list[tuple[str, str]]:
    from searchrl.cli.screen.figures import NOT_MEASURED

    shares = f"sampling {one.sample_s:.2f}, update {one.update_s:.2f}"
    trained, use, peak = one.train_tokens_per_s, one.slot_use, one.peak_memory_bytes
    return [
        ("model", f"{one.model} on {one.device}"),
        ("steps timed", f"{one.num_steps} of {one.rollouts_per_step} rollouts"),
        ("s per step", f"{one.step_s:.2f} ({shares})"),
        ("steps/h", f"{one.steps_per_hour:,.0f}"),
        ("rollouts/s", f"{one.rollouts_per_s:.2f}"),
        (f"{unit} per step", f"{one.model_tokens_per_step:,.0f}"),
        (f"{unit}/s, sampling", f"{one.sample_tokens_per_s:,.0f}"),
        (f"{unit}/s, training", NOT_MEASURED if trained is None else f"{trained:,.0f}"),
        ("slot use", NOT_MEASURED if use is None else f"{use:.1%}"),
        ("peak memory", NOT_MEASURED if peak is None else f"{peak / 2**20:,.0f} MiB"),
    ]
