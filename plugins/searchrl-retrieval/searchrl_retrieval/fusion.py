"""Fusion: one ranking made of several rankings of the same corpus.

Every ranking gives its passages points from 0 to 1 (`min_max`, Lee 1997), a passage that it does
not hold gets none, and the weighted mean of the points is the fused score. Left out: ranks in place
of scores (Cormack et al. 2009), and floors that are known from theory (Bruch et al. 2023), because
retrievers do not tell theirs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from searchrl import RetrieverFailure
from searchrl.contracts import Passage


def min_max(scores: Sequence[float]) -> list[float]:
    """Scores moved to 0 (the lowest) to 1 (the highest). Equal ones all get 1: they were found."""
    if not scores:
        return []
    low, high = min(scores), max(scores)
    # Halves, because the difference of two large numbers may be infinite.
    span = high / 2 - low / 2
    return [(score / 2 - low / 2) / span if span > 0 else 1.0 for score in scores]


def fuse(rankings: Sequence[Sequence[Passage]], weights: Sequence[float]) -> list[Passage]:
    """Return every passage of the rankings once, with its fused score, best first.

    A passage that a ranking has twice counts at its first place. Equal fused scores stand in the
    order of the first ranking that has them; so renaming passages changes no place. Only the ratio
    of the weights counts, one per ranking, at least 0.
    """
    share = math.fsum(weights)
    parts: dict[str, list[float]] = {}
    known: dict[str, Passage] = {}
    for ranking, weight in zip(rankings, weights, strict=True):
        once = list({passage.id: passage for passage in reversed(ranking)}.values())[::-1]
        for passage in once:
            if not math.isfinite(passage.score):
                raise RetrieverFailure(
                    f"passage {passage.id!r} has the score {passage.score}, which cannot be fused; "
                    "expected a finite number"
                )
        points = min_max([passage.score for passage in once])
        for passage, given in zip(once, points, strict=True):
            known.setdefault(passage.id, passage)
            parts.setdefault(passage.id, []).append(weight / share * given)
    # Summed exactly, so that the order of the rankings does not show in the last bit.
    fused = {identity: min(1.0, math.fsum(given)) for identity, given in parts.items()}
    order = sorted(fused, key=lambda identity: -fused[identity])
    return [replace(known[identity], score=fused[identity]) for identity in order]
