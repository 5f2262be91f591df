"""`searchrl train`: resolves the plan, hands over to `searchrl.train`, shows what happens.

Owns only the flags and their order of business: `--resume` alone, `--dry-run` before any weight is
loaded, `--json` alone on stdout. The loop is in `searchrl/train.py`, the display in `console.py`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from searchrl.cli.options import SHARED, TRAIN, given_flags, options, read_layers


@click.command()
@options(SHARED, TRAIN)
def train(**values: Any) -> None:
    """Train a search agent with GRPO and show how it learns.

    Evaluates on held-out tasks before, during and after, and writes a run folder. Without a GPU
    and without local weights the embedded tiny model is trained, which takes minutes.

    \b
    Examples:
      searchrl train --env regulations --reward format+em
      searchrl train --env corpus --set env.questions=q.jsonl --set env.corpus=docs/
      searchrl train --config run.yaml --set optim.lr=1e-4 --dry-run
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
            plan = make_plan(read_layers(values, SHARED, TRAIN))
            ensure_model_policy(plan.config, "train")
            if values["dry_run"]:
                show_plan(plan, is_json=is_json)
                return
            for note in plan.notes:
                observer.note(note)
        from searchrl.train import train as run_training

        if plan is None:
            run = run_training(resume=values["resume"], observer=observer)
        else:
            registry = load_registry(plan.config)
            run = run_training(plan.config, observer=observer, registry=registry)
    if is_json:
        click.echo(json.dumps({"run": str(run.path), **run.summary}, ensure_ascii=False))
