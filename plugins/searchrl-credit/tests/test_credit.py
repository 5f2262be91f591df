"""Advantages against tables by hand, and where trees branch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from searchrl_credit import ALGORITHMS
from searchrl_credit.gain import make_igpo
from searchrl_credit.groups import make_gdpo
from searchrl_credit.parts import DELTA
from searchrl_credit.surprise import make_at2po
from searchrl_credit.trees import make_arpo, make_tree_grpo

from searchrl.algorithms import Prompt, StepScores, Trajectory, TurnStop
from searchrl.contracts import Task
from searchrl.core.group import TrainItem, WeightedScore
from searchrl.core.trajectory import Reading
from searchrl.testing import assert_conforms

TASK = Task("t", "train", 0, "Who?", ("Ada", "Ada L."))


class Item(TrainItem):
    """A rollout as a driver makes it, without its world."""

    is_scored = True

    @property
    def episode(self) -> Any:
        turns = [SimpleNamespace(observation=f"seen {n}") for n in range(9)]
        return SimpleNamespace(turns=turns)


def played(
    name: str,
    reward: float | None,
    num_turns: int = 2,
    parent: Any = None,
    kept: int = 0,
    seen: Sequence[int] = (7,) * 9,
    **of: Any,
) -> Item:
    """A rollout of so many turns of its own, of two tokens each, behind `kept` of its parent's."""
    trajectory = Trajectory(name, name[0])
    trajectory.append_prompt([1, 2])
    if parent is not None:
        trajectory.parent, trajectory.num_kept = parent.trajectory.rollout_id, kept
    for number in range(num_turns):
        if number:
            trajectory.append_env([seen[number]])
        logps = [-1.0 - number, -1.0 - number]
        trajectory.append_model([3, 4], logps, version=0, reason=TurnStop.EOS)
    return Item(trajectory, reward, task=TASK, **of)


def step_of(*items: Item) -> StepScores:
    return StepScores(
        [math.nan if item.reward is None else item.reward for item in items],
        [item.trajectory.group_id for item in items],
        [item.reward is not None for item in items],
        items,
        [item.turn_rewards for item in items],
    )


def tree() -> list[Item]:
    """Two trees of group g: a chain with two branches, and a chain. Rewards 1 0 0 | 1."""
    chain = played("g0", 1.0, 3)
    early = played("g1", 0.0, 2, chain, 1)
    late = played("g2", 0.0, 1, early, 2)
    return [chain, early, late, played("g3", 1.0, 1)]


def values(columns: Any) -> list[list[float]]:
    return [list(one.values) for one in columns]


@pytest.mark.parametrize("name", [*ALGORITHMS])
def test_it_conforms(name: str) -> None:
    assert_conforms(f"algorithm:{name}")


class TestTreeGrpo:
    def test_a_shared_turn_has_the_mean_over_the_leaves_behind_it(self) -> None:
        of_prompt = [one / (0.5 + DELTA) for one in (0.5, -0.5, -0.5, 0.5)]
        of_tree = [one / (2**0.5 / 3 + DELTA) for one in (2 / 3, -1 / 3, -1 / 3)]
        a, b, c = (x + y for x, y in zip(of_prompt, of_tree, strict=False))
        expected = [[(a + b + c) / 3, a, a], [(b + c) / 2, b], [c], [of_prompt[3]]]
        made = values(make_tree_grpo().advantages(step_of(*tree())))
        for own, by_hand in zip(made, expected, strict=True):
            assert own == pytest.approx(by_hand, abs=1e-12)

    def test_leaves_beyond_the_most_count_for_nothing(self) -> None:
        chain, early, late, other = tree()
        step = step_of(chain, early, late, other)
        made = values(make_tree_grpo(leaves=1).advantages(step))
        # One leaf of the first tree is left, and it or its rewards decide all of its turns.
        assert len({abs(one) for own in made[:3] for one in own if one}) <= 1

    def test_turns_are_drawn_in_each_tree_and_again_the_same(self) -> None:
        def ask(number: int) -> list[tuple[str, int]]:
            hooks = make_tree_grpo(expansions=3).hooks
            hooks.begin(SimpleNamespace(seed=0))  # type: ignore[arg-type]
            group = SimpleNamespace(rollouts=tuple(tree()))
            asked = hooks.branch([group], number)  # type: ignore[list-item]
            return [(one.trajectory.rollout_id, kept) for one, kept in asked]

        first = ask(0)
        assert first == ask(0) and ask(1) == [] and len(first) == 3
        assert set(first) <= {("g0", 1), ("g0", 2), ("g1", 2)}, "never behind the last turn"


def test_arpo_begins_uncertain_turns_anew_and_fills_the_rest() -> None:
    hooks: Any = make_arpo(chains=2, weight=1000.0).hooks
    first = [played("g0", 1.0, 3), played("g1", 0.0, 1)]

    def read(probes: Any) -> list[Reading]:
        return [Reading((-1.0,), (float(probe.stop),)) for probe in probes]

    hooks.begin(SimpleNamespace(seed=0, read=read))
    (prompt,) = hooks.ask([Prompt("g", 0, None, 0, 5)], 1)
    assert prompt.num_rollouts == 2
    asked = hooks.branch([SimpleNamespace(rollouts=tuple(first))], 0)
    kept = sorted((one.trajectory.rollout_id, kept) for one, kept in asked)
    # Later turns begin less certain here, so both are begun anew; the third place is a new chain.
    assert kept == [("g0", 0), ("g0", 1), ("g0", 2)]
    assert hooks.branch([SimpleNamespace(rollouts=tuple(first))], 1) == []


def test_at2po_expands_the_most_surprising_turns_and_siblings_share_a_place() -> None:
    hooks: Any = make_at2po(expansions=2, penalty=0.6).hooks
    chain = played("g0", 1.0, 4)
    (one, two) = hooks.choose([chain], 0)
    assert [one[1], two[1]] == [2, 1], "the last turn is never begun anew"
    again = played("g1", 0.0, 2, chain, 2)
    more = hooks.choose([chain, again], 1)
    # Turn 2 has been begun anew: 3 nats - 0.6 are still more than the 2 nats of turn 1.
    assert (chain, 2) == more[0]
    made = values(make_at2po(against="siblings").advantages(step_of(chain, again)))
    a = 0.5 / (0.5 + DELTA)
    assert made[0] == pytest.approx([0, 0, a, 0]) and made[1] == pytest.approx([-a, 0])


def test_igpo_pays_a_turn_for_what_the_gold_answer_gained() -> None:
    likely = {2: 0.1, 5: 0.3, 8: 0.2}  # before the turns of a rollout of three
    asked = []

    def read(probes: Any) -> list[Reading]:
        asked.extend(probe.text for probe in probes)
        one = {"<answer>": 2}
        made = []
        for probe in probes:
            if probe.text in one:
                made.append(Reading((-9.0,) * 2, (0.0,) * 2))
            else:
                p = likely[probe.stop] * (1.0 if probe.text.endswith("Ada") else 0.5)
                made.append(Reading((-9.0, -9.0, *[math.log(p)] * 3), (0.0,) * 5))
        return made

    algorithm = make_igpo(gamma=0.5)
    protocol = SimpleNamespace(opening=lambda kind: "<answer>")
    algorithm.hooks.begin(SimpleNamespace(seed=0, read=read, env_names=[""], protocols=[protocol]))  # type: ignore[arg-type]
    made = values(algorithm.advantages(step_of(played("g0", 1.0, 3), played("g1", None, 1))))
    earned = [0.2, -0.1, 1.0]
    mean = sum(earned) / 3
    std = (sum((one - mean) ** 2 for one in earned) / 3) ** 0.5 + DELTA
    x, y, z = ((one - mean) / std for one in earned)
    assert made[0] == pytest.approx([x + 0.5 * y + 0.25 * z, y + 0.5 * z, z]) and made[1] == [0.0]
    assert "<answer> Ada L." in asked


def test_gdpo_of_two_components_with_a_constant_sum_is_zero() -> None:
    def item(name: str, one: float) -> Item:
        parts = {"x": WeightedScore(1.0, one), "y": WeightedScore(1.0, 1.0 - one)}
        return played(name, 1.0, components=parts)

    assert make_gdpo().advantages(step_of(item("g0", 0.2), item("g1", 0.9), item("g2", 0.4))) == (
        pytest.approx([0.0, 0.0, 0.0], abs=1e-9)
    )
