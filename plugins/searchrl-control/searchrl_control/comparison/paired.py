"""Two policies on the pooled questions of several collections: paired, and drawn by collection.

Owns the stratified bootstrap (Efron and Tibshirani 1993, chapter 6): every draw has as many
questions of each collection as there are, so no interval is wide because a collection was drawn
more often. A single collection, and the test by signs, are `searchrl.compare`. Callers: `table`,
the commands and benchmarks of this package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from searchrl import compare
from searchrl.contracts import Paired

NUM_DRAWS = 10_000
_SEED = 18
_CHUNK = 500
"""Draws that are held in memory together."""

ByCollection = Mapping[str, Mapping[str, float]]
"""The name of a collection -> the id of a question -> nDCG@k."""

_FIGURE = "ndcg"


def compare_pooled(first: ByCollection, second: ByCollection) -> Paired:
    """The first policy minus the second on all questions, each question counting once.

    The interval is the percentile one of the stratified bootstrap, expanded for few questions
    (Hesterberg 2015); the test flips the signs of the differences, which strata do not change.

    Raises:
        ValueError: the two were not measured on the same questions, or on none.
    """
    ensure_same(first, second)
    strata = [
        np.array([values[question] - second[name][question] for question in values])
        for name, values in first.items()
    ]
    value, low, high = _interval(strata)
    tested = compare({_FIGURE: _flat(first)}, {_FIGURE: _flat(second)})[_FIGURE]
    return {
        "value": value,
        "low": min(value, low),
        "high": max(value, high),
        "n": tested["n"],
        "p": tested["p"],
        "test": tested["test"],
    }


def compare_each(first: ByCollection, second: ByCollection) -> dict[str, Paired]:
    """The same by collection, each alone.

    Raises:
        ValueError: the two were not measured on the same questions.
    """
    ensure_same(first, second)
    return {
        name: compare({_FIGURE: first[name]}, {_FIGURE: second[name]})[_FIGURE] for name in first
    }


def ensure_same(first: ByCollection, second: ByCollection) -> None:
    """Raise ValueError if two policies were not measured on the same questions, or on none."""
    asked = [{name: set(values) for name, values in one.items()} for one in (first, second)]
    if asked[0] != asked[1]:
        raise ValueError("two policies can be compared on the same questions only")
    if not any(asked[0].values()):
        raise ValueError("there is no question to compare on")


def _flat(values: ByCollection) -> dict[str, float]:
    return {f"{name}/{one}": value for name, of in values.items() for one, value in of.items()}


def _interval(strata: Sequence[np.ndarray]) -> tuple[float, float, float]:
    """The mean of all values, and the 95 % interval of draws within each stratum."""
    filled = [stratum for stratum in strata if len(stratum)]
    total = sum(len(stratum) for stratum in filled)
    rng = np.random.default_rng(_SEED)
    sums = np.zeros(NUM_DRAWS)
    for stratum in filled:
        size = len(stratum)
        mean = stratum.mean()
        # A draw of n values varies less than n values do: expanded by the root of n / (n - 1).
        wide = mean + (stratum - mean) * np.sqrt(size / max(size - 1, 1))
        for start in range(0, NUM_DRAWS, _CHUNK):
            drawn = rng.integers(0, size, (_CHUNK, size))
            sums[start : start + _CHUNK] += wide[drawn].sum(axis=1)
    low, high = np.quantile(sums / total, (0.025, 0.975))
    return float(sum(stratum.sum() for stratum in filled) / total), float(low), float(high)
