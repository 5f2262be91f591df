"""`searchrl ask`: a trained agent answers; its searches and what it read are shown."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import closing
from functools import reduce
from typing import Any

import click

from searchrl.cli import options
from searchrl.cli.options import Command, read_layers
from searchrl.errors import ConfigError
from searchrl.screen.lines import print_json


@click.command(cls=Command)
@click.argument("agent", metavar="RUN|MODEL")
@click.argument("question", required=False)
@options.SHARED
@options.DEVICE
def ask(agent: str, question: str | None, **values: Any) -> None:
    """Ask a trained agent a question; shows what it searches and reads.

    RUN is a run folder or a checkpoint in one; the run's own configuration is used, and flags
    replace parts of it. MODEL is whatever --model takes. In `regulations` the question is about the
    demo handbook. Without QUESTION, every line of standard input is one.

    \b
    Examples:
      searchrl ask runs/mine "When does the library close on Fridays?"
      searchrl ask runs/mine --json < questions.txt
    """
    from searchrl.cli.loading import find_permission, say_notes
    from searchrl.config import merge
    from searchrl.config.sections import MODEL_WORDS
    from searchrl.programs.agent import load_agent
    from searchrl.screen.terminal import make_console
    from searchrl.screen.transcript import render_turns

    if question in MODEL_WORDS or (
        question and os.path.isdir(question) and not os.path.isdir(agent)
    ):
        raise ConfigError(
            f"'{question}' is an agent, and the agent comes first: searchrl ask "
            f"{shlex.quote(question)} {shlex.quote(agent)}"
        )
    overrides: dict[str, Any] = reduce(merge, read_layers(), {})
    loaded = load_agent(agent, permission=find_permission(), **overrides)
    say_notes(loaded.notes)
    console = make_console()
    with closing(loaded):
        lines = filter(None, map(str.strip, sys.stdin))
        for text in lines if question is None else [question]:
            answer = loaded.ask(text)
            if values["json"]:
                print_json(answer.to_dict())
                continue
            console.print(render_turns((turn.text, turn.observation) for turn in answer.trace), "")
            if answer.final_answer is None:
                console.print(f"no final answer ({answer.stop_reason})", style="red")
            else:  # not green: nobody knows here whether it is right
                console.print(answer.final_answer, style="bold")
