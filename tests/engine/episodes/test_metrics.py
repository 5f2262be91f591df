"""Intervals of means: inside the declared range, never certain of what was not seen."""

from __future__ import annotations

import json
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchrl.engine.episodes.metrics import (
    COUNT,
    ZERO_OR_ONE,
    Range,
    label_tasks,
    mean,
    proportion,
)

UNBOUNDED: Range = (-math.inf, math.inf)


@given(st.lists(st.floats(0, 2), min_size=1, max_size=60))
def test_interval_lies_in_the_declared_range_around_the_value(values: list[float]) -> None:
    metric = mean(values, (0.0, 2.0))
    assert 0 <= metric["low"] <= metric["value"] <= metric["high"] <= 2
    assert metric["value"] == pytest.approx(math.fsum(values) / len(values))
    assert metric["low"] < metric["high"] and metric["n"] == len(values)


def test_scores_near_the_end_of_their_range_do_not_leave_it() -> None:
    """The normal interval of these is [0.986, 1.003]."""
    metric = mean([1.0] * 253 + [0.5] * 3, ZERO_OR_ONE)
    assert metric["value"] == pytest.approx(0.994, abs=5e-4)
    assert 0.97 < metric["low"] < 0.99 and 0.997 < metric["high"] <= 1.0


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("limits", [ZERO_OR_ONE, (0.0, 2.0), COUNT, (-1.0, 1.0), UNBOUNDED])
def test_constant_sample_is_no_certainty_and_more_of_it_says_more(
    value: float, limits: Range
) -> None:
    widths = []
    for n in (1, 10, 256):
        metric = mean([value] * n, limits)
        assert limits[0] <= metric["low"] <= value <= metric["high"] <= limits[1]
        widths.append(metric["high"] - metric["low"])
    assert widths[0] > widths[1] > widths[2] > 0 and widths[2] < widths[0] / 10


def test_of_zeros_and_ones_it_is_wilsons_but_not_where_more_was_possible() -> None:
    values = [1.0] * 3 + [0.0] * 7
    assert mean(values, ZERO_OR_ONE) == proportion(3, 10)
    assert mean(values, (0.0, 2.0))["high"] > proportion(3, 10)["high"]
    # A constant says of the reward what it says of everything between its ends.
    assert mean([1.0] * 10, (0.0, 2.0))["high"] > 1.1


def test_it_is_agresti_and_coulls_for_zeros_and_ones_of_a_wider_scale() -> None:
    """On {0, 1} scaled by 2 the formula is the published one, scaled by 2."""
    n, hits, z = 40, 6, 1.959963984540054
    metric = mean([2.0] * hits + [0.0] * (n - hits), (0.0, 2.0))
    p = (hits + z * z / 2) / (n + z * z)
    half = z * math.sqrt(p * (1 - p) / (n + z * z))
    assert metric["low"] == pytest.approx(2 * (p - half))
    assert metric["high"] == pytest.approx(2 * (p + half))


@pytest.mark.parametrize(
    ("draw", "limits", "truth"),
    [
        (lambda rng: rng.choices((0, 0.5, 1), (0.01, 0.02, 0.97))[0], ZERO_OR_ONE, 0.98),
        (lambda rng: rng.random(), ZERO_OR_ONE, 0.5),
        (lambda rng: 1 + (rng.random() < 0.1), (0.0, 2.0), 1.1),
        (lambda rng: float(rng.choices((0, 1, 2, 3), (5, 3, 1, 1))[0]), COUNT, 0.8),
    ],
)
def test_it_holds_the_truth_about_as_often_as_it_says(draw, limits: Range, truth: float) -> None:
    rng = random.Random(0)
    hits = 0
    for _ in range(400):
        metric = mean([draw(rng) for _ in range(64)], limits)
        hits += metric["low"] <= truth <= metric["high"]
    assert hits / 400 >= 0.93


@pytest.mark.parametrize("limits", [ZERO_OR_ONE, (0.5, 2.0), COUNT, UNBOUNDED])
def test_nothing_observed_is_still_json(limits: Range) -> None:
    metric = mean([], limits)
    json.dumps(metric, allow_nan=False)
    assert metric["n"] == 0 and metric["low"] <= metric["value"] <= metric["high"]


def test_tasks_on_one_env_are_told_apart_by_their_place() -> None:
    class World:
        def __init__(self, name: str) -> None:
            self.name = name

    worlds = [World("a"), World("b"), World("a")]
    assert label_tasks(worlds) == ["a.0", "b", "a.2"]  # type: ignore[arg-type]
