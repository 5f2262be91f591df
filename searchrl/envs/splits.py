"""Numbered tasks in splits: their names, and the check of what `reset(options=…)` was given."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from searchrl.errors import ConfigError, suggest

TRAIN = "train"
VALIDATION = "validation"
"""Tasks that nothing is trained on and that choose the best checkpoint. An environment without
such a split lends some of its training tasks, see `num_held_out`."""

MAX_HELD_OUT = 64


def num_held_out(num_train: int) -> int:
    """How many training tasks (the last) validate: one in ten, 1 to `MAX_HELD_OUT`; of one, 0."""
    return min(MAX_HELD_OUT, max(num_train // 10, 1)) if num_train > 1 else 0


def ensure_split(env: str, split: object, splits: Sequence[str]) -> str:
    """Return `split` if it is one of `splits`; raise `ConfigError` naming those there are."""
    if isinstance(split, str) and split in splits:
        return split
    raise ConfigError(f"env {env} has no split {split!r}." + suggest(str(split), splits))


def ensure_index(env: str, split: str, index: object, total: int) -> int:
    """Return `index` as an int if it numbers one of `total` tasks; raise `ConfigError` if not."""
    if isinstance(index, int | np.integer) and 0 <= int(index) < total:
        return int(index)
    raise ConfigError(
        f"env {env}: split '{split}' has tasks 0 to {total - 1}, got index {index!r}."
    )
