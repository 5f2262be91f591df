"""Advantages: golden values, the invariances of each estimator, dead groups."""

import functools
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchrl.core.advantage import (
    AdvantageFn,
    Column,
    StepScores,
    dead_groups,
    dr_grpo_advantages,
    grpo_advantages,
    overlong_penalty,
    reinforce_pp_baseline_advantages,
    rloo_advantages,
    turn_advantages,
)
from searchrl.core.group import TrainItem
from searchrl.core.llds import solved_groups
from searchrl.core.trajectory import Trajectory

OF_A_GROUP: list[AdvantageFn] = [grpo_advantages, dr_grpo_advantages, rloo_advantages]
ALL = [*OF_A_GROUP, reinforce_pp_baseline_advantages]
# A third of the profile's examples: these run once per estimator or loss, on small inputs.
fewer = settings(max_examples=settings().max_examples // 3)
every_estimator = pytest.mark.parametrize("estimate", ALL, ids=lambda fn: fn.__name__)

# Multiples of 1/64 up to 4: ties are common, as with real rewards, and groups are either constant
# or have a standard deviation well above 1e-3.
rewards = st.integers(-256, 256).map(lambda n: n / 64)
one_group = st.lists(rewards, min_size=2, max_size=8)


@st.composite
def steps(draw: st.DrawFn) -> StepScores:
    """A step of interleaved groups of any size, some rollouts unscored with a NaN reward."""
    size = draw(st.integers(1, 20))
    ids = draw(st.lists(st.sampled_from("abcd"), min_size=size, max_size=size))
    scored = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    values = draw(st.lists(rewards, min_size=size, max_size=size))
    return StepScores(
        [v if s else math.nan for v, s in zip(values, scored, strict=True)], ids, scored
    )


def group(values: list[float]) -> StepScores:
    return StepScores(values, ["g"] * len(values), [True] * len(values))


ROOT = math.sqrt(3 / 2)


@pytest.mark.parametrize(
    ("estimate", "values", "expected"),
    [
        # mean 2, deviations -1, 0, 1; population variance 2/3 (the sample's would be 1)
        (grpo_advantages, [1.0, 2.0, 3.0], [-ROOT, 0.0, ROOT]),
        # mean 0.5, std 0.5: 0.5 / (0.5 + delta)
        (functools.partial(grpo_advantages, delta=0.5), [1.0, 0.0], [0.5, -0.5]),
        (grpo_advantages, [1.0, 0.0], [0.5 / 0.500001, -0.5 / 0.500001]),
        (dr_grpo_advantages, [1.0, 0.0, 0.0, 1.0, 0.5], [0.5, -0.5, -0.5, 0.5, 0.0]),
        # the others of 4 average 1.5, of 2: 2.5, of 1: 3
        (rloo_advantages, [4.0, 2.0, 1.0], [2.5, -0.5, -2.0]),
    ],
)
def test_one_group_by_hand(estimate: AdvantageFn, values: list[float], expected: list[float]):
    assert estimate(group(values)) == pytest.approx(expected, abs=2e-6)


def test_reinforce_pp_baseline_by_hand() -> None:
    """Centred within groups: 2, -2, 0 | 1, -1 | 0, 0; variance of the step (4+4+1+1) / 7."""
    step = StepScores(
        [5.0, 1.0, 3.0, math.nan, 9.0, 7.0, 4.0, 4.0],
        ["a", "a", "a", "a", "b", "b", "c", "c"],
        [True, True, True, False, True, True, True, True],
    )
    std = math.sqrt(10 / 7)
    expected = [2 / std, -2 / std, 0, 0, 1 / std, -1 / std, 0, 0]
    assert reinforce_pp_baseline_advantages(step) == pytest.approx(expected, abs=5e-6)
    with_delta = reinforce_pp_baseline_advantages(step, delta=1.0)
    assert with_delta[0] == pytest.approx(2 / (std + 1), abs=1e-12)


def turns(*scores: list[float], groups: str = "ggg", unscored: int = -1) -> StepScores:
    return StepScores(
        [math.nan if i == unscored else sum(own) for i, own in enumerate(scores)],
        list(groups[: len(scores)]),
        [i != unscored for i in range(len(scores))],
        [TrainItem(Trajectory(str(i), "g"), 0.0, tuple(own)) for i, own in enumerate(scores)],
        turn_rewards=scores,
    )


def test_advantages_of_turns_by_hand() -> None:
    """Scores 0.5, 2 | 0.25, 0, 0 with mean 0.55 and deviations -0.05, 1.45, -0.3, -0.55, -0.55."""
    std = math.sqrt((0.05**2 + 1.45**2 + 0.3**2 + 2 * 0.55**2) / 5)
    step = turns([0.5, 2.0], [0.25, 0.0, 0.0], [9.0], [1.0, 1.0], groups="aaab", unscored=2)
    one, other, unscored, same = turn_advantages(step)
    assert one.values == pytest.approx([1.4 / std, 1.45 / std], abs=1e-5)
    assert other.values == pytest.approx([-1.4 / std, -1.1 / std, -0.55 / std], abs=1e-5)
    assert (unscored, same) == (0.0, Column([0.0, 0.0]))
    mixed = turns([0.5, 2.0], [0.25], [1.0, 0.0], [0.0], groups="aabb")
    unpaid = [TrainItem(Trajectory(name, "g"), 0.0) for name in "cd"]
    mixed = replace(mixed, rollouts=[*mixed.rollouts[:2], *unpaid])
    assert turn_advantages(mixed)[2:] == grpo_advantages(mixed)[2:]  # nobody scored these
    without = StepScores([1.0, 0.0], ["g", "g"], [True, True], unpaid, [[0, 1.0], [0.0]])
    assert turn_advantages(without) == grpo_advantages(without)  # nobody scored a turn


def test_a_bad_step_lowers_its_own_advantage_and_no_later_one() -> None:
    bad, good, _ = turn_advantages(turns([0.4, -0.9, 2.0], [0.4, 0.4, 2.0], [0.0, 0.0, 0.0]))
    assert isinstance(bad, Column) and isinstance(good, Column)
    bad, good = bad.values, good.values
    assert bad[1] < good[1] - 1 and bad[2] == good[2]
    assert bad[0] == pytest.approx(good[0] + bad[1] - good[1])  # it led there


@given(one_group)
def test_where_every_episode_has_one_turn_its_advantage_is_that_of_grpo(values: list[float]):
    step = turns(*([value] for value in values), groups="g" * len(values))
    found = turn_advantages(step)
    assert [one.values[0] for one in found] == pytest.approx(grpo_advantages(step), abs=1e-9)


def test_a_length_penalty_is_never_a_bonus() -> None:
    found = [overlong_penalty(n, limit=100, buffer=40, weight=0.5) for n in (0, 59, 60, 80, 100)]
    assert found == [0.0, 0.0, 0.0, -0.25, -0.5]


@every_estimator
@pytest.mark.parametrize("value", [0.1 + 0.2, 0.1, 1 / 3, -0.7, 1e-300, 1e300, 0.0])
@pytest.mark.parametrize("size", [2, 3, 5, 7, 10])
def test_constant_group_is_exactly_zero_not_a_rounding_error(
    estimate: AdvantageFn, value: float, size: int
) -> None:
    assert estimate(group([value] * size)) == [0.0] * size


@every_estimator
def test_singleton_group_gets_zero_not_nan(estimate: AdvantageFn) -> None:
    step = StepScores([1.0, 0.3, 0.5, 0.1], ["a", "b", "c", "c"], [True] * 4)
    result = estimate(step)
    assert result[:2] == [0.0, 0.0] and result[2] > 0 > result[3]


def test_dead_groups_are_named_and_counted() -> None:
    step = StepScores(
        [1.0, 1.0, 1.0, 0.0, math.nan, math.nan, 0.5],
        ["flat", "flat", "live", "live", "failed", "failed", "single"],
        [True, True, True, True, False, False, True],
    )
    advantages = dr_grpo_advantages(step)
    assert dead_groups(advantages, step.group_ids, step.is_scored) == {"flat", "failed", "single"}


def test_unscored_rollout_cannot_keep_a_group_alive() -> None:
    assert dead_groups([0.0, 0.0, math.nan], ["g"] * 3, [True, True, False]) == {"g"}
    # One advantage per turn: a single turn keeps it alive.
    assert dead_groups([Column([0.0, 1.0]), Column([0.0])], ["a", "b"], [True, True]) == {"b"}


@pytest.mark.parametrize(
    ("rewards", "solved"),
    [
        ("a1 a1 b0 b1 c0 c0", "a"),  # all wrong is not all correct
        ("a1 a? b1 c0 c1", "ab"),  # an unscored rollout says nothing; one rollout is a group
        ("a1 a1 b1 b1", ""),  # nothing in the step is worse: correct means nothing
        ("a0.2 a0.2 b1 b0.2 c0.9 c0.9", ""),  # alike and good, but not the best
        ("a-1 a-1 b-2 b-1", "a"),  # only the order of rewards counts
        ("a0 a0 b-1 b0", "a"),  # a best reward of 0 is a best one
        ("a? b?", ""),
        ("", ""),
    ],
)
def test_solved_groups_have_the_best_reward_throughout(rewards: str, solved: str) -> None:
    words = rewards.split()
    is_scored = [not word.endswith("?") for word in words]
    values = [float(word[1:].replace("?", "nan")) for word in words]
    step = StepScores(values, [word[0] for word in words], is_scored)
    assert solved_groups(step) == set(solved)


def test_the_number_of_an_unscored_rollout_does_not_tell_whether_its_group_is_solved() -> None:
    assert solved_groups(StepScores([1, 0, 0], ["a", "a", "b"], [True, False, True])) == {"a"}


@every_estimator
@fewer
@given(step=steps())
def test_unscored_rollouts_get_zero_and_leave_their_group(estimate: AdvantageFn, step: StepScores):
    kept = [i for i, scored in enumerate(step.is_scored) if scored]
    alone = StepScores(
        [step.rewards[i] for i in kept], [step.group_ids[i] for i in kept], [True] * len(kept)
    )
    result = estimate(step)
    assert [result[i] for i in kept] == estimate(alone)
    assert all(result[i] == 0.0 for i in set(range(len(result))) - set(kept))


@pytest.mark.parametrize("estimate", OF_A_GROUP, ids=lambda fn: fn.__name__)
@fewer
@given(left=one_group, right=one_group)
def test_groups_do_not_see_each_other(estimate: AdvantageFn, left: list[float], right: list[float]):
    ids = ["l"] * len(left) + ["r"] * len(right)
    both = estimate(StepScores(left + right, ids, [True] * len(ids)))
    assert both == estimate(group(left)) + estimate(group(right))


@every_estimator
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_non_finite_reward_names_the_rollout(estimate: AdvantageFn, bad: float) -> None:
    step = StepScores([1.0, 0.0, bad], ["q-7"] * 3, [True] * 3)
    with pytest.raises(ValueError, match=r"rollout 2 of group 'q-7' .*expected a finite number"):
        estimate(step)
    assert estimate(StepScores(step.rewards, step.group_ids, [True, True, False]))[2] == 0.0


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="rewards 2, group_ids 1, is_scored 2"):
        StepScores([1.0, 0.0], ["a"], [True, True])
    with pytest.raises(ValueError, match="turn_rewards 0"):
        StepScores([1.0, 0.0], ["a", "a"], [True, True], turn_rewards=[])
    with pytest.raises(ValueError, match="advantages 1"):
        dead_groups([0.0], ["a", "a"], [True, True])


@pytest.mark.parametrize("delta", [0.0, -1e-6, math.nan])
def test_delta_must_be_positive(delta: float) -> None:
    with pytest.raises(ValueError, match="delta must be > 0"):
        grpo_advantages(group([1.0, 0.0]), delta=delta)
    with pytest.raises(ValueError, match="delta must be > 0"):
        reinforce_pp_baseline_advantages(group([1.0, 0.0]), delta=delta)


@every_estimator
def test_empty_step_gives_no_advantages(estimate: AdvantageFn) -> None:
    assert estimate(StepScores([], [], [])) == []
