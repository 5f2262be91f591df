"""Figures by task: the interval of a mean, the difference of two policies, and a test of it.

Owns the intervals over tasks and the paired tests. Pairing by task takes out how hard a task is, so
a difference is seen that two separate intervals hide. A task that was played several times is one
pair, of means. `benchmarks/simulate_coverage.py` measures how often the intervals hold the truth.
Numbers only; no torch.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence

import numpy as np

from searchrl.contracts import Metric, Paired
from searchrl.engine.figures.metrics import Z_95, proportion

NUM_DRAWS = 10_000
_SEED = 0x5EA7C4
_CHUNK = 1000
"""Draws that are held in memory together."""

_COUNTED_OUT = 13
"""So many differences have fewer patterns of signs than there are draws: all are counted."""

MCNEMAR, SIGN_FLIP = "McNemar, exact", "sign flips"

Figures = Mapping[str, Mapping[str, float]]
"""Name of a figure -> task -> value."""

_LEAST_APART = 2
"""So many values must differ from the commonest one: the spread of a single one is not known."""
_UNSEEN = 12
"""Few values of a long tail show too little of it: their skewness and kurtosis count 1 + 12/n fold,
those of fewer than 20 as of 20. Of 8, 10, 12 and 15 it is the least with which the intervals of 20
lognormal values (sigma 1) hold the truth in .93 of samples; more would make short ones useless."""


def estimate(figures: Figures) -> dict[str, Metric]:
    """The mean of every figure over its tasks, with its interval.

    If every value is 0 or 1 the interval is Wilson's, otherwise that of `find_interval`, inside 0
    and 1 if all values are. A figure without any task is left out.
    """
    found: dict[str, Metric] = {}
    for name, of_task in figures.items():
        values = np.array(list(of_task.values()), dtype=np.float64)
        if not len(values):
            continue
        if np.isin(values, (0.0, 1.0)).all():
            found[name] = proportion(float(values.sum()), len(values))
            continue
        found[name] = {"value": float(values.mean()), "n": len(values)}
        if ends := find_interval(values):
            if values.min() >= 0 and values.max() <= 1:
                ends = max(0.0, ends[0]), min(1.0, ends[1])
            found[name] |= {"low": ends[0], "high": ends[1]}
    return found


def compare(
    first: Figures, second: Figures, strata: Mapping[str, Hashable] | None = None
) -> dict[str, Paired]:
    """Every figure that both have, on the tasks that both have a value for.

    If every value is 0 or 1, the interval is that of Bonett and Price (2012, Journal of Educational
    and Behavioral Statistics 37), and the test McNemar's, exact (1947, Psychometrika 12). Otherwise
    the interval is that of `find_interval`, of the differences, and the test flips their signs
    (Fisher 1935). Draws have a fixed seed. `strata`: see `find_interval`; by task.
    """
    both = {
        name: {task: (value, second[name][task]) for task, value in values.items()
               if task in second[name]}
        for name, values in first.items()
        if name in second
    }  # fmt: skip
    found: dict[str, Paired] = {}
    for names, tasks in _alike(both):
        pairs = np.array([[both[name][task] for name in names] for task in tasks])
        labels = [strata[task] for task in tasks] if strata else ()
        columns = _compare_columns(pairs[..., 0], pairs[..., 1], labels)
        found |= zip(names, columns, strict=True)
    return {name: found[name] for name in both if name in found}


def mcnemar(won: int, lost: int) -> float:
    """McNemar's exact test: whether as many pairs changed in one direction as in the other.

    Two-sided binomial p of the pairs that differ; 1 if none does.

    >>> mcnemar(6, 0)
    0.03125
    """
    tail = sum(math.comb(won + lost, i) for i in range(min(won, lost) + 1))
    return min(1.0, 2 * tail / (1 << (won + lost)))


def _alike(figures: Mapping[str, Mapping[str, object]]) -> Iterator[tuple[list[str], list[str]]]:
    """Names of figures that have the same tasks, and these tasks; not those without any."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, values in figures.items():
        if values:
            groups.setdefault(tuple(values), []).append(name)
    return ((names, list(tasks)) for tasks, names in groups.items())


def find_interval(
    values: np.ndarray, strata: Sequence[Hashable] = ()
) -> tuple[float, float] | None:
    """The low and the high end of the 95 % interval of a mean; None if nearly all are equal.

    Student's t, corrected twice from the values themselves. A spread that rests on few of them is
    known badly: the degrees of freedom follow from the kurtosis, n - 1 for a normal one (O'Neill
    2014, The American Statistician 68). On the side of a long tail the end moves out by the first
    term of Edgeworth's series (Hall 1992, Journal of the Royal Statistical Society B 54). Both
    moments are enlarged where there are few values (`_UNSEEN`).

    Args:
        values: the observations.
        strata: the stratum of each, where each stratum has a fixed share of them: only the spread
            within counts. One alone in its stratum is spread about the mean of all.
    """
    from scipy.special import stdtrit

    n = len(values)
    # Sums in another order differ in their last digits.
    alike = np.round(values / (np.abs(values).max() or 1.0), 9)
    if n - np.unique(alike, return_counts=True)[1].max() < _LEAST_APART:
        return None
    mean = values.mean()
    errors = values - mean
    labels = np.unique(np.array([str(one) for one in strata] or [""] * n), return_inverse=True)[1]
    sizes = np.bincount(labels)
    for label in np.flatnonzero(sizes > 1):
        own = values[labels == label]
        errors[labels == label] = (own - own.mean()) * math.sqrt(len(own) / (len(own) - 1))
    square = (errors**2).mean()
    if square == 0:
        return None
    enlarged = 1 + _UNSEEN / max(n, 20)
    skewness = enlarged * (errors**3).mean() / square**1.5
    kurtosis = enlarged * (errors**4).mean() / square**2
    known = n - (sizes > 1).sum() - (sizes == 1).any()
    t = stdtrit(max(1, min(known, 2 * n / (kurtosis - (n - 3) / (n - 1)))), 0.975)
    error = math.sqrt(square / n)
    moved = error * skewness * (1 + 2 * t * t) / (6 * math.sqrt(n))
    return float(mean - t * error + min(moved, 0)), float(mean + t * error + max(moved, 0))


def _compare_columns(
    first: np.ndarray, second: np.ndarray, strata: Sequence[Hashable]
) -> list[Paired]:
    """The comparison of each column of two tables (task, figure) of one shape."""
    differences = first - second
    is_share = np.logical_and.reduce(np.isin((first, second), (0.0, 1.0)), axis=(0, 1))
    flipped = iter(_flip_signs(differences[:, ~is_share]))
    found: list[Paired] = []
    for column, of_tasks in enumerate(differences.T):
        won, lost = int((of_tasks > 0).sum()), int((of_tasks < 0).sum())
        ends: tuple[float, float] | None
        if is_share[column]:
            ends, p, test = _bonett_price(won, lost, len(of_tasks)), mcnemar(won, lost), MCNEMAR
        else:
            ends, p, test = find_interval(of_tasks, strata), next(flipped), SIGN_FLIP
        value = float(of_tasks.mean())
        one: Paired = {"value": value, "n": len(of_tasks), "p": p, "test": test}
        if ends:
            one |= {"low": min(value, ends[0]), "high": max(value, ends[1])}
        found.append(one)
    return found


def _bonett_price(won: int, lost: int, n: int) -> tuple[float, float]:
    """Wald's interval of a difference of paired shares, with one pair added in each direction.

    It has a width even if no pair differs, or all do.
    """
    more, fewer = (won + 1) / (n + 2), (lost + 1) / (n + 2)
    half = Z_95 * math.sqrt((more + fewer - (more - fewer) * (more - fewer)) / (n + 2))
    return max(-1.0, more - fewer - half), min(1.0, more - fewer + half)


def _flip_signs(differences: np.ndarray) -> list[float]:
    """For each column, the share of patterns of signs with a sum as far from 0 as the one seen.

    All patterns are counted if there are few; of drawn ones, which the columns share, it is
    (b + 1) / (m + 1), the pattern that was seen among them (Phipson and Smyth 2010).
    """
    # Sums in another order differ in their last digits.
    seen = np.abs(differences.sum(axis=0)) - 1e-12 * np.abs(differences).sum(axis=0)
    is_few = (differences != 0).sum(axis=0) <= _COUNTED_OUT
    num_beyond = np.zeros(differences.shape[1], dtype=np.int64)
    if not is_few.all():
        rng = np.random.default_rng(_SEED)
        for _ in range(NUM_DRAWS // _CHUNK):
            signs = rng.integers(0, 2, (_CHUNK, len(differences))) * 2.0 - 1.0
            num_beyond += (np.abs(signs @ differences) >= seen).sum(axis=0)
    shares = (num_beyond + 1) / (NUM_DRAWS + 1)
    for column in np.flatnonzero(is_few):
        changed = differences[differences[:, column] != 0, column]
        patterns = np.arange(2 ** len(changed))[:, None] >> np.arange(len(changed)) & 1
        shares[column] = (np.abs((2 * patterns - 1) @ changed) >= seen[column]).mean()
    return list(map(float, shares))
