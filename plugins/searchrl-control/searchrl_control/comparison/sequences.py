"""Every fixed sequence of actions: what an agent has to beat; and an oracle over the best ones.

Owns which sequences there are and the choice of the best one, which is made on training questions
only. A sequence begins with Search and ends with the list that its last action left. The highest of
several noisy values is above each of them even if none is better: an oracle over lists that differ
by chance alone wins as well. So its control takes the best single list, re-draws its order with
noise so that the copies differ from it as much as the real lists do, and lets an oracle choose
among as many copies. What the real oracle wins beyond that is what a policy could learn.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from searchrl_control.environment.actions import Action
from searchrl_control.environment.env import RetrievalControlEnv
from searchrl_control.environment.measures import CUTOFF, ndcg
from searchrl_control.environment.worlds import World

Values = Mapping[str, Mapping[str, float]]
"""The name of a sequence -> the id of a question -> nDCG@k."""

Envs = Mapping[str, RetrievalControlEnv]
"""The name of a collection -> its environment."""

Say = Callable[[str], None]

SINGLE_PASS = "Search"

KINDS = 6
"""Sequences that an oracle chooses among: the best ones that are of different kinds."""


def list_sequences(actions: Sequence[Action], max_steps: int) -> list[tuple[int, ...]]:
    """The sequences of a set as numbers of actions, without Search; shorter ones first."""
    fixed = [n for n, one in enumerate(actions) if one not in (Action.SEARCH, Action.TERMINATE)]
    found = [one for length in range(max_steps) for one in itertools.product(fixed, repeat=length)]
    # Hop starts from a kept passage: first, it would be illegal.
    return [one for one in found if not one or actions[one[0]] is not Action.HOP]


def name_of(actions: Sequence[Action], sequence: Sequence[int]) -> str:
    """A sequence in words: `Search, Fuse, Follow`."""
    return ", ".join([SINGLE_PASS, *(str(actions[number]) for number in sequence)])


def as_start(name: str) -> str:
    """A sequence as the setting of a network that begins with it: `[Fuse, Hop]`."""
    return f"[{', '.join(name.split(', ')[1:])}]"


def play_sequences(world: World, split: str, sequences: Sequence[tuple[int, ...]]) -> Values:
    """nDCG@k of every question of a split after every sequence.

    All sequences of a question are played before the next question, and those that begin alike one
    after another, so what they share is searched once.
    """
    positions = world.positions
    # In the order of `sequences`: of equal ones, the first is chosen.
    values: dict[str, dict[str, float]] = {
        name_of(positions.actions, sequence): {} for sequence in sequences
    }
    ordered = sorted(sequences)
    names = [name_of(positions.actions, sequence) for sequence in ordered]
    for question in world.questions(split):
        known: dict[tuple[str, ...], float] = {}  # many sequences end with one list
        lists = positions.lists_after(world.asker(question), ordered)
        for name, listed in zip(names, lists, strict=True):
            ids = tuple(one for one, _ in listed)
            if ids not in known:
                known[ids] = ndcg(ids, question.qrels, positions.k)
            values[name][question.id] = known[ids]
    return values


def play_all(envs: Envs, split: str, say: Say) -> dict[str, Values]:
    """Every sequence on the questions of every collection; `say` is told what takes a while."""
    found = {}
    for name, env in envs.items():
        sequences = list_sequences(env.actions, env.max_steps)
        count = len(env.world.questions(split))
        say(f"{name}: {len(sequences):,} sequences on {count:,} questions of {split} …")
        found[name] = play_sequences(env.world, split, sequences)
    return found


def choose_best(training: Sequence[Values]) -> str:
    """The sequence with the highest mean over the pooled training questions of some collections.

    Of equals, the one that comes first: it is the shorter one.
    """
    means = means_of(training)
    return max(means, key=lambda name: means[name])


def means_of(values: Sequence[Values]) -> dict[str, float]:
    """The mean of every sequence over the pooled questions of some collections."""
    pooled = {name: [one for of in values for one in of[name].values()] for name in values[0]}
    return {name: math.fsum(of) / len(of) for name, of in pooled.items()}


def choose_kinds(means: Mapping[str, float]) -> list[str]:
    """The best sequences that differ in length or in their last action, best first."""
    found: dict[tuple[int, str], str] = {}
    for name in sorted(means, key=lambda one: -means[one]):
        steps = name.split(", ")
        found.setdefault((len(steps), steps[-1]), name)
    return list(found.values())[:KINDS]


def describe(training: Mapping[str, Values]) -> dict[str, Any]:
    """What was found on training questions, pooled and of each collection, as JSON."""
    parts = {"pooled": list(training.values()), **{name: [of] for name, of in training.items()}}
    means = {name: means_of(values) for name, values in parts.items()}
    best = {name: choose_best(values) for name, values in parts.items()}
    return {
        "sequences": len(means["pooled"]),
        "questions": {name: len(of[SINGLE_PASS]) for name, of in training.items()},
        "best": {
            name: {
                "sequence": one,
                "start": as_start(one),
                "ndcg": means[name][one],
                "single_pass": means[name][SINGLE_PASS],
            }
            for name, one in best.items()
        },
        "ndcg": means,
    }


Listed = Sequence[tuple[str, float]]
"""A long list: ids with scores, best first. Longer than what is measured, so that noise can move
passages in from below."""

LONG = 40
"""Passages of such a list."""

_ROUNDS = 12
_LARGEST = 16.0
"""Of the search for the amount of noise: halvings, and where they begin."""

Qrels = Mapping[str, Mapping[str, int]]


def measure_oracle(
    envs: Envs, split: str, training: Mapping[str, Values], values: Mapping[str, Values]
) -> dict[str, Any]:
    """The oracle over six sequences that are best in training, and its control, on a split."""
    kinds = choose_kinds(means_of(list(training.values())))
    if len(kinds) < 2:
        return {}
    told: dict[str, Any] = {}
    pooled: dict[str, dict[str, float]] = {kind: {} for kind in kinds}
    lists: dict[str, Listed] = {}
    qrels: dict[str, Mapping[str, int]] = {}
    for name, env in envs.items():
        positions, questions = env.world.positions, env.world.questions(split)
        best = tuple(env.action_names.index(one) for one in kinds[0].split(", ")[1:])
        own = {q.id: positions.lists_after(env.world.asker(q), [best], LONG)[0] for q in questions}
        judged = {q.id: q.qrels for q in questions}
        told[name] = measure_margin(
            {one: values[name][one] for one in kinds}, kinds[0], own, judged
        )
        lists |= {f"{name}/{q}": one for q, one in own.items()}
        qrels |= {f"{name}/{q}": one for q, one in judged.items()}
        for kind in kinds:
            pooled[kind] |= {f"{name}/{q}": v for q, v in values[name][kind].items()}
    whole = measure_margin(pooled, kinds[0], lists, qrels)
    return {"kinds": kinds, "pooled": whole, "each": told}


def measure_margin(
    values: Values, best: str, lists: Mapping[str, Listed], qrels: Qrels, k: int = CUTOFF
) -> dict[str, float]:
    """The oracle over sequences, and that over copies of the best one.

    `best` is the mean of the best single list, `oracle` and `control` are the means of the two
    choices; `spread` is the mean difference of the real lists from the best one, without signs, and
    `control_spread` that of the copies. `learnable` is what the oracle wins beyond luck; below 0,
    nothing.

    Args:
        values: of every sequence, two at least.
        best: the sequence that is copied.
        lists: by question, the long list of that sequence.
        qrels: by question, the relevant passages.
        k: cutoff of nDCG.
    """
    others = [name for name in values if name != best]
    questions = list(values[best])
    of_best = np.array([values[best][question] for question in questions])
    of_others = np.array([[values[name][question] for question in questions] for name in others])
    spread = float(np.abs(of_others - of_best).mean())

    def copy(noise: float) -> np.ndarray:
        rng = np.random.default_rng(0)
        return np.array(
            [[ndcg(redraw(lists[q], noise, rng), qrels[q], k) for q in questions] for _ in others]
        )

    copies = copy(_find_noise(lambda noise: float(np.abs(copy(noise) - of_best).mean()), spread))
    oracle = float(np.maximum(of_others.max(axis=0), of_best).mean())
    control = float(np.maximum(copies.max(axis=0), of_best).mean())
    return {
        "best": float(of_best.mean()),
        "oracle": oracle,
        "control": control,
        "learnable": oracle - control,
        "spread": spread,
        "control_spread": float(np.abs(copies - of_best).mean()),
    }


def redraw(listed: Listed, noise: float, rng: np.random.Generator) -> list[str]:
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
