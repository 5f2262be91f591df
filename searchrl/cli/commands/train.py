"""`searchrl train`: its flags and its help.

Owns nothing else: what happens is `training.py`, the loop is in `searchrl/programs/train.py`.
"""

from __future__ import annotations

from typing import Any

import click

from searchrl.cli.options import SHARED, TRAIN, options


@click.command()
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
    """
    from searchrl.cli.commands.training import run_training

    run_training("train", TRAIN, values)
