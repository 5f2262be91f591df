"""A terminal in memory, and the figures of a step, for the tests of the screen."""

import io
from typing import Any

from rich.console import Console

from searchrl.statistics import exact


def metrics(**values: float) -> dict[str, Any]:
    return {key.replace("__", "/"): exact(value) for key, value in values.items()}


STEP = metrics(
    reward=1.5, format=1, em=0.5, my_reward=0.3, passive=0.25, turns=2, failed=0, em__lookup=0.5,
    invalid_turns=0, loss=0, kl=0.0012, clip_frac=0.01, entropy=0.8, dead_groups=0.5,
    tokens_per_s=1234, lr=1e-4, ratio_mean=1, grad_norm=1.5,
)  # fmt: skip


def terminal(width: int = 100) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, height=50)


def text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()
