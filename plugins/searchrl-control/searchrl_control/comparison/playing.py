"""Policies on all questions of a split, greedily; and the published heuristic.

Shapes: B episodes, S choices, D numbers seen, A actions.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from searchrl_control.comparison.sequences import Envs
from searchrl_control.environment.actions import Action
from searchrl_control.environment.env import Turn
from searchrl_control.environment.features import LIST_FEATURES
from searchrl_control.policies.playing import Policy, Watched, choose_best, play, watch
from searchrl_control.policies.space import Decided, Space

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
    def key(self) -> str:
        """The question, by a name that no other collection has."""
        return f"{self.collection}/{self.question}"


def play_greedily(policy: Policy, envs: Envs, split: str) -> tuple[tuple[Played, ...], Watched]:
    """Play every question of a split once, with the most probable action at each choice."""
    asked = [(env, question) for env in envs.values() for question in env.world.questions(split)]
    players = [env for env, _ in asked]
    episodes = play(policy, players, [Turn(question) for _, question in asked], choose_best)
    played = []
    for env, turn in zip(players, episodes.turns, strict=True):
        world, question = env.world, turn.question
        level, actions = str(world.level(question)), tuple(map(str, turn.done))
        played.append(Played(question.id, world.name, level, turn.worth, actions, turn.num_illegal))
    return tuple(played), watch(policy, episodes, players[0].action_names)


def make_heuristic(space: Space) -> Policy:
    """The published heuristic: Search, then one look at the list.

    Broad if the first passages hold little of the question, Narrow if the scores lie close
    together, and then the end.
    """
    # In the set `heads`, the first of three lists is that of the single pass.
    shown = space.find_block("list") or space.find_block("searches")
    step = space.find_block("step")
    assert shown is not None and step is not None
    share, gap = (shown.start + [*LIST_FEATURES].index(one) for one in ("share_three", "gap_last"))
    narrow, broad, end = map(space.actions.index, (Action.NARROW, Action.BROAD, Action.TERMINATE))

    def decide(seen_BSD: Tensor) -> Decided:
        chosen_BS = torch.where(seen_BSD[..., gap] < _CLOSE, narrow, end)
        chosen_BS = torch.where(seen_BSD[..., share] < _UNCOVERED, broad, chosen_BS)
        # Once, when one action was done; before it, Search alone is legal.
        chosen_BS = torch.where(seen_BSD[..., step.start + 1] > 0, chosen_BS, end)
        logits_BSA = torch.nn.functional.one_hot(chosen_BS, space.num_actions).float()
        return Decided(logits_BSA, torch.zeros_like(seen_BSD[..., 0]))

    return decide
