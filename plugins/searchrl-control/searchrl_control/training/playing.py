"""Episodes of a policy, many at once: those that a training learns from, and those of a comparison.

Owns the tensors of a batch, and what is said of how a policy decided. The rules are those of the
environment (`begin`, `advance`, `row`). Shapes: B episodes, S choices, D numbers seen, A actions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from searchrl import PolicyError
from searchrl_control.environment.env import RetrievalControlEnv, Turn
from searchrl_control.training.space import Decided, masked_logps, space_of

Policy = Callable[[Tensor], Decided]
"""From rows [B, S, D] to what speaks for each action."""


class Episodes(NamedTuple):
    """Episodes from begin to end. Where `is_done_BS` is false, a row is 0 and not read."""

    seen_BSD: Tensor
    legal_BSA: Tensor
    action_BS: Tensor
    reward_BS: Tensor
    is_done_BS: Tensor
    turns: Sequence[Turn]
    """How each ended."""


def play(
    policy: Policy,
    envs: Sequence[RetrievalControlEnv],
    turns: Sequence[Turn],
    choose: Callable[[Tensor, Tensor], Tensor],
) -> Episodes:
    """Play an episode of each environment from its first turn to its end.

    `choose` is given logits [B, A] and what is legal [B, A], of all episodes, so that a draw does
    not depend on who is still playing. Raises `PolicyError`: logits are not finite.
    """
    space, turns = space_of(envs[0]), list(turns)
    shape = (len(turns), space.max_choices)
    seen_BSD = torch.zeros((*shape, space.width))
    legal_BSA = torch.ones((*shape, space.num_actions), dtype=torch.bool)
    action_BS, reward_BS = torch.zeros(shape, dtype=torch.long), torch.zeros(shape)
    is_done_BS = torch.zeros(shape, dtype=torch.bool)
    for step in range(space.max_choices):
        live = [at for at, turn in enumerate(turns) if not turn.is_over]
        if not live:
            break
        seen = [envs[at].row(turns[at].question, turns[at].path, step) for at in live]
        rows, legal = zip(*seen, strict=True)
        seen_BSD[live, step] = torch.from_numpy(np.stack(rows))
        legal_BSA[live, step] = torch.from_numpy(np.stack(legal))
        with torch.no_grad():
            logits_BA = policy(seen_BSD[:, : step + 1]).logits_BSA[:, -1]
        if not torch.isfinite(logits_BA[legal_BSA[:, step]]).all():
            raise PolicyError("the network gives logits that are not finite; train it again")
        chosen = choose(logits_BA, legal_BSA[:, step]).tolist()
        for at in live:
            turns[at], reward_BS[at, step] = envs[at].advance(turns[at], chosen[at])
            action_BS[at, step], is_done_BS[at, step] = chosen[at], True
    return Episodes(seen_BSD, legal_BSA, action_BS, reward_BS, is_done_BS, turns)


def choose_best(logits_BA: Tensor, legal_BA: Tensor) -> Tensor:
    """The most probable action of each episode [B]."""
    return masked_logps(logits_BA, legal_BA).argmax(dim=-1)


class Watched(NamedTuple):
    """How a policy decided where more than one action was legal.

    `choices` counts these decisions by the name of the action. `least` is the smallest probability
    that a legal action had in one of them; 1 if there was no decision.
    """

    choices: Counter[str]
    least: float


def watch(policy: Policy, played: Episodes, actions: Sequence[str]) -> Watched:
    """How the policy that played some episodes decided."""
    is_free_BS = played.is_done_BS & (played.legal_BSA.sum(dim=-1) > 1)
    choices = Counter(actions[number] for number in played.action_BS[is_free_BS].tolist())
    if not choices:
        return Watched(choices, 1.0)
    with torch.no_grad():
        logits_NA = policy(played.seen_BSD).logits_BSA[is_free_BS]
    legal_NA = played.legal_BSA[is_free_BS]
    # In 64 bits, a probability is 0 only where nothing can come back.
    return Watched(choices, float(masked_logps(logits_NA.double(), legal_NA)[legal_NA].min().exp()))
