"""Advantages of the algorithms, written from their definitions alone, in float64.

A function returns the advantage of each turn of a step, by rollout and number among its own turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

DELTA = 1e-6
Turn = tuple[str, int]
Step = Sequence["Leaf"]


@dataclass(frozen=True)
class Leaf:
    """A rollout; its own turns stand behind the first `kept` ones on the path of its parent."""

    name: str
    group: str
    reward: float | None
    turn_rewards: list[float]
    seen: list[str]  # the observation before each turn
    components: dict[str, tuple[float, float]]  # weight, score
    golds: list[list[float]]  # before each turn, the probability of each answer
    parent: str = ""
    kept: int = 0

    def path(self, step: Step) -> list[Turn]:
        above = [turn for one in step if one.name == self.parent for turn in one.path(step)]
        return above[: self.kept] + [(self.name, n) for n in range(len(self.turn_rewards))]


def normal(values: Sequence[float], keys: Sequence[object], by_std: bool = True) -> np.ndarray:
    x, out = np.array(values, dtype=np.float64), np.zeros(len(values))
    for key in set(keys):
        at = [n for n, one in enumerate(keys) if one == key]
        if x[at].max() > x[at].min():
            out[at] = (x[at] - x[at].mean()) / (x[at].std() + DELTA if by_std else 1.0)
    return out


def scored(step: Step) -> list[Leaf]:
    return [leaf for leaf in step if leaf.reward is not None]


def below(step: Step, values: Sequence[float]) -> dict[Turn, float]:
    found: dict[Turn, list[float]] = {}
    for leaf, value in zip(scored(step), values, strict=True):
        for turn in leaf.path(step):
            found.setdefault(turn, []).append(value)
    return {turn: float(np.mean(some)) for turn, some in found.items()}


def arpo(step: Step) -> dict[Turn, float]:
    leaves = scored(step)
    return below(step, normal([one.reward for one in leaves], [one.group for one in leaves]))


def tree_grpo(step: Step) -> dict[Turn, float]:
    leaves = scored(step)
    groups, trees = [one.group for one in leaves], [one.path(step)[0] for one in leaves]
    return below(step, sum(normal([one.reward for one in leaves], x) for x in (groups, trees)))


def at2po(step: Step) -> dict[Turn, float]:
    values = arpo(step)
    paths = [(leaf.group, *leaf.path(step)) for leaf in step]
    before = {turn: path[:n] for path in paths for n, turn in enumerate(path) if n}
    centred = normal([*values.values()], [before[turn] for turn in values], by_std=False)
    return dict(zip(values, centred, strict=True))


def sums_ahead(rewards: Sequence[float], gamma: float) -> list[float]:
    return [sum(r * gamma**n for n, r in enumerate(rewards[t:])) for t in range(len(rewards))]


def igpo(step: Step, gamma: float) -> dict[Turn, float]:
    leaves, earned = scored(step), []
    for leaf in leaves:
        p = np.array(leaf.golds)[:, int(np.argmax(leaf.golds[-1]))]
        earned += [*np.diff(p), leaf.reward]
    r = iter(normal(earned, [one.group for one in leaves for _ in one.golds]))
    ahead = [(one.name, sums_ahead([next(r) for _ in one.golds], gamma)) for one in leaves]
    return {(name, n): value for name, some in ahead for n, value in enumerate(some)}


def gigpo(step: Step, gamma: float, omega: float, by_std: bool) -> dict[Turn, float]:
    leaves = scored(step)
    whole = normal([one.reward for one in leaves], [one.group for one in leaves], by_std)
    turns = [(leaf, n) for leaf in leaves for n in range(len(leaf.seen))]
    returns = [sums_ahead(leaf.turn_rewards, gamma)[n] for leaf, n in turns]
    local = iter(normal(returns, [(leaf.group, leaf.seen[n]) for leaf, n in turns], by_std))
    episode = {leaf.name: a for leaf, a in zip(leaves, whole, strict=True)}
    return {(leaf.name, n): episode[leaf.name] + omega * next(local) for leaf, n in turns}


def gdpo(step: Step) -> dict[Turn, float]:
    leaves = scored(step)
    total = {leaf.name: 0.0 for leaf in leaves}
    for name in {name for leaf in leaves for name in leaf.components}:
        have = [leaf for leaf in leaves if name in leaf.components]
        scores = normal([one.components[name][1] for one in have], [one.group for one in have])
        for leaf, score in zip(have, scores, strict=True):
            total[leaf.name] += leaf.components[name][0] * score
    whole = dict(zip(total, normal([*total.values()], [0] * len(total)), strict=True))
    return {(one.name, n): whole[one.name] for one in leaves for n in range(len(one.turn_rewards))}
