"""How often the intervals of `searchrl.estimate` and `searchrl.compare` hold the truth.

    python benchmarks/simulate_coverage.py --rounds 2000

Draws samples of known mean in shapes that figures of search agents have and prints a table:
coverage of the interval, and the share of samples that have one.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from searchrl.statistics import COUNT, find_interval, mean

SIZES = (10, 20, 50, 100, 200)
NUM_SAMPLES = 4
Draw = Callable[[np.random.Generator, int], np.ndarray]


class Shape(NamedTuple):
    """Independent differences (or values) of a known mean."""

    name: str
    draw: Draw
    truth: float


def sparse(draw: Draw) -> Draw:
    """85 % of the pairs are equal, the others differ by what is drawn."""
    return lambda rng, n: np.where(rng.random(n) < 0.15, draw(rng, n), 0.0)


def clustered(rng: np.random.Generator, n: int) -> np.ndarray:
    """Means of four 0/1 samples a task; tasks are nearly always or nearly never solved."""
    easy = rng.random(n) < 0.5
    chances = np.where(easy, 0.95, 0.05), np.where(easy, 0.9, 0.1)
    first, second = (rng.binomial(NUM_SAMPLES, chance) / NUM_SAMPLES for chance in chances)
    return np.asarray(first - second)


SHAPES = (
    Shape("85 % equal, others ±½", sparse(lambda r, n: r.choice((-0.5, 0.5), n)), 0.0),
    Shape("85 % equal, +½ twice as often", sparse(lambda r, n: r.choice((-.5, .5, .5), n)), 0.025),
    Shape("85 % equal, others uniform in 0..1", sparse(lambda r, n: r.random(n)), 0.075),
    Shape("85 % equal, others exponential", sparse(lambda r, n: r.exponential(1, n)), 0.15),
    Shape("85 % equal, others normal(½, 1)", sparse(lambda r, n: r.normal(0.5, 1, n)), 0.075),
    Shape("normal", lambda r, n: r.normal(0.3, 1, n), 0.3),
    Shape("Student's t, 3 df", lambda r, n: r.standard_t(3, n), 0.0),
    Shape("four samples a task", clustered, 0.0),
    Shape("lognormal, sigma 0.7", lambda r, n: r.lognormal(0, 0.7, n), math.exp(0.245)),
    Shape("lognormal, sigma 1", lambda r, n: r.lognormal(0, 1, n), math.exp(0.5)),
)  # fmt: skip

CLUMPS = Shape("2 % are 5, others 0", lambda r, n: np.where(r.random(n) < 0.02, 5.0, 0.0), 0.1)
FAILING = Shape(
    "one seed in five fails",
    lambda r, n: np.where(r.random(n) < 0.2, 0.0, r.normal(0.5, 0.02, n)),
    0.4,
)
SEEDS = (3, 5, 8, 20, 50)

STRATA = ((5, 5, 1), (3, 1, 1, 1), (10, 1, 1, 1, 1, 1), (1,) * 8, (20, 20))
"""Sizes of strata whose means differ; the tasks within are normal."""


def by_range(values: np.ndarray, _strata: Sequence[int] = ()) -> tuple[float, float] | None:
    """The interval of metrics of a run, for counts without a bound; None: they have none."""
    found = mean(np.round(100 * values).tolist(), COUNT)
    return (found["low"] / 100, found["high"] / 100) if "low" in found else None


def by_bound(values: np.ndarray, _strata: Sequence[int] = ()) -> tuple[float, float] | None:
    """The same for counts of at most 5: Agresti and Coull's."""
    found = mean(values.tolist(), (0.0, 5.0))
    return found["low"], found["high"]


def main() -> None:
    """Print the tables in Markdown."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--rounds", type=int, default=2000)
    given = parser.parse_args()
    heads = " | ".join(f"n = {n}" for n in SIZES)
    print(f"| shape | interval | {heads} |\n|---|---|{'---|' * len(SIZES)}")
    for shape in (*SHAPES, CLUMPS):
        ways = {"now": find_interval}
        if shape.name.startswith("lognormal") or shape is CLUMPS:
            ways["`metrics.mean`, counts"] = by_range
        if shape is CLUMPS:
            ways["`metrics.mean`, at most 5"] = by_bound
        for name, way in ways.items():
            cells = [cover(way, shape.draw, shape.truth, given.rounds, n) for n in SIZES]
            print(f"| {shape.name} | {name} | {' | '.join(cells)} |", flush=True)
    seeds = [cover(find_interval, FAILING.draw, FAILING.truth, given.rounds, n) for n in SEEDS]
    print(f"\n{FAILING.name}, {SEEDS} seeds: {', '.join(seeds)}")
    print("\n| strata | coverage |\n|---|---|")
    for sizes in STRATA:
        labels = [number for number, size in enumerate(sizes) for _ in range(size)]
        levels = np.array([0.3 * label for label in labels])
        truth = float(levels.mean())
        held = cover(
            find_interval,
            lambda r, n, at=levels: at + r.normal(0, 1, n),
            truth,
            given.rounds,
            len(labels),
            labels,
        )
        print(f"| {', '.join(map(str, sizes))} | {held} |", flush=True)


def cover(
    way: Callable[..., tuple[float, float] | None],
    draw: Draw,
    truth: float,
    rounds: int,
    n: int,
    strata: Sequence[int] = (),
) -> str:
    """The share of the intervals that hold the truth; the share of samples that have one."""
    rng = np.random.default_rng(17)
    found = [way(draw(rng, n), strata) for _ in range(rounds)]
    given = [ends for ends in found if ends]
    held = sum(low - 1e-9 <= truth <= high + 1e-9 for low, high in given) / max(1, len(given))
    return f"{held:.3f}" + (f" (of {len(given) / rounds:.0%})" if len(given) < rounds else "")


if __name__ == "__main__":
    main()
