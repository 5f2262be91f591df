"""Arithmetic on curves that several alarms need: windows, streaks, whether a run is learning.

A single bad step is noise, and trouble is a streak of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, takewhile

from searchrl.contracts.history import History, Point

WINDOW = 5
"""Steps that are averaged: the reward of one step of 64 rollouts is off by 0.1 either way."""

PEAK = 2
"""Steps that are averaged for the best that there was: some runs collapse after the second step."""

START = 3
"""The start of a reward is shorter: a quick run has learned most of it after five steps."""

_RISEN = 0.1
_KEPT = 0.6
"""Shares of the way from a reward's least to its greatest value; see `is_learning`."""


def mean(points: Sequence[Point]) -> float:
    """The mean of at least one point."""
    return sum(point.value for point in points) / len(points)


def best_mean(points: Sequence[Point], size: int = PEAK) -> float:
    """The greatest mean of `size` points in a row; of all of them if there are fewer."""
    return max(mean(points[i : i + size]) for i in range(max(1, len(points) - size + 1)))


def streak(points: Sequence[Point], is_bad: Callable[[Point], bool], steps: int = 1) -> list[Point]:
    """The bad points at the end of a curve, oldest first; none if they are fewer than `steps`."""
    bad = [*takewhile(is_bad, reversed(points))][::-1]
    return bad if len(bad) >= steps else []


def above(limit: float, *, or_equal: bool = False) -> Callable[[Point], bool]:
    """Return a test for points above a limit; one that is not a number is."""
    if or_equal:
        return lambda point: not point.value < limit
    return lambda point: not point.value <= limit


def below(limit: float) -> Callable[[Point], bool]:
    """Return a test for points below a limit; one that is not a number is."""
    return lambda point: not point.value >= limit


def is_learning(history: History, label: str = "") -> bool:
    """Return True if the reward has risen since the start and most of that is still there.

    The mean of the last steps must be above that of the first by more than chance and by a tenth of
    all that the reward ever moved, and no further below the best than four tenths of it. Chance is
    twice the standard error of the difference, from the differences of neighbouring steps.
    """
    curve = history.curve(f"{label}reward")
    if len(curve) < 2 * WINDOW:
        return False
    values = [point.value for point in curve]
    span = max(values) - min(values)
    first, last = mean(curve[:START]), mean(curve[-WINDOW:])
    squares = [(b - a) * (b - a) / 2 for a, b in pairwise(values)]
    noise = math.sqrt(sum(squares) / len(squares) * (1 / START + 1 / WINDOW))
    is_risen = last > first + max(_RISEN * span, 2 * noise)
    return is_risen and last >= best_mean(curve, WINDOW) - (1 - _KEPT) * span


def fall_from_best(
    points: Sequence[Point], steps: int, limit_of: Callable[[float], float]
) -> tuple[float, list[Point]]:
    """The best mean of a curve, and its last points if they are below `limit_of` that."""
    if len(points) < PEAK + steps:
        return 0.0, []
    best = best_mean(points)
    return best, streak(points, below(limit_of(best)), steps)


def labels(history: History) -> Iterator[str]:
    """Yield the prefix of the metrics of all tasks together, then of each task of a mixture."""
    yield ""
    for task in history.tasks:
        yield f"{task}/"


def of_task(label: str) -> str:
    """`" of task 'corpus'"`; "" for all tasks together."""
    return f" of task '{label[:-1]}'" if label else ""


def percent(share: float) -> str:
    """`97 %`."""
    return f"{100 * share:.0f} %"
