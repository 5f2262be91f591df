"""`searchrl control`: the group of this package's commands.

Owns nothing but the group; a command's module is small, and what it measures is imported when it
runs.
"""

from __future__ import annotations

import click

from searchrl_control.commands.compare import compare
from searchrl_control.commands.questions import questions
from searchrl_control.commands.sequences import sequences
from searchrl_control.commands.train import train


@click.group()
def control() -> None:
    """Train and compare agents that decide how to search, and make questions for them.

    \b
    Examples:
      searchrl control sequences --collection data/scifact --set env.actions=heads
      searchrl control train --run-dir runs/seed1 --set env.actions=heads --set seed=1
      searchrl control compare runs/seed1 runs/seed2 runs/seed3 --sweep --out figures.json
    """


for command in (sequences, train, compare, questions):
    control.add_command(command)
