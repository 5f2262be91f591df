"""What choosing the best list of every question would give, and how much of that is luck.

Owns the oracle and its control. The highest of several noisy values is above each of them even if
none is better: an oracle over lists that differ by chance alone wins as well. The control takes the
best single list, re-draws its order with noise so that the copies differ from it as much as the
real lists do, and lets an oracle choose among as many copies. What the real oracle wins beyond that
is what a policy could learn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from searchrl_control.comparison.sequences import Values
from searchrl_control.environment.measures import CUTOFF, ndcg

Listed = Sequence[tuple[str, float]]
"""A long list: ids with scores, best first. Longer than what is measured, so that noise can move
passages in from below."""

_ROUNDS = 12
_LARGEST = 16.0
"""Of the search for the amount of noise: halvings, and where they begin."""


class Margin(NamedTuple):
    """The oracle over some lists, on the same questions as its control.

    `best` is the mean of the best single list, `oracle` and `control` are the means of the two
    choices; `spread` is the mean difference of the real lists from the best one, without signs, and
    `control_spread` that of the copies.
    """

    best: float
    oracle: float
    control: float
    spread: float
    control_spread: float

    @property
    def learnable(self) -> float:
        """What the oracle wins beyond luck; below 0, nothing."""
        return self.oracle - self.control


def measure_margin(
    values: Values,
    best: str,
    lists: Mapping[str, Listed],
    qrels: Mapping[str, Mapping[str, int]],
    *,
    k: int = CUTOFF,
    seed: int = 0,
) -> Margin:
    """The oracle over sequences, and that over copies of the best one.

    Args:
        values: of every sequence.
        best: the sequence that is copied.
        lists: by question, the long list of that sequence.
        qrels: by question, the relevant passages.
        k: cutoff of nDCG.
        seed: of the noise.

    Raises:
        ValueError: there is no other sequence, or a question has no list.
    """
    others = [name for name in values if name != best]
    questions = list(values[best])
    if not others or any(question not in lists for question in questions):
        raise ValueError("expected at least two sequences, and a list for every question")
    of_best = np.array([values[best][question] for question in questions])
    of_others = np.array([[values[name][question] for question in questions] for name in others])
    spread = float(np.abs(of_others - of_best).mean())

    def copy(noise: float) -> np.ndarray:
        rng = np.random.default_rng(seed)
        return np.array(
            [
                [
                    ndcg(_redraw(lists[question], noise, rng), qrels[question], k)
                    for question in questions
                ]
                for _ in others
            ]
        )

    copies = copy(_find_noise(lambda noise: float(np.abs(copy(noise) - of_best).mean()), spread))
    return Margin(
        best=float(of_best.mean()),
        oracle=float(np.maximum(of_others.max(axis=0), of_best).mean()),
        control=float(np.maximum(copies.max(axis=0), of_best).mean()),
        spread=spread,
        control_spread=float(np.abs(copies - of_best).mean()),
    )


def _redraw(listed: Listed, noise: float, rng: np.random.Generator) -> list[str]:
    """The ids of a list, ordered by their min-max points plus noise."""
    scores = np.array([score for _, score in listed])
    span = float(scores.max() - scores.min()) if len(scores) else 0.0
    points = (scores - scores.min()) / span if span > 0 else np.zeros(len(scores))
    order = np.argsort(-(points + rng.normal(0, noise, len(points))), kind="stable")
    return [listed[place][0] for place in order.tolist()]


def _find_noise(spread_of: Callable[[float], float], wanted: float) -> float:
    """The noise whose copies differ as much as wanted, by halving; more noise differs more."""
    low, high = 0.0, _LARGEST
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        low, high = (middle, high) if spread_of(middle) < wanted else (low, middle)
    return (low + high) / 2
