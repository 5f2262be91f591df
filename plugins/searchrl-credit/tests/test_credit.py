"""Advantages against tables by hand and `reference`, and where trees branch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from searchrl_credit import ALGORITHMS
from searchrl_credit.gain import make_igpo
from searchrl_credit.groups import make_gdpo, make_gigpo
from searchrl_credit.parts import DELTA
from searchrl_credit.surprise import make_at2po
from searchrl_credit.trees import make_arpo, make_tree_grpo

from searchrl.algorithms import Algorithm, Prompt, StepScores, Trajectory, TurnStop
from searchrl.contracts import Task
from searchrl.core.group import TrainItem, WeightedScore
from searchrl.core.trajectory import Reading
from searchrl.testing import assert_conforms

TASK = Task("t", "train", 0, "Who?", ("Ada", "Ada L."))


class Item(TrainItem):
    """A rollout as a driver makes it, without its world."""

    is_scored = True


def played(
    name: str,
    reward: float | None,
    num_turns: int = 2,
    parent: Any = None,
    kept: int = 0,
    seen: Sequence[int] = (7,) * 9,
    anew: int | None = None,
    **of: Any,
) -> Item:
    """A rollout of so many turns of its own, of two tokens each, behind `kept` of its parent's.

    A segment begins at turn `anew`.
    """
    trajectory = Trajectory(name, name[0])
    trajectory.append_prompt([1, 2])
    if parent is not None:
        trajectory.parent, trajectory.num_kept = parent.trajectory.rollout_id, kept
    for number in range(num_turns):
        if number and number == anew:
            trajectory.begin_segment("summary")
            trajectory.append_prompt([1, 2, 9, 9, 9, 9, 9, seen[number]])
        elif number:
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


def reading_igpo(likely: dict[tuple[str, int, str], float], gamma: float) -> Any:
    """The algorithm with a model that reads answers; `likely` by rollout, place and text."""

    def read(probes: Any) -> list[Reading]:
        made = []
        for probe in probes:
            gold = probe.text.removeprefix("<answer>").strip()
            nats = likely.get((probe.trajectory.rollout_id, probe.stop, gold), 0.0)
            logps = (-9.0, nats - 0.5, nats + 0.5) if gold else (-9.0,)
            made.append(Reading(logps, (0.0,) * len(logps)))
        return made

    made, protocol = make_igpo(gamma=gamma), SimpleNamespace(opening=lambda kind: "<answer>")
    trainer: Any = SimpleNamespace(seed=0, read=read, env_names=[""], protocols=[protocol])
    made.hooks.begin(trainer)
    return made


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


def test_a_shared_turn_has_the_mean_over_the_leaves_behind_it() -> None:
    of_prompt = [one / (0.5 + DELTA) for one in (0.5, -0.5, -0.5, 0.5)]
    of_tree = [one / (2**0.5 / 3 + DELTA) for one in (2 / 3, -1 / 3, -1 / 3)]
    a, b, c = (x + y for x, y in zip(of_prompt, of_tree, strict=False))
    expected = [[(a + b + c) / 3, a, a], [(b + c) / 2, b], [c], [of_prompt[3]]]
    made = values(make_tree_grpo().advantages(step_of(*tree())))
    for own, by_hand in zip(made, expected, strict=True):
        assert own == pytest.approx(by_hand, abs=1e-12)


def test_a_turn_gets_its_gain_besides() -> None:
    step = step_of(*tree())
    algorithm: Any = make_tree_grpo(gain=0.5)
    algorithm.hooks.gains.gains = lambda rollouts: [[0.3, 0.1], [0.2], [], []]
    plain = values(make_tree_grpo().advantages(step))
    by_hand = [
        [0.5 * x / (0.02**0.5 / 3**0.5 + DELTA) for x in own] for own in ([0.1, -0.1, 0], [0, 0])
    ]
    for own, without, more in zip(values(algorithm.advantages(step)), plain, by_hand, strict=False):
        assert own == pytest.approx([a + b for a, b in zip(without, more, strict=True)])


def test_leaves_beyond_the_most_count_for_nothing() -> None:
    made = values(make_tree_grpo(leaves=1).advantages(step_of(*tree())))
    assert len({abs(one) for own in made[:3] for one in own if one}) <= 1


def test_turns_are_drawn_in_each_tree_and_again_the_same() -> None:
    def ask(number: int) -> list[tuple[str, int]]:
        hooks = make_tree_grpo(expansions=3).hooks
        hooks.begin(SimpleNamespace(seed=0))  # type: ignore[arg-type]
        asked = hooks.branch([SimpleNamespace(rollouts=tree())], number)  # type: ignore[list-item]
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


@pytest.mark.parametrize("anew", [None, 2])
def test_igpo_pays_a_turn_for_what_the_gold_answer_gained(anew: int | None) -> None:
    likely = {2: 0.1, 5: 0.3, 8: 0.2}  # before the turns of a rollout of three
    nats = {("g0", stop, "Ada"): math.log(p) for stop, p in likely.items()}
    nats |= {("g0", stop, "Ada L."): math.log(0.5 * p) for stop, p in likely.items()}
    step = step_of(played("g0", 1.0, 3, anew=anew), played("g1", None, 1))
    made = values(reading_igpo(nats, 0.5).advantages(step))
    earned = [0.2, -0.1, 1.0]
    mean = sum(earned) / 3
    std = (sum((one - mean) ** 2 for one in earned) / 3) ** 0.5 + DELTA
    x, y, z = ((one - mean) / std for one in earned)
    assert made[0] == pytest.approx([x + 0.5 * y + 0.25 * z, y + 0.5 * z, z]) and made[1] == [0.0]


def test_igpo_pays_nothing_for_what_a_random_passage_gives_as_well() -> None:
    likely = {2: 0.1, 5: 0.3, 8: 0.2}

    def read(probes: Any) -> list[Reading]:
        made = []
        for probe in probes:
            before, _, gold = probe.text.partition("<answer>")
            p = 0.3 if before.startswith("seen") else likely[probe.stop]
            made.append(Reading((-9.0, math.log(p))[: 1 + bool(gold)], (0.0,) * (1 + bool(gold))))
        return made

    hooks: Any = make_igpo(against="random").hooks
    protocol = SimpleNamespace(opening=lambda kind: "<answer>")
    hooks.begin(SimpleNamespace(seed=0, read=read, env_names=[""], protocols=[protocol]))
    hooks.draw = lambda rollouts, place: "seen by another"
    gains = hooks.gains([played("g0", 1.0, 3), played("g1", 1.0, 1)])
    assert gains == [pytest.approx([0.0, -0.1]), []]


@pytest.mark.parametrize("anew", [None, 1])
def test_gigpo_compares_turns_that_saw_the_same(anew: int | None) -> None:
    items = [
        played(f"g{n}", n == 0, 2, seen=(0, token), anew=anew) for n, token in enumerate((7, 7, 8))
    ]
    episode = [one / (2**0.5 / 3 + DELTA) for one in (2 / 3, -1 / 3, -1 / 3)]
    # Returns at half a discount: 0.5 1, 0 0, 0 0. The first turns saw the prompt; of the second
    # ones two saw 7, and one alone saw 8.
    first = [one / (2**0.5 / 6 + DELTA) for one in (1 / 3, -1 / 6, -1 / 6)]
    second = [0.5 / (0.5 + DELTA), -0.5 / (0.5 + DELTA), 0.0]
    made = values(make_gigpo(gamma=0.5, weight=2.0).advantages(step_of(*items)))
    for whole, one, other, own in zip(episode, first, second, made, strict=True):
        assert own == pytest.approx([whole + 2 * one, whole + 2 * other], abs=1e-9)


def with_parts(name: str, **scores: float) -> Item:
    parts = {k: WeightedScore(0.2 if k == "format" else 1.0, one) for k, one in scores.items()}
    return played(name, 1.0, components=parts)


def test_gdpo_normalises_each_component_and_then_the_step() -> None:
    items = [with_parts("p0", em=1, format=1), with_parts("p1", em=0, format=1)]
    items += [with_parts("p2", em=0, format=0), with_parts("q0", em=1), with_parts("q1", em=0)]
    # Group p: em 1 0 0 and format 1 1 0, both of deviation sqrt(2)/3; group q: em alone.
    of_p, of_q = 2**0.5 / 3 + DELTA, 0.5 + DELTA
    sums = [(2 / 3 + 0.2 / 3) / of_p, (-1 / 3 + 0.2 / 3) / of_p, (-1 / 3 - 0.4 / 3) / of_p]
    sums += [0.5 / of_q, -0.5 / of_q]
    deviation = (sum(one**2 for one in sums) / 5) ** 0.5 + DELTA
    made = make_gdpo().advantages(step_of(*items))
    assert made == pytest.approx([one / deviation for one in sums], abs=1e-9)


def test_gdpo_of_two_components_with_a_constant_sum_is_zero() -> None:
    items = [with_parts(f"g{n}", x=one, y=1.0 - one) for n, one in enumerate((0.2, 0.9, 0.4))]
    assert make_gdpo().advantages(step_of(*items)) == [0.0, 0.0, 0.0]


def random_step(rng: np.random.Generator) -> list[reference.Leaf]:
    step: list[reference.Leaf] = []
    for group in range(rng.integers(1, 4)):
        num_chains, members = rng.integers(1, 5), list[reference.Leaf]()
        for number in range(num_chains + rng.integers(0, 5)):
            n = int(rng.integers(1, 5))
            parent = rng.choice(members) if number >= num_chains else None
            kept = parent.kept + int(rng.integers(0, len(parent.seen))) if parent else 0
            reward = rng.choice([None, 0.0, 1.0, float(rng.normal())], p=[0.1, 0.3, 0.3, 0.3])
            parts = {k: (w, float(rng.integers(3))) for k, w in (("em", 1.0), ("format", -0.2))}
            parts = {k: part for k, part in parts.items() if rng.random() < 0.8}
            seen = ["prompt", *map(str, rng.integers(7, 10, size=n - 1))]
            rows = [*rng.normal(size=n)], seen, parts, rng.random((n, 2)).tolist()
            name = parent.name if parent else ""
            members.append(
                reference.Leaf(f"{group}{number}", f"{group}", reward, *rows, name, kept)
            )
        step += members
    return [step[n] for n in rng.permutation(len(step))]


def scores_of(step: list[reference.Leaf]) -> StepScores:
    items: dict[str, Item] = {}
    for one in sorted(step, key=lambda leaf: leaf.name):
        parts = {name: WeightedScore(*part) for name, part in one.components.items()}
        seen = [0, *map(int, one.seen[1:])]
        items[one.name] = played(
            one.name, one.reward, len(seen), items.get(one.parent), one.kept, seen, components=parts
        )
    made = step_of(*(items[one.name] for one in step))
    object.__setattr__(made, "turn_rewards", [one.turn_rewards for one in step])
    return made


CASES: dict[str, tuple[Algorithm, Any]] = {
    "tree_grpo": (make_tree_grpo(leaves=99), reference.tree_grpo),
    "arpo": (make_arpo(), reference.arpo),
    "at2po": (make_at2po(), reference.arpo),
    "at2po, siblings": (make_at2po(against="siblings"), reference.at2po),
    "igpo": (make_igpo(), lambda s: reference.igpo(s, 0.9)),
    "gigpo": (make_gigpo(gamma=0.8, weight=0.7), lambda s: reference.gigpo(s, 0.8, 0.7, True)),
    "gigpo, sums": (make_gigpo(gamma=1, divides=False), lambda s: reference.gigpo(s, 1, 1, False)),
    "gdpo": (make_gdpo(), reference.gdpo),
}


def step_for(name: str, seed: int) -> list[reference.Leaf]:
    step = random_step(np.random.default_rng(seed))
    return [leaf for leaf in step if CASES[name][0].branches or not leaf.parent]


def advantages(name: str, step: list[reference.Leaf]) -> dict[tuple[str, int], float]:
    """Advantages by turn of scored rollouts."""
    likely = {
        (one.name, 2 + 3 * turn, gold): math.log(p)
        for one in step
        for turn, row in enumerate(one.golds)
        for gold, p in zip(TASK.answers, row, strict=True)
    }
    algorithm = reading_igpo(likely, 0.9) if name == "igpo" else CASES[name][0]
    made = algorithm.advantages(scores_of(step))
    return {
        (leaf.name, n): own if isinstance(own, float) else own.values[n]
        for leaf, own in zip(step, made, strict=True)
        for n in range(len(leaf.seen))
        if leaf.reward is not None
    }


@pytest.mark.parametrize("name", CASES)
def test_500_random_steps_agree_with_the_definitions(name: str) -> None:
    for seed in range(500):
        step = step_for(name, seed)
        expected, made = CASES[name][1](step), advantages(name, step)
        assert max([abs(made[turn] - expected[turn]) for turn in made], default=0.0) < 1e-9, seed
        alive = {turn[0][0] for turn, value in expected.items() if abs(value) > 1e-9}
        dead = [value for turn, value in made.items() if turn[0][0] not in alive]
        assert not any(dead), "a group of equal values has advantages of exactly 0"


@pytest.mark.parametrize("name", CASES)
@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 1 << 30), shift=st.integers(-20, 20).map(lambda n: n / 4))
def test_order_shifts_and_unscored_rollouts_change_nothing(
    name: str, seed: int, shift: float
) -> None:
    step = step_for(name, seed)
    if name in ("igpo", "gigpo"):  # gains do not shift, and a discount is one of the shift, too
        shift = 0.0
    parents = {leaf.parent for leaf in step}
    moved = [
        replace(
            one,
            reward=None if one.reward is None else one.reward + shift,
            turn_rewards=[*one.turn_rewards[:-1], one.turn_rewards[-1] + shift],
            components={k: (w, score + shift) for k, (w, score) in one.components.items()},
        )
        for one in step[::-1]
        if one.reward is not None or one.name in parents
    ]
    assert advantages(name, moved) == pytest.approx(advantages(name, step), abs=1e-6)
