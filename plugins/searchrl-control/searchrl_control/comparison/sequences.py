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
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from searchrl_retrieval.fusion import min_max

from searchrl import ConfigError
from searchrl_control.collections.judged import TRAIN
from searchrl_control.environment.env import RetrievalControlEnv
from searchrl_control.environment.measures import ndcg
from searchrl_control.environment.settings import OF_EPISODES, Action
from searchrl_control.environment.worlds import World
from searchrl_control.training.folder import Say
from searchrl_control.training.loop import Settings
from searchrl_control.training.networks import shared_space

Values = Mapping[str, Mapping[str, float]]
"""nDCG@k by the name of a sequence and the id of a question."""

Envs = Mapping[str, RetrievalControlEnv]
"""Environments by the name of their collection."""

SINGLE_PASS = "Search"

KINDS = 6
"""Sequences that an oracle chooses among: the best ones that are of different kinds."""

_OF_TRAINING = OF_EPISODES - {"max_steps"}
"""Settings of a training that change no list."""


def parts_of(names: Iterable[str]) -> dict[str, list[str]]:
    """The parts of the figures: all collections, pooled, and each of them."""
    every = [*names]
    return {"pooled": every, **{name: [name] for name in every}}


def list_sequences(actions: Sequence[Action], max_steps: int) -> list[tuple[int, ...]]:
    """The sequences of a set as numbers of actions, without Search; shorter ones first."""
    fixed = [n for n, one in enumerate(actions) if one not in (Action.SEARCH, Action.TERMINATE)]
    every = [one for length in range(max_steps) for one in itertools.product(fixed, repeat=length)]
    # Hop starts from a kept passage: first, it would be illegal.
    return [one for one in every if not one or actions[one[0]] is not Action.HOP]


def name_of(actions: Sequence[Action], sequence: Sequence[int]) -> str:
    """A sequence in words: `Search, Fuse, Follow`."""
    return ", ".join([SINGLE_PASS, *(str(actions[number]) for number in sequence)])


def numbers_of(actions: Sequence[Action], name: str) -> tuple[int, ...]:
    """A sequence in words as numbers, without Search."""
    return tuple(actions.index(Action(one)) for one in name.split(", ")[1:])


def play_sequences(world: World, split: str, sequences: Sequence[tuple[int, ...]]) -> Values:
    """nDCG@k of every question of a split after every sequence.

    Sequences of a question that begin alike are played one after another: they share searches.
    """
    # In the order of `sequences`: of equal ones, the first is chosen.
    values = {name_of(world.actions, one): dict[str, float]() for one in sequences}
    ordered = sorted(sequences)
    names = [name_of(world.actions, one) for one in ordered]
    for question in world.questions[split]:
        for name, listed in zip(names, world.lists_after(question, ordered), strict=True):
            values[name][question.id] = ndcg([one for one, _ in listed], question.qrels)
    return values


def compared_envs(settings: Settings) -> list[dict[str, Any]]:
    """The settings of environments without those of training, each collection once."""
    places: list[dict[str, Any]] = []
    for env in settings.envs:
        place = {name: value for name, value in env.items() if name not in _OF_TRAINING}
        places += [place] if place not in places else []
    return places


def open_envs(settings: Sequence[Mapping[str, Any]]) -> Envs:
    """The environments of some settings by the name of their collection."""
    envs: dict[str, RetrievalControlEnv] = {}
    for one in settings:
        env = RetrievalControlEnv(**one)
        if env.world.name in envs:
            raise ConfigError(
                f"two collections are called '{env.world.name}', so a table cannot tell them "
                "apart; rename the folder of one of them"
            )
        envs[env.world.name] = env
    shared_space(envs.values())
    return envs


@lru_cache(maxsize=16)
def play_every(world: World, max_steps: int) -> Values:
    """Every sequence on the training questions of a collection; a table asks again and again."""
    return play_sequences(world, TRAIN, list_sequences(world.actions, max_steps))


def play_all(envs: Envs, say: Say) -> dict[str, Values]:
    """Every sequence on the training questions of collections; `say` hears what takes a while."""
    values = {}
    for name, env in envs.items():
        say(f"{name}: every sequence on {len(env.world.questions[TRAIN]):,} training questions …")
        values[name] = play_every(env.world, env.max_steps)
    return values


def means_of(values: Sequence[Values]) -> dict[str, float]:
    """The mean of every sequence over the pooled questions of some collections."""
    pooled = {name: [one for of in values for one in of[name].values()] for name in values[0]}
    return {name: math.fsum(of) / len(of) for name, of in pooled.items()}


def choose_kinds(means: Mapping[str, float]) -> list[str]:
    """The best sequences that differ in length or in their last action, best first."""
    kinds: dict[tuple[int, str], str] = {}
    for name in sorted(means, key=lambda one: -means[one]):
        steps = name.split(", ")
        kinds.setdefault((len(steps), steps[-1]), name)
    return list(kinds.values())[:KINDS]


def describe(training: Mapping[str, Values]) -> dict[str, Any]:
    """Means and best sequences on training questions, pooled and of each collection, as JSON."""
    means, best = {}, {}
    for part, names in parts_of(training).items():
        means[part] = of_part = means_of([training[name] for name in names])
        sequence = max(of_part, key=lambda one: of_part[one])  # of equals the first, a shortest
        best[part] = {
            "sequence": sequence,
            "start": f"[{', '.join(sequence.split(', ')[1:])}]",
            "ndcg": of_part[sequence],
            "single_pass": of_part[SINGLE_PASS],
        }
    return {"sequences": len(of_part), "best": best, "ndcg": means}


LONG = 40
"""Passages of the lists that are re-drawn: noise can move some in from below what is measured."""

_ROUNDS = 12
_LARGEST = 16.0
"""Halvings in the search for the amount of noise, and its start."""


class Case(NamedTuple):
    """A question: nDCG after every sequence, the best one first; the long list of the best, as ids
    with scores; and the relevant passages."""

    values: Sequence[float]
    listed: Sequence[tuple[str, float]]
    qrels: Mapping[str, int]


def measure_oracle(envs: Envs, split: str, training: Mapping[str, Values]) -> dict[str, Any]:
    """The oracle over six sequences that are best in training, and its control, on a split."""
    kinds = choose_kinds(means_of(list(training.values())))
    if len(kinds) < 2:
        return {}
    cases: dict[str, list[Case]] = {name: [] for name in envs}
    for name, env in envs.items():
        sequences = [numbers_of(env.actions, kind) for kind in kinds]
        values = play_sequences(env.world, split, sequences)
        for question in env.world.questions[split]:
            (listed,) = env.world.lists_after(question, sequences[:1], LONG)
            worth = [values[kind][question.id] for kind in kinds]
            cases[name].append(Case(worth, listed, question.qrels))
    parts = {
        part: measure_margin([case for name in names for case in cases[name]])
        for part, names in parts_of(envs).items()
    }
    return {"kinds": kinds, "margins": parts}


def measure_margin(cases: Sequence[Case]) -> dict[str, float]:
    """The oracle over two sequences or more, and that over copies of the best one (`control`).

    `spread` is the mean absolute difference of the real lists from the best one, `control_spread`
    that of the copies. `learnable` is the gain of the oracle beyond luck; below 0, there is none.
    """
    best_Q, *others = np.array([case.values for case in cases]).T
    spread = float(np.abs(others - best_Q).mean())

    def copy(noise: float) -> np.ndarray:
        rng = np.random.default_rng(0)
        return np.array(
            [[ndcg(redraw(one.listed, noise, rng), one.qrels) for one in cases] for _ in others]
        )

    low, high = 0.0, _LARGEST
    for _ in range(_ROUNDS):  # more noise differs more
        middle = (low + high) / 2
        is_less = np.abs(copy(middle) - best_Q).mean() < spread
        low, high = (middle, high) if is_less else (low, middle)
    copies = copy((low + high) / 2)
    oracle = float(np.maximum(np.max(others, axis=0), best_Q).mean())
    control = float(np.maximum(copies.max(axis=0), best_Q).mean())
    return {
        "best": float(best_Q.mean()),
        "oracle": oracle,
        "control": control,
        "learnable": oracle - control,
        "spread": spread,
        "control_spread": float(np.abs(copies - best_Q).mean()),
    }


def redraw(
    listed: Sequence[tuple[str, float]], noise: float, rng: np.random.Generator
) -> list[str]:
    """The ids of a list, ordered by their min-max points plus noise."""
    points = np.array(min_max([score for _, score in listed]))
    order = np.argsort(-(points + rng.normal(0, noise, len(points))), kind="stable")
    return [listed[place][0] for place in order.tolist()]
