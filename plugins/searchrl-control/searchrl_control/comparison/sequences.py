"""Every fixed sequence of actions: what an agent has to beat.

Owns which sequences there are and the choice of the best one, which is made on training questions
only. A sequence begins with Search and ends with the list that its last action left.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

from searchrl_control.environment.actions import Action
from searchrl_control.environment.measures import ndcg
from searchrl_control.environment.worlds import World

Values = Mapping[str, Mapping[str, float]]
"""The name of a sequence -> the id of a question -> nDCG@k."""

SINGLE_PASS = "Search"

KINDS = 6
"""Sequences that an oracle chooses among: the best ones that are of different kinds."""

_NOT_FIXED = (Action.SEARCH, Action.TERMINATE)
"""Actions after which a sequence is a shorter one."""


def list_sequences(
    actions: Sequence[Action], max_steps: int, only: Iterable[Action] | None = None
) -> list[tuple[int, ...]]:
    """The sequences of a set as numbers of actions, without the first Search; shorter ones first.

    Args:
        actions: of the set, in the order of their numbers.
        max_steps: actions of an episode, Search among them.
        only: leave out all other actions; None: none.
    """
    wanted = set(actions if only is None else only)
    numbers = [n for n, one in enumerate(actions) if one in wanted and one not in _NOT_FIXED]
    found = [
        sequence
        for length in range(max_steps)
        for sequence in itertools.product(numbers, repeat=length)
    ]
    # Hop starts from a kept passage: first, it would be illegal.
    return [one for one in found if not one or actions[one[0]] is not Action.HOP]


def name_of(actions: Sequence[Action], sequence: Sequence[int]) -> str:
    """A sequence in words: `Search, Fuse, Follow`."""
    return ", ".join([SINGLE_PASS, *(str(actions[number]) for number in sequence)])


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


def choose_best(training: Sequence[Values]) -> str:
    """The sequence with the highest mean over the pooled questions of some collections.

    Of equals, the one that comes first: it is the shorter one.

    Args:
        training: of each collection, the values of its training questions.

    Raises:
        ValueError: no sequence was played on all of them.
    """
    means = means_of(training)
    return max(means, key=lambda name: means[name])


def means_of(training: Sequence[Values]) -> dict[str, float]:
    """The mean of every sequence over the pooled questions of some collections.

    Raises:
        ValueError: no sequence was played on all of them.
    """
    shared = [name for name in training[0] if all(name in values for values in training)]
    if not shared:
        raise ValueError("no sequence was played on all collections")
    pooled = {
        name: [value for values in training for value in values[name].values()] for name in shared
    }
    return {name: math.fsum(values) / len(values) for name, values in pooled.items()}


def choose_kinds(means: Mapping[str, float], count: int = KINDS) -> list[str]:
    """The best sequences that differ in length or in their last action, best first."""
    found: dict[tuple[int, str], str] = {}
    for name in sorted(means, key=lambda one: -means[one]):
        steps = name.split(", ")
        found.setdefault((len(steps), steps[-1]), name)
    return list(found.values())[:count]


def as_start(name: str) -> str:
    """A sequence as the setting of a policy that begins with it: `[Fuse, Hop]`."""
    return f"[{', '.join(name.split(', ')[1:])}]"
