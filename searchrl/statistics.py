"""Statistics: intervals of means and shares, paired differences and their tests, rank correlation.

One file for the core and for packages, which have `searchrl.estimate`, `compare` and `over_seeds`.
Quantiles and rank correlations are scipy's, imported when they are needed. The rollouts of a group
are alike, so an interval counts them as fewer than they are; pairing by task takes out how hard a
task is. `benchmarks/simulate_coverage.py` measures how often the intervals hold the truth.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from searchrl.contracts import Metric, Paired
from searchrl.contracts.problems import MAX_REWARD

Z_95 = 1.959963984540054

Range = tuple[float, float]
"""The least and the greatest value something can take; infinite where nothing bounds it."""

ZERO_OR_ONE: Range = (0.0, 1.0)
COUNT: Range = (0.0, math.inf)

_PRIOR = 0.5
"""Observations added at each end of a range before groups are compared (see `effective_size`)."""

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
_LEAST_OPEN = 20
"""So many values without a bound have an interval: that of fewer with a long tail does not hold."""
_UNSEEN = 12
"""Few values of a long tail show too little of it: their skewness and kurtosis count 1 + 12/n fold,
those of fewer than 20 as of 20. Of 8, 10, 12 and 15 it is the least with which the intervals of 20
lognormal values (sigma 1) hold the truth in .93 of samples; more would make short ones useless."""


def exact(value: float, n: int = 1) -> Metric:
    """A measured quantity without sampling error, so without interval (a learning rate, a time)."""
    return {"value": float(value), "n": n}


def finite_figures(figures: Mapping[str, float]) -> dict[str, float]:
    """The figures of an update that are finite.

    The others are absent, as what was not measured; how many there were is `nonfinite_figures`.
    """
    kept = {name: value for name, value in figures.items() if math.isfinite(value)}
    num_left_out = len(figures) - len(kept)
    return kept | ({"nonfinite_figures": float(num_left_out)} if num_left_out else {})


def proportion(successes: float, n: int) -> Metric:
    """The share of `n` independent observations with Wilson's interval (Wilson 1927, JASA 22).

    Raises:
        ValueError: if `n` is 0: nothing was measured.
    """
    return _wilson(successes / _positive(n), n, n)


def mean(values: Sequence[float], limits: Range, groups: Sequence[Hashable] = ()) -> Metric:
    """A mean with an interval inside `limits`; values that are all 0 or 1 of (0, 1): Wilson's.

    The interval is that of Agresti and Coull (1998, The American Statistician 52) for values of
    any kind: z²/2 observations are added at each end of the range before the normal interval is
    taken, so the interval of equal values, or of one value, has a width, too. If an end of the
    range is open, a rare large value may be missing from the sample, and nothing bounds it: the
    interval is that of `find_interval`, wider by sqrt(n / `effective_size`) and never beyond what
    was seen; there is none for fewer than 20 values, or where nearly all are equal.

    Args:
        values: the observations, at least one.
        limits: the least and the greatest value possible.
        groups: the group of each value; both formulas then take `effective_size` for n. Empty:
            the values are independent.

    Raises:
        ValueError: if there is no value: nothing was measured.
    """
    n = _positive(len(values))
    least, greatest = min(values), max(values)
    # Rounding can move the mean of equal values away from them.
    value = min(max(math.fsum(values) / n, least), greatest)
    # Squares of ends that no score can reach would not be finite.
    low, high = (end if abs(end) <= MAX_REWARD else math.copysign(math.inf, end) for end in limits)
    is_open = math.isinf(low) or math.isinf(high)
    ends = find_interval(np.array(values)) if is_open and n >= _LEAST_OPEN else None
    if is_open and ends is None:
        return exact(value, n)
    low, high = (least if math.isinf(low) else low), (greatest if math.isinf(high) else high)
    size = effective_size(values, groups, (low, high)) if groups else n
    if ends is not None:
        wider = math.sqrt(n / size)
        below, above = (value + (end - value) * wider for end in ends)
        bottom, top = max(low, below), min(high, above)
        return {"value": value, "low": min(value, bottom), "high": max(value, top), "n": n}
    if limits == ZERO_OR_ONE and all(value in limits for value in values):
        return _wilson(value, size, n)
    added, weight = Z_95**2 / 2, size + Z_95**2
    centre = (size * value + added * (low + high)) / weight
    square = math.fsum((x - centre) * (x - centre) for x in values) * size / n
    square += added * ((low - centre) * (low - centre) + (high - centre) * (high - centre))
    half = Z_95 * math.sqrt(square) / weight
    # The value stays inside, also that of a small sample close to an end of the range.
    return {
        "value": value,
        "low": min(value, max(limits[0], centre - half)),
        "high": max(value, min(limits[1], centre + half)),
        "n": n,
    }


def effective_size(values: Sequence[float], groups: Sequence[Hashable], limits: Range) -> float:
    """Number of independent values that tell as much about the mean as these values in groups.

    n_eff = n / D * (t_(n-1) / t_(G-1))², at least 1, for G groups (Korn and Graubard 1998, Survey
    Methodology 24). D, the design effect, is the variance of the mean if groups are drawn, divided
    by that if single values are drawn. The t quantiles correct for the small number of groups that
    D was measured on. Half an observation is added at each end of `limits`, as part of a group of
    average size. So D is not 1 if all values are equal: then nothing is known about how alike the
    values of a group are. Groups of one value give n, and a single group gives 1.

    Args:
        values: the observations, at least one.
        groups: the group of each, in any order.
        limits: the least and the greatest value possible, finite.
    """
    from scipy.special import stdtrit

    n, num_groups = len(values), len(set(groups))
    if num_groups == n:
        return n
    if num_groups == 1:
        return 1.0
    low, high = limits
    average = math.fsum(values) / n
    sums = dict.fromkeys(groups, 0.0)
    for value, group in zip(values, groups, strict=True):
        sums[group] += value - average
    between = math.fsum(total * total for total in sums.values())
    between *= num_groups / (num_groups - 1) * (n - 1) / n
    within = math.fsum((value - average) * (value - average) for value in values)
    centre = (n * average + _PRIOR * (low + high)) / (n + 2 * _PRIOR)
    prior = _PRIOR * ((low - centre) * (low - centre) + (high - centre) * (high - centre))
    design_effect = (between + prior * n / num_groups) / (within + prior)
    few_groups = float(stdtrit(n - 1, 0.975) / stdtrit(num_groups - 1, 0.975))
    return max(1.0, n / max(1.0, design_effect) * few_groups * few_groups)


def _wilson(p: float, size: float, n: int) -> Metric:
    """The interval of a proportion `p`, as `size` independent observations have it."""
    scale = 1 + Z_95**2 / size
    centre = (p + Z_95**2 / (2 * size)) / scale
    half = Z_95 * math.sqrt(p * (1 - p) / size + Z_95**2 / (4 * size * size)) / scale
    # At 0 and 1 rounding would move the end of the interval away from the value.
    low = 0.0 if p == 0 else max(0.0, centre - half)
    high = 1.0 if p == 1 else min(1.0, centre + half)
    return {"value": p, "low": low, "high": high, "n": n}


def _positive(n: int) -> int:
    if n < 1:
        raise ValueError("a metric needs at least one observation; leave out what was not measured")
    return n


def estimate(figures: Figures) -> dict[str, Metric]:
    """The mean of every figure over its tasks, with its interval.

    If every value is 0 or 1 the interval is Wilson's, otherwise that of `find_interval`, inside 0
    and 1 if all values are. A figure without any task is left out. Over a few seeds of which one in
    several fails, no t-interval holds the truth: most samples have no failure (docs/log.md).
    """
    metrics: dict[str, Metric] = {}
    for name, of_task in figures.items():
        values = np.array(list(of_task.values()), dtype=np.float64)
        if not len(values):
            continue
        if np.isin(values, (0.0, 1.0)).all():
            metrics[name] = proportion(float(values.sum()), len(values))
            continue
        metrics[name] = {"value": float(values.mean()), "n": len(values)}
        if ends := find_interval(values):
            if values.min() >= 0 and values.max() <= 1:
                ends = max(0.0, ends[0]), min(1.0, ends[1])
            metrics[name] |= {"low": ends[0], "high": ends[1]}
    return metrics


def over_seeds(values: Sequence[float]) -> Metric:
    """The mean of a value per seed with Student's t-interval; one seed has none.

    ValueError if there is no value.
    """
    from scipy.special import stdtrit

    if (n := _positive(len(values))) == 1:
        return exact(values[0])
    value = math.fsum(values) / n
    half = float(stdtrit(n - 1, 0.975)) * statistics.stdev(values) / math.sqrt(n)
    return {"value": value, "low": value - half, "high": value + half, "n": n}


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
    pairs_of: dict[str, Paired] = {}
    for names, tasks in _alike(both):
        pairs = np.array([[both[name][task] for name in names] for task in tasks])
        labels = [strata[task] for task in tasks] if strata else ()
        columns = _compare_columns(pairs[..., 0], pairs[..., 1], labels)
        pairs_of |= zip(names, columns, strict=True)
    return {name: pairs_of[name] for name in both if name in pairs_of}


def mcnemar(won: int, lost: int) -> float:
    """McNemar's exact test: whether as many pairs changed in one direction as in the other.

    Two-sided binomial p of the pairs that differ; 1 if none does.
    """
    from scipy.special import bdtr  # scipy.stats has it too, and takes a second to import

    return min(1.0, 2 * float(bdtr(min(won, lost), won + lost, 0.5))) if won + lost else 1.0


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
        members = values[labels == label]
        errors[labels == label] = (members - members.mean()) * math.sqrt(
            len(members) / (len(members) - 1)
        )
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
    differences = first - second
    is_share = np.logical_and.reduce(np.isin((first, second), (0.0, 1.0)), axis=(0, 1))
    flipped = iter(_flip_signs(differences[:, ~is_share]))
    paired: list[Paired] = []
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
        paired.append(one)
    return paired


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


def kendall(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Kendall's tau-b (Kendall 1945, Biometrika 33), from -1 to 1; None if one side is constant.

    >>> round(kendall([1, 2, 3, 4], [1, 2, 4, 3]), 6)
    0.666667
    """
    from scipy.stats import kendalltau

    return _correlate(kendalltau, first, second)


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's rho: the correlation of ranks, tied values sharing theirs; None as `kendall`."""
    from scipy.stats import spearmanr

    return _correlate(spearmanr, first, second)


def _correlate(
    measure: Callable[..., Any], first: Sequence[float], second: Sequence[float]
) -> float | None:
    is_constant = len(set(first)) < 2 or len(set(second)) < 2
    return None if is_constant else float(measure(first, second).statistic)
