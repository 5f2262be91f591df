"""`searchrl control`: the group of this package's commands.

Owns nothing but the group; a command's module is small, and what it measures is imported when it
runs.
"""

from __future__ import annotations

import click

from searchrl_control.commands.compare import compare
from searchrl_control.commands.questions import questions
from searchrl_control.commands.sequences import sequences


@click.group()
def control() -> None:
    """Compare agents that decide how to search, and make questions for them.

    \b
    Examples:
      searchrl control sequences --collection data/scifact --set env.actions=heads
      searchrl control compare runs/seed1 runs/seed2 runs/seed3 --sweep --out figures.json
    """


for command in (sequences, compare, questions):
    control.add_command(command)
