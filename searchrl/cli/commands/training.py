"""What `searchrl train` and `searchrl sft` have in common: everything but their flags and help.

Owns the order: `--resume` alone, `--dry-run` before any weight is loaded, `--json`
alone on stdout. The programs are `programs/train.py` and `programs/sft.py`, the display is
`screen/console.py`. Imports torch, so commands import it when they run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import click

from searchrl.cli.commands.planned import ensure_alone, ensure_model_policy, show_plan
from searchrl.cli.loading import load_registry
from searchrl.cli.options import SHARED, Flag, given_flags, read_layers
from searchrl.cli.screen.console import ConsoleObserver, make_console
from searchrl.engine.learning.torchrun import read_place
from searchrl.programs.planning import plan_run
from searchrl.run_folder import Run


def run_training(
    command: Literal["train", "sft"], flags: Sequence[Flag], values: Mapping[str, Any]
) -> None:
    """Resume or plan, then run the program of `command`, and show it.

    Args:
        command: which program.
        flags: the command's own flags, besides those all programs share.
        values: what the command line gave, by parameter.
    """
    is_json = bool(values["json"])
    is_first = read_place().is_first
    console = make_console(sys.stderr if is_json else sys.stdout)
    console.quiet = not is_first
    with ConsoleObserver(console) as observer:
        if values["resume"]:
            ensure_alone(given_flags(values, "resume", "json", "strict"))
            plan = None
        else:
            plan = plan_run(*read_layers(values, SHARED, flags))
            ensure_model_policy(plan.config, command)
            if values["dry_run"]:
                if is_first:
                    show_plan(plan, is_json=is_json, with_memory=command == "train")
                return
            for note in plan.notes:
                observer.note(note)
        # Not before: a dry run answers without what only training needs.
        if command == "train":
            from searchrl.programs.train import train as program
        else:
            from searchrl.programs.sft import sft as program
        if plan is None:
            config = Run.open(values["resume"]).config
            if values["strict"]:
                config = config.model_copy(update={"strict_plugins": True})
            registry = load_registry(config, values["resume"])
            run = program(resume=values["resume"], observer=observer, registry=registry)
        else:
            registry = load_registry(plan.config)
            run = program(plan, observer=observer, registry=registry)
    if is_json and is_first:
        click.echo(json.dumps({"run": str(run.path), **run.summary}, ensure_ascii=False))
