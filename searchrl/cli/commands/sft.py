"""`searchrl sft`: its flags and its help.

Owns nothing else: what happens is `training.py`, the training is in `searchrl/programs/sft.py`.
"""

from __future__ import annotations

from typing import Any

import click

from searchrl.cli.options import SFT, SHARED, options


@click.command()
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
    from searchrl.cli.commands.training import run_training

    run_training("sft", SFT, values)
