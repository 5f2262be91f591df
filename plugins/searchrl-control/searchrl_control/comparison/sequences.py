"""Every fixed sequence of actions: what an agent has to beat.

Owns which sequences there are and the choice of the best one, which is made on training questions
only. A sequence begins with Search and ends with the list that its last action left.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from searchrl_control.environment.actions import Action
from searchrl_control.environment.env import RetrievalControlEnv
from searchrl_control.environment.measures import ndcg
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
