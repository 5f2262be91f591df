"""Scores as rankings, and two rankings as one. Arrays over a whole collection, float32.

Owns how equal scores are ordered (as the corpus is, so that ids change nothing) and the min-max
points. The arithmetic is that of `searchrl_retrieval.fusion`, on arrays: an episode does it many
times. `N` is the number of passages.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float32]
"""[N], one per passage; higher is better."""

Places = NDArray[np.int64]
"""Places of passages in the corpus, from 0."""

DEPTH = 100
"""Passages of a ranking that get points when two are fused."""


class Found(NamedTuple):
    """What a search found: `scores_N`, and the passages that are in its ranking, as `is_in_N`."""

    scores_N: Scores
    is_in_N: NDArray[np.bool_]

    def first(self, k: int) -> Places:
        """The places of the at most `k` best passages, best first; equals in corpus order."""
        found = np.flatnonzero(self.is_in_N)
        if k <= 0 or not len(found):
            return np.zeros(0, dtype=np.int64)
        if len(found) > k:
            scores = self.scores_N[found]
            # All that equal the last one stay, so that the corpus decides between them.
            found = found[scores >= np.partition(scores, -k)[-k]]
        return found[np.argsort(-self.scores_N[found], kind="stable")[:k]].astype(np.int64)


def by_words(scores_N: Scores) -> Found:
    """The ranking of scores of words: a passage without any word of the query is not found."""
    return Found(scores_N, scores_N > 0)


def points(found: Found, depth: int = DEPTH) -> Found:
    """The first `depth` passages with min-max points (Lee 1997): the first has 1, the last 0.

    All others have 0 and are out of the ranking. If all scores are equal, all points are 1.
    """
    places = found.first(depth)
    given = np.zeros(len(found.scores_N), dtype=np.float32)
    is_in = np.zeros(len(found.scores_N), dtype=np.bool_)
    if len(places):
        scores = found.scores_N[places]
        span = scores[0] - scores[-1]
        given[places] = (scores - scores[-1]) / span if span > 0 else 1.0
        is_in[places] = True
    return Found(given, is_in)


def fuse(first: Found, second: Found, weight: float, depth: int = DEPTH) -> Found:
    """The weighted mean of the points of two rankings; `weight` is that of the second."""
    one, other = points(first, depth), points(second, depth)
    scores = ((1 - weight) * one.scores_N + weight * other.scores_N).astype(np.float32)
    return Found(scores, one.is_in_N | other.is_in_N)


def raise_by(found: Found, more_N: Scores) -> Found:
    """A ranking with more points for some passages; those with any are in it from then on."""
    return Found(found.scores_N + more_N, found.is_in_N | (more_N > 0))
