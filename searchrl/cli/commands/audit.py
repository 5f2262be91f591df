"""`searchrl audit`: questions and corpus, before anything is trained. No torch without a model."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from searchrl.cli import options
from searchrl.cli.options import Command, option, read_layers
from searchrl.screen.lines import print_json

_NUM_SHOWN = 10
"""Questions that are shown; `--json` has all."""


@click.command(cls=Command)
@options.ENV
@options.RETRIEVER
@options.CONFIG
@options.SET
@options.SEED
@options.LOADED
@options.MODEL_NAME
@options.POLICY
@option("--num-tasks", "Tasks per split that are guessed.", key="eval.num_tasks", type=int)
@option("--out FILE", "Write the questions that passed.", type=Path, group=options.OUTPUT)
def audit(**values: Any) -> None:
    """Look at every question before you train: can it be answered, found, guessed, copied?

    --policy or --model plays the questions without a search. What passed is written to --out.

    \b
    Examples:
      searchrl audit --env corpus --set env.questions=questions.jsonl --set env.corpus=corpus.jsonl
      searchrl audit --config mine.yaml --policy endpoint:http://localhost:8000/v1 --model NAME
      searchrl audit --config mine.yaml --out kept.jsonl
    """
    from searchrl.cli.loading import load_registry
    from searchrl.config import build_config
    from searchrl.programs.evaluate import open_player, resolve
    from searchrl.programs.setup.audit import audit as look
    from searchrl.programs.setup.audit import count, write_kept
    from searchrl.screen.console import ConsoleObserver, make_console
    from searchrl.screen.figures import format_metric, make_table

    has_policy = bool(values["model"] or values["policy"])
    layers = read_layers()
    config = resolve(*layers)[0] if has_policy else build_config(*layers)
    with ConsoleObserver(make_console(sys.stderr)) as observer, ExitStack() as stack:
        registry = load_registry(config)
        player = stack.enter_context(open_player(config, registry)) if has_policy else None
        rows, passages = look(config, registry, observer.phase, player.play if player else None)
    figures = count(rows)
    if config.tasks[0].env.settings.get("corpus"):
        passages = ()  # they are in a file already
    files = write_kept(rows, passages, values["out"]) if values["out"] else {}
    if values["json"]:
        kept = {name: str(file) for name, file in files.items()}
        print_json({"figures": figures, "kept": kept, "questions": [asdict(row) for row in rows]})
        return
    console = make_console(sys.stdout)
    table = {
        name: [format_metric(name, figures), f"{round(one['value'] * one['n'])} of {one['n']}"]
        for name, one in figures.items()
    }
    heads = ["share [95 %]", "questions"]
    console.print(make_table("figure", heads, table, name=lambda name: name.replace("_", " ")))
    worst = sorted(rows, key=lambda row: (row.has_passed, -len(row.reasons)))
    for row in [row for row in worst if row.reasons][:_NUM_SHOWN]:
        one = row.question
        console.print("", f"{one.path}:{one.line} ({row.split}): {one.question}", sep="\n")
        console.print(*(f"  {reason}" for reason in row.reasons), sep="\n", style="yellow")
    if files:
        flags = " ".join(f"--set env.{name}={path}" for name, path in files.items())
        console.print("", f"the questions that passed: {flags}", sep="\n")
