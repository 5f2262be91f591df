"""Policies on all questions of a split, one episode each, and the two that need no training.

Owns what is kept of an episode. A policy here is a function from an observation and its `info` to
the number of an action; a trained network is one, and so is the published heuristic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from searchrl_control.environment.actions import Action
from searchrl_control.environment.features import LIST_FEATURES

Act = Callable[[Mapping[str, Any], Mapping[str, Any]], int]
"""`act(observation, info)`: the number of the next action."""

_CLOSE, _UNCOVERED = 0.2, 0.5
"""The bounds of the heuristic: scores that lie so close together, and so little of the question in
the first three passages."""


class Played(NamedTuple):
    """One episode: what its list is worth, and the actions that were done."""

    question: str
    collection: str
    level: str
    ndcg: float
    actions: tuple[str, ...]
    num_illegal: int = 0

    @property
    def num_steps(self) -> int:
        """Actions, the first Search and Terminate among them."""
        return len(self.actions)


def play(env: Any, split: str, act: Act) -> list[Played]:
    """Play every task of a split once.

    Args:
        env: `retrieval-control`, wrapped or not.
        split: whose tasks.
        act: the policy.
    """
    found = []
    for index in range(env.unwrapped.num_tasks(split)):
        observation, info = env.reset(options={"split": split, "index": index})
        done: list[str] = []
        is_over = False
        while not is_over:
            action = act(observation, info)
            observation, _, terminated, truncated, info = env.step(action)
            done.append(info["action"].payload)
            is_over = terminated or truncated
        task, signals = info["task"], info["signals"]
        found.append(
            Played(
                str(task.meta["question"]),
                task.kind,
                task.difficulty,
                float(signals["ndcg"]),
                tuple(done),
                int(signals["illegal"]),
            )
        )
    return found


def worth_of(played: Iterable[Played]) -> dict[str, dict[str, float]]:
    """nDCG@k by collection and question; the mean of those that were played several times."""
    found: dict[str, dict[str, list[float]]] = {}
    for one in played:
        found.setdefault(one.collection, {}).setdefault(one.question, []).append(one.ndcg)
    return {
        name: {question: math.fsum(values) / len(values) for question, values in of.items()}
        for name, of in found.items()
    }


def act_fixed(actions: Sequence[Action], sequence: Sequence[int]) -> Act:
    """The policy of a fixed sequence: Search, its actions, Terminate."""
    numbers = (actions.index(Action.SEARCH), *sequence)
    end = actions.index(Action.TERMINATE)

    def act(observation: Mapping[str, Any], info: Mapping[str, Any]) -> int:
        step = int(observation["step"])
        return numbers[step] if step < len(numbers) else end

    return act


def act_by_rule(actions: Sequence[Action]) -> Act:
    """The published heuristic: Search, then one look at the list.

    Broad if the first passages hold little of the question, Narrow if the scores lie close
    together, and then the end.
    """
    search, end = actions.index(Action.SEARCH), actions.index(Action.TERMINATE)
    narrow, broad = actions.index(Action.NARROW), actions.index(Action.BROAD)
    share, gap = LIST_FEATURES.index("share_three"), LIST_FEATURES.index("gap_last")

    def act(observation: Mapping[str, Any], info: Mapping[str, Any]) -> int:
        step = int(observation["step"])
        if step == 0:
            return search
        if step > 1:
            return end
        # In the set `heads`, the first of three lists is that of the single pass.
        told = observation["list"] if "list" in observation else observation["searches"]
        if told[share] < _UNCOVERED:
            return broad
        return narrow if told[gap] < _CLOSE else end

    return act
