"""`searchrl train` and `searchrl sft`: their help, and the order of business that they share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import click

from searchrl.cli import options
from searchrl.cli.options import Command, given_options, option, read_layers
from searchrl.errors import ConfigError
from searchrl.screen.lines import print_json

if TYPE_CHECKING:
    from searchrl.run_folder import Run


def _read_actions(
    ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]
) -> dict[str, Any]:
    """`kl_blow_up=stop` as settings; a name alone is the alarm with the action it asks for."""
    named = (text.partition("=") for text in texts)
    return {name.strip(): {"action": action.strip() or "auto"} for name, _, action in named}


_GPU_MEMORY = option(
    "--gpu-memory SIZE", "With --dry-run: would it fit a GPU elsewhere, such as 24GB?", options.RUN
)


@click.command(cls=Command)
@options.AGENT
@options.SHARED
@options.TRAINED
@options.ALGORITHM
@option("--max-steps", "Optimiser steps.", options.LEARNING, "max_steps", type=int)
@options.GROUP_SIZE
@option("--lr", "Learning rate.", options.LEARNING, "optim.lr", type=float)
@options.BETA
@option(
    "--alarm NAME[=ACTION]",
    "What an alarm does: warn, stop, rollback, off; may be repeated.",
    options.LEARNING,
    "alarms.watch",
    multiple=True,
    callback=_read_actions,
)
@options.MADE
@_GPU_MEMORY
@option(
    "--gpus N", "With --gpu-memory: on so many of them, one process each.", options.RUN, type=int
)
@option(
    "--rehearse",
    "Two steps on a small copy of the model with random weights, then a verdict on every part.",
    options.RUN,
    is_flag=True,
)
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
      searchrl train --model Qwen/Qwen3-4B --dry-run --gpu-memory 24GB --gpus 2
      searchrl train --config run.yaml --rehearse
    """
    _run("train", values)


@click.command(cls=Command)
@option("--traces FILE", "JSONL of demonstrations instead of scripts.", key="sft.traces")
@options.SHARED
@options.TRAINED
@options.MADE
@_GPU_MEMORY
def sft(**values: Any) -> None:
    """Cold start: train on scripted or recorded demonstrations.

    Demonstrations come from the environment's scripted policies, mixed as `sft.stages` says, or
    from --traces. `--model scratch` makes a new small model instead of loading one.

    \b
    Examples:
      searchrl sft --env regulations --model tiny --set sft.stages.0.steps=100
      searchrl sft --env corpus --model Qwen/Qwen3-4B --traces demos.jsonl
    """
    _run("sft", values)


def _run(command: Literal["train", "sft"], values: Mapping[str, Any]) -> None:
    from searchrl.cli.loading import find_permission, run_of_config
    from searchrl.engine.learning.torchrun import read_place
    from searchrl.screen.console import ConsoleObserver, make_console

    is_first = read_place().is_first
    console = make_console(sys.stderr if values["json"] else sys.stdout)
    console.quiet = not is_first
    if values["resume"]:
        if others := given_options("resume", "json", "trust", "details", "allow_change"):
            raise ConfigError(
                "--resume continues a run with its own configuration and takes no "
                f"{' '.join(others)}; to train on with other settings, start a new run with "
                "--init-from RUN"
            )
    elif values["allow_change"]:
        raise ConfigError("--allow-change goes with --resume RUN")
    with ConsoleObserver(console, details=values["details"]) as observer:
        plan = None
        if not values["resume"]:
            from searchrl.programs.setup.planning import plan_run

            elsewhere = None
            if values.get("gpu_memory") or values.get("gpus"):
                from searchrl.cli.dry_run import ensure_elsewhere

                elsewhere = ensure_elsewhere(values)
            plan = plan_run(*read_layers(), elsewhere=elsewhere)
            plan = replace(plan, read_from=run_of_config())
            if values["dry_run"]:
                from searchrl.cli.dry_run import show_plan

                show_plan(plan, command, values, is_shown=is_first)
                return
            if values.get("rehearse"):
                from searchrl.runs.rehearsal import rehearse
                from searchrl.screen.checks import show_verdicts

                report = rehearse(plan, observer, find_permission())
                if values["json"]:
                    print_json(report.to_dict(), indent=2)
                else:
                    show_verdicts(console, report)
                if not report.is_good:
                    sys.exit(1)
                return
        # Not before: a dry run answers without what only training needs.
        program: Callable[..., Run]
        if command == "train":
            from searchrl.programs.train import train as program
        else:
            from searchrl.programs.sft import sft as program
        run = program(
            plan,
            resume=values["resume"],
            observer=observer,
            trust=find_permission(),
            allow_change=values["allow_change"],
        )
    if values["json"] and is_first:
        print_json({"run": str(run.path), **run.summary})
