"""Networks on all questions of a split at once, greedily: a sweep over checkpoints takes seconds.

Owns what a network is shown of each question, kept from one network to the next, and what is said
of how it decides. The rules are those of an episode: `Positions.advance`. Shapes: B questions, S
choices, D numbers seen, A actions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from searchrl import PolicyError
from searchrl_control.comparison.playing import Played
from searchrl_control.environment.actions import Action
from searchrl_control.environment.env import RetrievalControlEnv
from searchrl_control.environment.features import Features
from searchrl_control.environment.games import Path
from searchrl_control.environment.measures import ndcg
from searchrl_control.policies.space import Decided, masked_logps, row_of, space_of

if TYPE_CHECKING:
    from torch import Tensor

Legal = tuple[bool, ...]


class Watched(NamedTuple):
    """The episodes of a network, and how it decided where more than one action was legal.

    `choices` are these decisions by action. `least` is the smallest probability that a legal action
    had in one of them; 1 if there was no decision.
    """

    played: tuple[Played, ...]
    choices: Mapping[str, int]
    least: float

    @property
    def num_choices(self) -> int:
        """Decisions between several legal actions."""
        return sum(self.choices.values())

    def share(self, action: Action) -> float:
        """The share of the decisions that were this action."""
        return self.choices.get(str(action), 0) / max(self.num_choices, 1)


class Board:
    """The questions of a split of one collection, as networks see them.

    Args:
        env: of the collection; all questions of the split are played, whatever its difficulty.
        split: whose questions.
    """

    def __init__(self, env: RetrievalControlEnv, split: str) -> None:
        self.env = env
        self.space = space_of(env)
        self._questions = env.world.questions(split)
        self._askers = [env.world.asker(question) for question in self._questions]
        self._rows: dict[tuple[int, Path | None, int], tuple[Features, Legal]] = {}

    def play(self, network: Callable[[Tensor], Decided]) -> Watched:
        """Play every question once, with the most probable action at each choice.

        Raises:
            PolicyError: the network gives logits that are not finite.
        """
        import torch

        count, limit = len(self._questions), self.env.max_steps
        seen_BSD = torch.zeros((count, limit, self.space.width))
        paths: list[Path | None] = [None] * count
        done: list[list[str]] = [[] for _ in range(count)]
        illegal, live = [0] * count, list(range(count))
        choices, least = Counter[str](), 0.0
        for step in range(limit):
            if not live:
                break
            rows, legal = zip(*(self._row(at, paths[at], step) for at in live), strict=True)
            seen_BSD[live, step] = torch.from_numpy(np.stack(rows))
            legal_BA = torch.tensor(legal)
            logp_BA = self._logps(network, seen_BSD[live], step, legal_BA)
            chosen = logp_BA.argmax(dim=-1).tolist()
            is_free_B = legal_BA.sum(dim=-1) > 1
            if is_free_B.any():
                least = min(least, float(logp_BA[legal_BA & is_free_B[:, None]].min()))
            still = []
            for at, number, is_free in zip(live, chosen, is_free_B.tolist(), strict=True):
                gone = self.env.world.positions.advance(self._askers[at], paths[at], number)
                paths[at] = gone.path
                done[at].append(str(gone.done))
                illegal[at] += gone.is_illegal
                if is_free:
                    choices[str(gone.done)] += 1
                if gone.done is not Action.TERMINATE:
                    still.append(at)
            live = still
        played = tuple(self._finish(at, paths[at], done[at], illegal[at]) for at in range(count))
        return Watched(played, dict(choices.most_common()), float(np.exp(least)))

    def _logps(
        self, network: Callable[[Tensor], Decided], seen_BSD: Tensor, step: int, legal_BA: Tensor
    ) -> Tensor:
        """Log-probs [B, A] of the actions at a step, in 64 bits; -inf for illegal ones."""
        import torch

        with torch.no_grad():
            logits_BA = network(seen_BSD).logits_BSA[:, step].double()
        if not torch.isfinite(logits_BA[legal_BA]).all():
            raise PolicyError("the network gives logits that are not finite; it cannot be played")
        return masked_logps(logits_BA, legal_BA)

    def _row(self, at: int, path: Path | None, step: int) -> tuple[Features, Legal]:
        """What is seen of a question after a path, as a row [D], and which actions are legal."""
        key = (at, path, step)
        if key not in self._rows:
            asker = self._askers[at]
            row = row_of(self.env, self.env.observe(asker, path, step))
            self._rows[key] = (row, self.env.world.positions.legal(asker, path))
        return self._rows[key]

    def _finish(self, at: int, path: Path | None, done: list[str], num_illegal: int) -> Played:
        world, question = self.env.world, self._questions[at]
        ids = (
            [] if path is None else world.positions.ids(world.positions.at(self._askers[at], path))
        )
        worth = ndcg(ids, question.qrels, world.positions.k)
        level = str(world.level(question))
        return Played(question.id, world.name, level, worth, tuple(done), num_illegal)
