"""How far two opinions about the same answers agree: shares with intervals, and kappa.

Owns these figures. The interval of a share is that of `searchrl.estimate`; kappa is J. Cohen's
(1960), weighted by the square of the distance (1968), so that 0 against 1 counts four times as much
as 0 against 0.5. Knows no judge.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from searchrl import estimate


class Share(NamedTuple):
    """So many (`hits`) of `n`, with the 95 % interval of the share."""

    hits: int
    n: int
    value: float
    low: float
    high: float


class Agreement(NamedTuple):
    """How often two opinions are the same. `kappa` is None where one of them never varies."""

    share: Share
    kappa: float | None


def make_share(hits: int, n: int) -> Share:
    """The share `hits` of `n`; of nothing, anything is possible."""
    if n == 0:
        return Share(0, 0, math.nan, 0.0, 1.0)
    found = estimate({"share": {str(place): float(place < hits) for place in range(n)}})["share"]
    return Share(hits, n, found["value"], found["low"], found["high"])


def compare(first: Sequence[float], second: Sequence[float]) -> Agreement:
    """How far two lists of scores of the same answers agree."""
    pairs = list(zip(first, second, strict=True))
    same = sum(one == other for one, other in pairs)
    return Agreement(make_share(same, len(pairs)), _kappa(pairs))


def _kappa(pairs: Sequence[tuple[float, float]]) -> float | None:
    """1 - (the squared distance that was seen) / (that of opinions that know nothing)."""
    if not pairs:
        return None
    n = len(pairs)
    left, right = (Counter(pair[side] for pair in pairs) for side in (0, 1))
    seen = sum((one - other) ** 2 for one, other in pairs) / n
    chance = sum(
        count * other_count * (one - other) ** 2
        for one, count in left.items()
        for other, other_count in right.items()
    ) / (n * n)
    return 1 - seen / chance if chance else None
