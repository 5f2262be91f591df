"""Figures by task: the interval of a mean, of a difference, and the test of a difference."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchrl.contracts import Paired
from searchrl.statistics import (
    COUNT,
    MCNEMAR,
    SIGN_FLIP,
    ZERO_OR_ONE,
    Range,
    compare,
    effective_size,
    estimate,
    exact,
    find_interval,
    finite_figures,
    kendall,
    mcnemar,
    mean,
    proportion,
    spearman,
)

ZERO_ONE = st.sampled_from([0.0, 1.0])
UNBOUNDED: Range = (-math.inf, math.inf)


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (81, 263, 0.2552885198783, 0.3662095769828),
        (15, 148, 0.0623863995307, 0.1604872417233),
        (0, 20, 0.0, 0.1611251580528),
        (1, 29, 0.0061132142928, 0.1717552187933),
        (29, 29, 0.8830302015003, 1.0),
    ],
)
def test_wilsons_interval_is_that_of_the_literature(
    successes: int, n: int, low: float, high: float
) -> None:
    """The first four are Newcombe's (1998, Statistics in Medicine 17, table I), with more digits.

    Computed in 40 digits as the roots of (p - x)² = z² x (1 - x) / n.
    """
    metric = proportion(successes, n)
    assert (metric["low"], metric["high"]) == pytest.approx((low, high), rel=0, abs=1e-9)
    assert metric["value"] == successes / n and metric["n"] == n
    assert not any(proportion(0, size)["low"] for size in range(1, 300))


GROUPED = st.lists(st.tuples(st.floats(0, 2), st.integers(0, 4)), min_size=1, max_size=60)


@given(GROUPED, st.sampled_from([(0.0, 2.0), (-1.0, 2.0), COUNT, (-math.inf, 2.0), UNBOUNDED]))
def test_interval_lies_in_the_range_around_the_value(
    observed: list[tuple[float, int]], limits: Range
) -> None:
    values, groups = [value for value, _ in observed], [group for _, group in observed]
    for metric in (mean(values, limits), mean(values, limits, groups)):
        assert metric["value"] == pytest.approx(math.fsum(values) / len(values))
        assert min(values) <= metric["value"] <= max(values) and metric["n"] == len(values)
        low, high = (max(limits[0], -9.0), min(limits[1], 9.0))
        if "low" not in metric:
            assert not all(map(math.isfinite, limits))
            assert len(values) < 20 or find_interval(np.array(values)) is None
        else:
            assert low <= metric["low"] <= metric["value"] <= metric["high"] <= high
            assert metric["low"] < metric["high"]


def test_reward_of_unknown_range_is_never_below_what_was_seen() -> None:
    """FrozenLake's reward, 4 successes of 256: 0.016 was given the interval [-0.005, 0.050]."""
    metric = mean([1.0] * 4 + [0.0] * 252, UNBOUNDED)
    assert metric["low"] == 0.0 and metric["high"] == pytest.approx(0.05, abs=0.02)


@pytest.mark.parametrize("limits", [(0.0, 1e308), (-1e308, 1e308), (-1e308, math.inf)])
def test_ends_that_no_score_can_reach_are_taken_as_open(limits: Range) -> None:
    """Their squares are infinite, and an interval of them is no number."""
    metric = mean([0.0, 1.0, 1e30] * 8, limits)
    assert all(math.isfinite(number) for number in metric.values())
    assert metric["low"] < metric["value"] < metric["high"]


@pytest.mark.parametrize(
    ("draw", "truth", "n", "limits"),
    [
        (lambda rng, n: np.where(rng.random(n) < 0.02, 5.0, 0.0), 0.1, 50, COUNT),
        (lambda rng, n: np.where(rng.random(n) < 0.02, 5.0, 0.0), 0.1, 50, (0.0, 5.0)),
        (lambda rng, n: np.where(rng.random(n) < 0.05, 5.0, 0.0), 0.25, 20, COUNT),
        (lambda rng, n: np.round(100 * rng.lognormal(0, 1, n)), 165.0, 20, COUNT),
    ],
)
def test_counts_with_rare_large_values_have_an_interval_that_holds_or_none(
    draw: Any, truth: float, n: int, limits: Range
) -> None:
    """Coverage was .62 for clumps, and .898 for the tail, one beyond the largest as end."""
    rng = np.random.default_rng(3)
    given = [one for _ in range(600) if "low" in (one := mean(draw(rng, n).tolist(), limits))]
    assert sum(one["low"] <= truth <= one["high"] for one in given) >= 0.92 * len(given) > 90
    assert (len(given) == 600) or limits == COUNT


def test_a_value_alone_in_its_stratum_is_spread_about_the_mean_of_all() -> None:
    values = np.array([0.0, 0.1, 0.2, 5.0])
    low, high = find_interval(values, list("aaab")) or (0.0, 0.0)
    errors = np.array([-0.1, 0.0, 0.1, 0.0]) * math.sqrt(3 / 2)
    errors[3] = 5.0 - values.mean()
    assert high - low > 2 * 1.96 * math.sqrt((errors**2).mean() / 4)
    # All alone: they share the mean of all, so 7 of 8 deviations are free. t(7) is 2.3646.
    even = find_interval(np.array([1.0, -1.0] * 4), range(8))
    assert even == pytest.approx((-2.3646 / math.sqrt(8), 2.3646 / math.sqrt(8)), abs=1e-4)


def test_figures_that_are_not_finite_are_left_out_and_counted() -> None:
    figures = {"loss": math.nan, "ratio_mean": math.inf, "lr": 1e-4}
    assert finite_figures(figures) == {"lr": 1e-4, "nonfinite_figures": 2.0}
    assert finite_figures({"lr": 1e-4}) == {"lr": 1e-4}


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("limits", [ZERO_OR_ONE, (0.0, 2.0), (-1.0, 1.0)])
def test_constant_sample_is_no_certainty_and_more_of_it_says_more(value: float, limits: Range):
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
    # Ten equal values of a wider range leave much of it possible.
    assert mean([1.0] * 10, (0.0, 2.0))["high"] > 1.1


def test_it_is_agresti_and_coulls_for_zeros_and_ones_of_a_wider_scale() -> None:
    """On {0, 1} scaled by 2 the formula is the published one, scaled by 2."""
    n, hits, z = 40, 6, 1.959963984540054
    metric = mean([2.0] * hits + [0.0] * (n - hits), (0.0, 2.0))
    p = (hits + z * z / 2) / (n + z * z)
    half = z * math.sqrt(p * (1 - p) / (n + z * z))
    assert metric["low"] == pytest.approx(2 * (p - half))
    assert metric["high"] == pytest.approx(2 * (p + half))


class TestGroups:
    """Rollouts of one prompt are alike (measured: intraclass correlation 0.30)."""

    def test_effective_size_by_hand(self) -> None:
        # Sums about the mean 1/2: 1, -1 and 0. Between 2 * 3/2 * 5/6, within 6/4, prior 1/4.
        values, groups = [1.0, 1.0, 0.0, 0.0, 1.0, 0.0], ["a", "a", "b", "b", "c", "c"]
        design_effect = (2.5 + 0.25 * 2) / (1.5 + 0.25)
        few = (2.5706 / 4.3027) ** 2
        wanted = 6 / design_effect * few
        assert effective_size(values, groups, ZERO_OR_ONE) == pytest.approx(wanted, rel=1e-3)
        # Groups that are more alike than chance say no more than single values.
        even = effective_size([1.0, 0.0] * 3, groups, ZERO_OR_ONE)
        assert even == pytest.approx(6 * few, rel=1e-3)

    def test_equal_values_count_as_one_a_group_and_one_group_as_one(self) -> None:
        groups = [number // 8 for number in range(64)]
        assert effective_size([1.0] * 64, groups, ZERO_OR_ONE) == pytest.approx(8 * 0.714, rel=1e-3)
        assert effective_size([0.0, 1.0, 1.0], [7, 7, 7], ZERO_OR_ONE) == 1
        many = mean([1.0] * 64, ZERO_OR_ONE, groups)
        assert many["n"] == 64 and many["low"] < proportion(64, 64)["low"] < many["high"] == 1


def test_a_mean_of_nothing_is_refused_and_an_exact_figure_has_no_interval() -> None:
    for measure in (lambda: mean([], ZERO_OR_ONE), lambda: proportion(0, 0)):
        with pytest.raises(ValueError, match="at least one observation"):
            measure()
    assert exact(1e-4, 7) == {"value": 1e-4, "n": 7}


def compare_pairs(pairs: Sequence[tuple[float, float]]) -> Paired:
    first, second = (
        {"x": {str(task): value for task, value in enumerate(side)}}
        for side in zip(*pairs, strict=True)
    )
    return compare(first, second)["x"]


@pytest.mark.parametrize(
    ("won", "lost", "p"),
    [(0, 0, 1.0), (5, 5, 1.0), (6, 0, 2 / 64), (0, 6, 2 / 64), (8, 1, 2 * 10 / 512)],
)
def test_mcnemars_test_is_that_of_a_coin(won: int, lost: int, p: float) -> None:
    assert mcnemar(won, lost) == pytest.approx(p)


@given(st.lists(st.tuples(ZERO_ONE, ZERO_ONE), min_size=1, max_size=60))
def test_a_difference_lies_in_its_interval_and_turns_with_its_sides(
    pairs: list[tuple[float, float]],
) -> None:
    one = compare_pairs(pairs)
    other = compare_pairs([(b, a) for a, b in pairs])
    assert -1 <= one["low"] <= one["value"] <= one["high"] <= 1
    assert other["value"] == -one["value"] and other["p"] == one["p"] and one["n"] == len(pairs)
    assert other["low"] == pytest.approx(-one["high"]) and one["test"] == MCNEMAR
    assert one["high"] - one["low"] > 1 / (len(pairs) + 2), "few tasks are never certain"


def test_the_interval_of_shares_is_that_of_bonett_and_price() -> None:
    """By hand: 16 pairs, 0 won and 4 lost; so 1/18 and 5/18."""
    found = compare_pairs([(0.0, 1.0)] * 4 + [(1.0, 1.0)] * 12)
    half = 1.959964 * math.sqrt((6 / 18 - (4 / 18) ** 2) / 18)
    assert found["value"] == -0.25
    assert found["low"] == pytest.approx(-4 / 18 - half, abs=1e-6)
    assert found["high"] == pytest.approx(-4 / 18 + half, abs=1e-6)
    assert found["high"] > 0 and found["p"] == 0.125, "interval and test say the same"


@pytest.mark.parametrize("scale", [1.0, 1e6, 1e-6])
def test_few_differences_are_counted_out(scale: float) -> None:
    """Three times better: of eight patterns of signs, two are as far out; in any unit."""
    better = compare_pairs([(0.1 * scale, 0.0), (0.2 * scale, 0.0), (0.3 * scale, 0.0)])
    assert better["p"] == 2 / 8 and better["test"] == SIGN_FLIP
    mixed = compare_pairs([(0.1 * scale, 0.0), (0.2 * scale, 0.0), (0.0, 0.3 * scale)])
    assert mixed["p"] == 1.0
    many = compare_pairs([(0.1 * i * scale, 0.0) for i in range(1, 40)])
    assert many["p"] == pytest.approx(1 / 10_001)


@given(st.integers(1, 10), st.integers(0, 10), st.integers(0, 5))
def test_counting_out_is_mcnemars_test_where_both_can_be_had(won: int, lost: int, same: int):
    pairs = [(1.0, 0.0)] * won + [(0.0, 1.0)] * min(lost, 13 - won) + [(1.0, 1.0)] * same
    halves = [(one / 2, other / 2) for one, other in pairs]
    assert compare_pairs(halves)["p"] == pytest.approx(compare_pairs(pairs)["p"])


def test_strata_take_the_spread_between_them_out() -> None:
    values = np.array([0.0, 0.1, 0.2, 5.0, 5.1, 5.2])
    low, high = find_interval(values, list("aaabbb")) or (0.0, 0.0)
    # By hand: spread 0.1 within, so the error is 0.1 / sqrt(6), and t has 4 degrees of freedom.
    assert (low, high) == pytest.approx((2.6 - 0.11335, 2.6 + 0.11335), abs=1e-5)
    wide = find_interval(values) or (0.0, 0.0)
    assert wide[1] - wide[0] > 10 * (high - low)


def test_a_long_tail_moves_the_end_on_its_side() -> None:
    """O'Neill's degrees of freedom and Hall's term, with the moments that scipy finds."""
    from scipy.stats import kurtosis, skew, t

    values, n = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 9.0]), 6
    enlarged = 1 + 12 / 20
    spread = enlarged * kurtosis(values, fisher=False) - (n - 3) / (n - 1)
    quantile = t.ppf(0.975, min(n - 1, 2 * n / spread))
    error = values.std(ddof=1) / math.sqrt(n)
    moved = error * enlarged * skew(values) * (1 + 2 * quantile**2) / (6 * math.sqrt(n))
    mean = values.mean()
    expected = (mean - quantile * error, mean + quantile * error + moved)
    assert find_interval(values) == pytest.approx(expected, rel=1e-9)
    assert find_interval(-values) == pytest.approx((-expected[1], -expected[0]), rel=1e-9)


def test_too_few_differences_have_a_test_and_no_interval() -> None:
    for others in ([], [(0.9, 0.4)]):
        found = compare_pairs([(0.3, 0.3), *others, (0.5, 0.5), (0.2, 0.2)])
        assert "low" not in found and found["p"] == 1.0
    constant = compare_pairs([(1000.1 * n + 0.2, 1000.1 * n) for n in range(9)])
    assert "low" not in constant and constant["p"] < 0.01


def test_only_tasks_and_figures_of_both_are_compared() -> None:
    first = {"em": {"a": 1.0, "b": 1.0, "c": 0.0}, "f1": {"a": 0.5}, "env": {"a": 1.0}}
    second = {"em": {"b": 0.0, "c": 0.0, "d": 1.0}, "f1": {"b": 0.5}}
    found = compare(first, second)
    assert set(found) == {"em"}
    assert found["em"]["n"] == 2 and math.isclose(found["em"]["value"], 0.5)


def test_a_mean_has_the_interval_of_its_kind() -> None:
    tasks = [f"t{number}" for number in range(7)]
    found = estimate({
        "even": dict(zip(tasks, (-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0), strict=True)),
        "high": dict(zip(tasks, (0.7, 1.0, 1.0, 1.0, 1.0, 0.9, 0.9), strict=True)),
        "count": dict(zip(tasks, (0.0, 0.0, 1.0, 1.0, 2.0, 3.0, 7.0), strict=True)),
        "none": {},
        "all": dict.fromkeys(tasks, 1.0),
        "equal": dict.fromkeys(tasks, 0.1),
    })  # fmt: skip
    assert list(found) == ["even", "high", "count", "all", "equal"]
    assert found["count"]["high"] > found["count"]["value"] == 2
    half = 2.446912 * math.sqrt(28 / 6 / 7)
    assert (found["even"]["low"], found["even"]["high"]) == pytest.approx((-half, half), abs=1e-5)
    assert found["high"]["high"] == 1.0 and found["high"]["low"] > 0
    assert found["all"] == proportion(7, 7)
    assert found["equal"] == {"value": pytest.approx(0.1), "n": 7}


def test_rank_correlations_of_ties_by_hand_and_of_constants() -> None:
    """Six pairs: four in order, one out of it, one tied in the second."""
    first, second = [1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 2.0, 3.0]
    assert kendall(first, second) == pytest.approx((4 - 1) / math.sqrt(6 * 5))
    # Ranks 1 to 4 against 1, 3.5, 2, 3.5.
    assert spearman(first, second) == pytest.approx(3 / math.sqrt(5 * 4.5))
    assert kendall(first, [1.0] * 4) is None and spearman([2.0] * 4, second) is None
