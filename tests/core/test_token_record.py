"""The record of tokens, column by column, and what is refused before it becomes wrong."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from searchrl.core.group import TrainItem, make_groups
from searchrl.core.trajectory import Author, Origin, Trajectory, Turn, TurnStop, is_finite

EOS, STOP = TurnStop.EOS, TurnStop.STOP_STRING


def played(origin: Origin = Origin.SAMPLED) -> Trajectory:
    trajectory = Trajectory("g/0", "g", origin=origin)
    trajectory.append_prompt([1, 2])
    return trajectory


def test_every_token_has_its_author_log_prob_turn_and_policy_version() -> None:
    trajectory = played()
    assert (trajectory.num_prompt_tokens, trajectory.num_model_tokens) == (2, 0)
    trajectory.append_model([3, 4], [-0.5, -1.0], version=6, reason=STOP, text_behind="\n")
    trajectory.append_env([5])
    turn = trajectory.append_model([7], [-2.0], version=8, reason=EOS)
    trajectory.append_env([9])
    prompt, model, env = Author.PROMPT, Author.MODEL, Author.ENV
    assert [tuple(row) for row in trajectory] == [
        (1, prompt, None, -1, -1),
        (2, prompt, None, -1, -1),
        (3, model, -0.5, 0, 6),
        (4, model, -1.0, 0, 6),
        (5, env, None, 0, -1),
        (7, model, -2.0, 1, 8),
        (9, env, None, 1, -1),
    ]
    assert trajectory.turns == [Turn(0, 2, 4, STOP, "\n"), Turn(1, 5, 6, EOS, "")] and (
        turn is trajectory.turns[1]
    )
    assert (len(trajectory), trajectory.num_prompt_tokens, trajectory.num_model_tokens) == (7, 2, 3)
    assert trajectory.turns_of == (-1, -1, 0, 0, 0, 1, 1)
    assert trajectory.policy_versions == (-1, -1, 6, 6, -1, 8, -1)


@pytest.mark.parametrize(
    ("origin", "append", "message"),
    [
        (Origin.SAMPLED, lambda t: t.append_prompt([3]), "appended once"),
        (Origin.SAMPLED, lambda t: t.append_env([3]), "follows a model turn"),
        (Origin.SAMPLED, lambda t: t.append_model([3], [], version=0, reason=EOS), "1 ids but 0"),
        (Origin.SAMPLED, lambda t: t.append_model([3], [-1, -1], version=0, reason=EOS), "but 2"),
        (Origin.SAMPLED, lambda t: t.append_model([3], [None], version=0, reason=EOS), "without a"),
        (Origin.REPLAY, lambda t: t.append_model([3], None, version=0, reason=EOS), "needs"),
        (
            Origin.DEMONSTRATION,
            lambda t: t.append_model([3], [-1.0], version=0, reason=EOS),
            "demonstration trajectory has no sampler",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_and_nothing_is_appended(
    origin: Origin, append: Callable[[Trajectory], object], message: str
) -> None:
    trajectory = played(origin)
    with pytest.raises(ValueError, match=message):
        append(trajectory)
    assert trajectory.ids == (1, 2) and trajectory.turns == []


def test_rollouts_are_grouped_in_order_and_the_last_turn_earns_the_reward() -> None:
    items = [TrainItem(Trajectory(f"{g}/{n}", g), 1.0) for n, g in enumerate("bab")]
    items[0].trajectory.append_prompt([1])
    for _ in range(2):
        items[0].trajectory.append_model([2], [-1.0], version=0, reason=EOS)
    groups = make_groups(items)
    assert [(g.id, g.rollouts) for g in groups] == [
        ("b", (items[0], items[2])),
        ("a", (items[1],)),
    ]
    assert items[0].turn_rewards == (0.0, 1.0) and items[1].turn_rewards == ()
    assert TrainItem(items[0].trajectory, None).turn_rewards == (0.0, 0.0)


def test_a_ratio_needs_a_log_prob_that_is_a_number() -> None:
    assert [is_finite(logp) for logp in (-0.5, None, math.nan, -math.inf)] == [True] + [False] * 3
