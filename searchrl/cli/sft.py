"""`searchrl sft`: a supervised cold start, from scripted or recorded demonstrations.

Owns only the flags; it behaves as `searchrl train` does wherever both have a flag. The training is
in `searchrl/sft.py`, the display in `console.py`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from searchrl.cli.options import SFT, SHARED, given_flags, options, read_layers


@click.command()
@options(SHARED, SFT)
def sft(**values: Any) -> None:
    """Cold start: train on scripted or recorded demonstrations.

    Demonstrations come from the environment's scripted policies, mixed as `sft.stages` says, or
    from --traces. `--model scratch` makes a new small model instead of loading one.

    \b
    Examples:
      searchrl sft --env regulations --model tiny --set sft.stages.0.steps=100
      searchrl sft --env corpus --model Qwen/Qwen3-4B --traces demos.jsonl
    """
    from searchrl.cli.console import ConsoleObserver, make_console
    from searchrl.cli.loading import load_registry
    from searchrl.cli.planned import ensure_alone, ensure_model_policy, make_plan, show_plan

    is_json = bool(values["json"])
    console = make_console(sys.stderr if is_json else sys.stdout)
    with ConsoleObserver(console) as observer:
        if values["resume"]:
            ensure_alone(given_flags(values, "resume", "json"))
            plan = None
        else:
            plan = make_plan(read_layers(values, SHARED, SFT))
            ensure_model_policy(plan.config, "sft")
            if values["dry_run"]:
                show_plan(plan, is_json=is_json)
                return
            for note in plan.notes:
                observer.note(note)
        from searchrl.sft import sft as run_sft

        if plan is None:
            run = run_sft(resume=values["resume"], observer=observer)
        else:
            registry = load_registry(plan.config)
            run = run_sft(plan.config, observer=observer, registry=registry)
    if is_json:
        click.echo(json.dumps({"run": str(run.path), **run.summary}, ensure_ascii=False))
