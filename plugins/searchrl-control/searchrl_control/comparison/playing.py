"""Policies on all questions of a split at once, greedily: a sweep over checkpoints takes seconds.

Owns what a policy is shown of each question, kept from one policy to the next, and what is said of
how it decides; and the published heuristic. The rules are those of an episode:
`Positions.advance`. Shapes: B questions, S choices, D numbers seen, A actions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from searchrl import PolicyError
from searchrl_control.environment.actions import Action
from searchrl_control.environment.env import RetrievalControlEnv
from searchrl_control.environment.features import LIST_FEATURES
from searchrl_control.environment.games import Moves
from searchrl_control.environment.measures import ndcg
from searchrl_control.policies.space import Decided, Space, masked_logps, row_of, space_of

Policy = Callable[[Tensor], Decided]
"""From rows [B, S, D] to what speaks for each action."""

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


class Watched(NamedTuple):
    """The episodes of a policy, and how it decided where more than one action was legal.

    `choices` counts these decisions by action. `least` is the smallest probability that a legal
    action had in one of them; 1 if there was no decision.
    """

    played: tuple[Played, ...]
    choices: Mapping[str, int]
    least: float


class Board:
    """The questions of a split of one collection, as policies see them."""

    def __init__(self, env: RetrievalControlEnv, split: str) -> None:
        self.env = env
        self.space = space_of(env)
        self._questions = env.world.questions(split)
        self._askers = [env.world.asker(question) for question in self._questions]
        self._rows: dict[tuple[int, Moves | None, int], tuple[Tensor, Tensor]] = {}

    def play(self, policy: Policy) -> Watched:
        """Play every question once, with the most probable action at each choice.

        Raises `PolicyError`: the policy gives logits that are not finite.
        """
        count, limit = len(self._questions), self.env.max_steps
        seen_BSD = torch.zeros((count, limit, self.space.width))
        paths: list[Moves | None] = [None] * count
        done: list[list[Action]] = [[] for _ in range(count)]
        illegal, live = [0] * count, list(range(count))
        choices, least = Counter[str](), 0.0
        for step in range(limit):
            if not live:
                break
            rows, legal = zip(*(self._row(at, paths[at], step) for at in live), strict=True)
            seen_BSD[live, step], legal_BA = torch.stack(rows), torch.stack(legal)
            with torch.no_grad():
                logits_BA = policy(seen_BSD[live]).logits_BSA[:, step].double()
            if not torch.isfinite(logits_BA[legal_BA]).all():
                raise PolicyError("the network gives logits that are not finite; train it again")
            logp_BA = masked_logps(logits_BA, legal_BA)
            is_free_B = legal_BA.sum(dim=-1) > 1
            if is_free_B.any():
                least = min(least, float(logp_BA[legal_BA & is_free_B[:, None]].min()))
            decided = zip(live, logp_BA.argmax(dim=-1).tolist(), is_free_B.tolist(), strict=True)
            for at, number, is_free in decided:
                gone = self.env.world.positions.advance(self._askers[at], paths[at], number)
                paths[at] = gone.path
                done[at].append(gone.done)
                illegal[at] += gone.is_illegal
                choices.update([str(gone.done)] * is_free)
            live = [at for at in live if done[at][-1] is not Action.TERMINATE]
        world, played = self.env.world, []
        for at, question in enumerate(self._questions):
            ids = world.positions.ids(world.positions.at(self._askers[at], paths[at] or ()))
            worth = ndcg(ids, question.qrels, world.positions.k)
            actions = tuple(map(str, done[at]))
            level = str(world.level(question))
            played.append(Played(question.id, world.name, level, worth, actions, illegal[at]))
        return Watched(tuple(played), dict(choices.most_common()), math.exp(least))

    def _row(self, at: int, path: Moves | None, step: int) -> tuple[Tensor, Tensor]:
        """What is seen of a question after a path, as a row [D], and which actions are legal."""
        key = (at, path, step)
        if key not in self._rows:
            asker = self._askers[at]
            row = row_of(self.env, self.env.observe(asker, path, step))
            legal = self.env.world.positions.at(asker, path).legal
            self._rows[key] = torch.from_numpy(row), torch.tensor(legal)
        return self._rows[key]


def make_heuristic(space: Space) -> Policy:
    """The published heuristic: Search, then one look at the list.

    Broad if the first passages hold little of the question, Narrow if the scores lie close
    together, and then the end.
    """
    # In the set `heads`, the first of three lists is that of the single pass.
    shown = space.find_block("list") or space.find_block("searches")
    step = space.find_block("step")
    assert shown is not None and step is not None
    share = shown.start + LIST_FEATURES.index("share_three")
    gap = shown.start + LIST_FEATURES.index("gap_last")
    narrow, broad, end = map(space.actions.index, (Action.NARROW, Action.BROAD, Action.TERMINATE))

    def decide(seen_BSD: Tensor) -> Decided:
        chosen_BS = torch.where(seen_BSD[..., gap] < _CLOSE, narrow, end)
        chosen_BS = torch.where(seen_BSD[..., share] < _UNCOVERED, broad, chosen_BS)
        # Once, when one action was done; before it, Search alone is legal.
        chosen_BS = torch.where(seen_BSD[..., step.start + 1] > 0, chosen_BS, end)
        logits_BSA = torch.nn.functional.one_hot(chosen_BS, space.num_actions).float()
        return Decided(logits_BSA, torch.zeros_like(seen_BSD[..., 0]))

    return decide
