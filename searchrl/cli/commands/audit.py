"""`searchrl audit`: questions and corpus, before anything is trained. No torch without a model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from searchrl.cli import options
from searchrl.cli.options import Command, option, read_layers
from searchrl.screen.lines import print_json


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
@option(
    "--show N", "Questions to show.", type=click.IntRange(min=0), default=10, group=options.OUTPUT
)
@option("--out FILE", "Write the questions that passed.", type=Path, group=options.OUTPUT)
def audit(**values: Any) -> None:
    """Look at every question before you train: can it be answered, found, guessed, copied?

    reachable: its gold passages are in the corpus, or an answer's text if none are named. findable:
    one is among the first `env.topk` for the question, or for the answer as a query. guessable: the
    policy of --policy or --model gets it without a search. leaking: the answer stands in the
    question, or an earlier split has (nearly) the same one. ambiguous: equal questions have no
    answer in common.

    \b
    Examples:
      searchrl audit --env corpus --set env.questions=questions.jsonl --set env.corpus=corpus.jsonl
      searchrl audit --config mine.yaml --policy endpoint:http://localhost:8000/v1 --model NAME
      searchrl audit --config mine.yaml --out kept.jsonl
    """
    from searchrl.cli.loading import load_registry
    from searchrl.config import build_config
    from searchrl.programs.evaluate import resolve
    from searchrl.programs.setup.audit import audit as look
    from searchrl.programs.setup.audit import count, write_kept
    from searchrl.screen.console import ConsoleObserver, make_console
    from searchrl.screen.figures import format_metric, make_table

    has_policy = bool(values["model"] or values["policy"])
    layers = read_layers()
    config = resolve(*layers)[0] if has_policy else build_config(*layers)
    with ConsoleObserver(make_console(sys.stderr)) as observer:
        registry = load_registry(config)
        rows, passages = look(config, registry, has_policy=has_policy, on_phase=observer.phase)
    figures = count(rows)
    worst = sorted((row for row in rows if row.reasons), key=lambda row: row.rank)
    files = write_kept(rows, passages, values["out"]) if values["out"] else {}
    if values["json"]:
        shown = [
            {
                "id": row.question.id,
                "split": row.split,
                "file": row.question.path,
                "line": row.question.line,
                **row.figures,
                "reasons": row.reasons,
            }
            for row in rows
        ]
        print_json(
            {"figures": figures, "kept": {k: str(v) for k, v in files.items()}, "questions": shown}
        )
        return
    console = make_console(sys.stdout)
    table = {
        name: [format_metric(name, figures), str(one["n"]), str(round(one["value"] * one["n"]))]
        for name, one in figures.items()
    }
    heads = ["share [95 %]", "questions", "number"]
    console.print(make_table("figure", heads, table, name=lambda name: name.replace("_", " ")))
    for row in worst[: values["show"]]:
        one = row.question
        console.print(
            "", f"{one.id} ({row.split}, {one.path}:{one.line})  {one.question}", sep="\n"
        )
        for reason in row.reasons:
            console.print(f"  {reason}", style="yellow")
    if files:
        flags = " ".join(f"--set env.{name}={path}" for name, path in files.items())
        console.print("", f"kept {table['passed'][2]} of {len(rows)}: {flags}", sep="\n")
