"""Numbered tasks in splits: their names, the kind of each, and the check of `reset(options=…)`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from random import Random

import numpy as np

from searchrl.errors import ConfigError, suggest

TRAIN = "train"
VALIDATION = "validation"
"""Tasks that nothing is trained on and that choose the best checkpoint. An environment without
such a split lends some of its training tasks, see `num_held_out`."""

MAX_HELD_OUT = 64

_GOLDEN = (math.sqrt(5) - 1) / 2


def num_held_out(num_train: int) -> int:
    """The number of training tasks (the last) that validate: one in ten, 1 to `MAX_HELD_OUT`."""
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


class Mix:
    """Kinds of task, drawn by their weights; kinds left out have the weight 0.

    Raises `ConfigError`: a kind is unknown, a weight is below 0, or their sum is not above 0.
    """

    def __init__(self, weights: Mapping[str, float], kinds: Sequence[str]) -> None:
        for kind, weight in weights.items():
            if kind not in kinds:
                raise ConfigError(f"env.mix has no kind '{kind}'." + suggest(kind, kinds))
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not weight >= 0:
                raise ConfigError(f"env.mix: the weight of '{kind}' must be ≥ 0, got {weight!r}.")
        total = math.fsum(weights.values())
        if not 0 < total < math.inf:
            raise ConfigError(f"env.mix needs a positive, finite total, got {dict(weights)}.")
        self._kinds = [kind for kind in kinds if weights.get(kind, 0) > 0]
        self._upto = list(accumulate(weights[kind] / total for kind in self._kinds))

    def kind_of(self, index: int, key: str) -> str:
        """The kind of task `index` of a split that `key` names.

        Drawn from a low-discrepancy sequence, so that any row of tasks has the shares of the mix.
        """
        point = math.modf(index * _GOLDEN + Random(key).random())[0]
        pairs = zip(self._kinds, self._upto, strict=True)
        return next((kind for kind, upto in pairs if point < upto), self._kinds[-1])
