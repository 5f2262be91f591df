"""Numbered tasks in splits: the check of what `reset(options={"split": …, "index": …})` was given.

Owns these two checks and the text of their errors. Knows no environment. Called by `text` and
`foreign`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from searchrl.errors import ConfigError, suggest


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
