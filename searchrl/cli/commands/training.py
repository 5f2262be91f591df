"""`searchrl train` and `searchrl sft`: their help, and the order of business they have in common.

`--resume` stands alone, `--dry-run` ends before any weight is loaded, `--json` is alone on stdout.
The programs are `programs/train.py` and `programs/sft.py`, the display is `screen/console.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import click

from searchrl.cli.json_output import print_json
from searchrl.cli.options import (
    SFT,
    SHARED,
    TRAIN,
    Flag,
    GroupedCommand,
    given_flags,
    options,
    read_layers,
)
from searchrl.errors import ConfigError


@click.command(cls=GroupedCommand)
@options(SHARED, TRAIN)
def train(**values: Any) -> None:
    """Train a search agent with GRPO and show how it learns.

    Evaluates on test tasks before and after, on validation tasks during training, and writes a run
    folder. Without a GPU and without local weights the embedded tiny model is trained, which takes
    minutes.

    \b
    Examples:
      searchrl train --env regulations --reward format+em
      searchrl train --env corpus --set env.questions=q.jsonl --set env.corpus=docs/
      searchrl train --config run.yaml --set optim.lr=1e-4 --dry-run
      searchrl train --model Qwen/Qwen3-4B --dry-run --gpu-memory 24GB
    """
    _run("train", TRAIN, values)


@click.command(cls=GroupedCommand)
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
    _run("sft", SFT, values)


def _run(
    command: Literal["train", "sft"], flags: Sequence[Flag], values: Mapping[str, Any]
) -> None:
    """Resume or plan, then run the program of `command`, which has these `flags` of its own."""
    from searchrl.cli.loading import load_registry
    from searchrl.cli.planned import ensure_elsewhere, ensure_model_policy, show_plan
    from searchrl.cli.screen.console import ConsoleObserver, make_console
    from searchrl.engine.learning.torchrun import read_place
    from searchrl.programs.setup.planning import plan_run
    from searchrl.run_folder import Run

    is_json = bool(values["json"])
    is_first = read_place().is_first
    console = make_console(sys.stderr if is_json else sys.stdout)
    console.quiet = not is_first
    with ConsoleObserver(console, details=bool(values["details"])) as observer:
        plan = None
        if not values["resume"]:
            if values["allow_change"]:
                raise ConfigError("--allow-change goes with --resume RUN")
            room = values.get("gpu_memory")
            layers = read_layers(values, SHARED, flags)
            gpu = None if room is None else ensure_elsewhere(values)
            plan = plan_run(*layers, elsewhere=gpu)
            ensure_model_policy(plan.config, command)
            if values["dry_run"]:
                if is_first:
                    show_plan(
                        plan,
                        command,
                        is_json=is_json,
                        details=bool(values["details"]),
                        gpu_memory=room,
                    )
                return
        elif others := given_flags(
            values, "resume", "json", "strict", "trust", "details", "allow_change"
        ):
            raise ConfigError(
                "--resume continues a run with its own configuration and takes no "
                f"{' '.join(others)}; to train on with other settings, start a new run with "
                "--init-from RUN"
            )
        # Not before: a dry run answers without what only training needs.
        program: Callable[..., Run]
        if command == "train":
            from searchrl.programs.train import train as program
        else:
            from searchrl.programs.sft import sft as program
        if plan is None:
            resumed = Run.open(values["resume"])
            config = resumed.config
            if values["strict"]:
                config = config.model_copy(update={"strict_plugins": True})
            registry = None if resumed.find_end() else load_registry(config, values["resume"])
            run = program(
                resume=resumed.path,
                observer=observer,
                registry=registry,
                allow_change=bool(values["allow_change"]),
            )
        else:
            registry = load_registry(plan.config)
            plan = plan.settled(registry)
            for note in plan.notes:
                observer.note(note)
            run = program(plan, observer=observer, registry=registry)
    if is_json and is_first:
        print_json({"run": str(run.path), **run.summary})
