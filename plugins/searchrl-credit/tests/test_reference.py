"""Advantages of the package against those of `reference`, on 500 random steps each."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import Leaf
from searchrl_credit.gain import make_igpo
from searchrl_credit.groups import make_gdpo, make_gigpo
from searchrl_credit.surprise import make_at2po
from searchrl_credit.trees import make_arpo, make_tree_grpo
from test_credit import TASK, Item, played, step_of

from searchrl.algorithms import StepScores
from searchrl.core.group import WeightedScore
from searchrl.core.trajectory import Reading


def random_step(rng: np.random.Generator) -> list[Leaf]:
    """One to three groups of one to four chains, with branches of branches, in random order."""
    step: list[Leaf] = []
    for group in range(rng.integers(1, 4)):
        num_chains, members = rng.integers(1, 5), list[Leaf]()
        for number in range(num_chains + rng.integers(0, 5)):
            n = int(rng.integers(1, 5))
            parent = rng.choice(members) if number >= num_chains else None
            kept = parent.kept + int(rng.integers(0, len(parent.seen))) if parent else 0
            reward = rng.choice([None, 0.0, 1.0, float(rng.normal())], p=[0.1, 0.3, 0.3, 0.3])
            parts = {k: (w, float(rng.integers(3))) for k, w in (("em", 1.0), ("format", -0.2))}
            members.append(
                Leaf(
                    f"{group}{number}",
                    f"{group}",
                    reward,
                    list(rng.normal(size=n)),
                    ["prompt", *map(str, rng.integers(7, 10, size=n - 1))],
                    {k: part for k, part in parts.items() if rng.random() < 0.8},
                    rng.random((n, 2)).tolist(),
                    parent.name if parent else "",
                    kept,
                )
            )
        step += members
    return [step[n] for n in rng.permutation(len(step))]


def scores_of(step: list[Leaf]) -> StepScores:
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


def igpo(step: list[Leaf]) -> Any:
    """The algorithm, with a model that gives the answers their probabilities."""
    likely = {
        (one.name, 2 + 3 * turn, f"<answer> {gold}"): math.log(p)
        for one in step
        for turn, row in enumerate(one.golds)
        for gold, p in zip(TASK.answers, row, strict=True)
    }

    def read(probes: Any) -> list[Reading]:
        found = [likely.get((p.trajectory.rollout_id, p.stop, p.text)) for p in probes]
        logps = [() if one is None else (one - 0.5, one + 0.5) for one in found]
        return [Reading((-9.0, *own), (0.0,) * 3) for own in logps]

    made = make_igpo(gamma=0.9)
    trainer: Any = SimpleNamespace(
        seed=0, read=read, env_names=[""], protocols=[SimpleNamespace(opening=lambda _: "<answer>")]
    )
    made.hooks.begin(trainer)
    return made


CASES: dict[str, tuple[Any, Any]] = {
    "tree_grpo": (lambda _: make_tree_grpo(leaves=99), reference.tree_grpo),
    "arpo": (lambda _: make_arpo(), reference.arpo),
    "at2po": (lambda _: make_at2po(), reference.arpo),
    "at2po, siblings": (lambda _: make_at2po(against="siblings"), reference.at2po),
    "igpo": (igpo, lambda step: reference.igpo(step, 0.9)),
    "gigpo": (
        lambda _: make_gigpo(gamma=0.8, weight=0.7),
        lambda step: reference.gigpo(step, 0.8, 0.7, True),
    ),
    "gigpo, of sums": (
        lambda _: make_gigpo(gamma=1.0, divides=False),
        lambda step: reference.gigpo(step, 1.0, 1.0, False),
    ),
    "gdpo": (lambda _: make_gdpo(), reference.gdpo),
}


def step_for(name: str, seed: int) -> list[Leaf]:
    step = random_step(np.random.default_rng(seed))
    branches = "po, s" in name or name in ("tree_grpo", "arpo", "at2po")
    return [leaf for leaf in step if branches or not leaf.parent]


def advantages(name: str, step: list[Leaf]) -> dict[tuple[str, int], float]:
    """Of each turn of a scored rollout."""
    made = CASES[name][0](step).advantages(scores_of(step))
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
    straight = pytest.approx(advantages(name, step), abs=1e-6)
    assert advantages(name, step[::-1]) == straight
    parents = {leaf.parent for leaf in step}
    assert straight == advantages(
        name, [one for one in step if one.reward is not None or one.name in parents]
    )
    if name in ("igpo", "gigpo"):  # gains do not shift, and a discount is one of the shift, too
        return
    moved = [
        replace(
            one,
            reward=None if one.reward is None else one.reward + shift,
            turn_rewards=[*one.turn_rewards[:-1], one.turn_rewards[-1] + shift],
            components={k: (w, score + shift) for k, (w, score) in one.components.items()},
        )
        for one in step
    ]
    assert advantages(name, moved) == straight
