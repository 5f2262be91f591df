"""Shuffled rewards: a group keeps its rewards, and none of them tells who earned it."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchrl.core.group import Group, TrainItem, WeightedScore, shuffle_rewards
from searchrl.core.trajectory import Trajectory, TurnStop


def make_item(name: str, reward: float | None, num_turns: int, *, has_scores: bool) -> TrainItem:
    """A rollout; its turns have the numbers 0, 1, … as scores."""
    trajectory = Trajectory(name, "g")
    for _ in range(num_turns):
        trajectory.append_model([3], [-1.0], version=0, reason=TurnStop.STOP_STRING)
    scores = tuple(map(float, range(num_turns))) if has_scores else None
    return TrainItem(trajectory, reward, scores, components={"em": WeightedScore(1, reward or 0)})


ROLLOUTS = st.lists(
    st.tuples(st.none() | st.integers(-64, 64).map(lambda n: n / 64), st.integers(0, 3)),
    max_size=6,
)


@given(ROLLOUTS, st.booleans(), st.integers(0, 99))
def test_a_group_keeps_its_rollouts_and_its_rewards(
    rollouts: list[tuple[float | None, int]], has_scores: bool, seed: int
):
    items = [make_item(str(i), r, n, has_scores=has_scores) for i, (r, n) in enumerate(rollouts)]
    group = Group("g", tuple(items))
    shuffled = shuffle_rewards(group, Random(seed))
    assert shuffled == shuffle_rewards(group, Random(seed)), "a resumed run trains the same"
    assert [one.trajectory for one in shuffled.rollouts] == [one.trajectory for one in items]
    assert Counter(one.reward for one in shuffled.rollouts) == Counter(r for r, _ in rollouts)
    for old, new in zip(items, shuffled.rollouts, strict=True):
        assert (new.reward is None) == (old.reward is None)
        assert new.components["em"].score == (new.reward or 0), "components go with their reward"
        num_turns = len(new.trajectory.turns)
        assert len(new.turn_scores or ()) == num_turns * has_scores
    totals = [sum(one.turn_scores or ()) for one in shuffled.rollouts if one.trajectory.turns]
    if all(n for _, n in rollouts):
        assert sorted(totals) == sorted(sum(one.turn_scores or ()) for one in items)


def test_who_earned_a_reward_does_not_tell_who_is_trained_with_it():
    items = [make_item(str(n), float(n), 1, has_scores=False) for n in range(4)]
    group, seen = Group("g", tuple(items)), Counter[tuple[int, float]]()
    for seed in range(1200):
        for place, one in enumerate(shuffle_rewards(group, Random(seed)).rollouts):
            seen[place, one.reward or 0.0] += 1
    assert len(seen) == 16
    assert [*seen.values()] == pytest.approx([300] * 16, abs=75)  # five standard deviations


def test_scores_of_turns_stay_where_they_were_if_there_are_as_many_turns():
    pair = [make_item("a", 0.0, 2, has_scores=True), make_item("b", 1.0, 3, has_scores=True)]
    for seed in range(8):
        short, long = shuffle_rewards(Group("g", tuple(pair)), Random(seed)).rollouts
        is_swapped = short.reward == 1.0
        assert short.turn_scores == ((0.0, 3.0) if is_swapped else (0.0, 1.0))
        assert long.turn_scores == ((0.0, 0.0, 1.0) if is_swapped else (0.0, 1.0, 2.0))
