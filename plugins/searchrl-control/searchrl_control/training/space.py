"""What a network sees and says: the space of an environment, and logits with a value.

Owns the blocks of a row, as `gymnasium.spaces.flatten` lays them out, and the mask of illegal
actions. Shapes: B episodes, S choices, D numbers seen, A actions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from gymnasium.spaces import Dict, flatdim
from torch import Tensor

from searchrl import ConfigError
from searchrl_control.environment.env import RetrievalControlEnv


@dataclass(frozen=True, slots=True)
class Space:
    """What is seen before each choice, and what can be chosen.

    `blocks` are the parts of a row with the count of numbers of each, in their order. `actions` are
    the names of the actions, by number. An episode has at most `max_choices`.
    """

    blocks: tuple[tuple[str, int], ...]
    actions: tuple[str, ...]
    max_choices: int

    @property
    def width(self) -> int:
        """Numbers that are seen before a choice (D)."""
        return sum(width for _, width in self.blocks)

    @property
    def num_actions(self) -> int:
        """How many actions there are (A)."""
        return len(self.actions)

    def find_block(self, name: str) -> slice | None:
        """Where in a row the numbers of a block are; None if there is no such block."""
        start = 0
        for block, width in self.blocks:
            if block == name:
                return slice(start, start + width)
            start += width
        return None


class Decided(NamedTuple):
    """What a network says of B episodes of S choices each."""

    logits_BSA: Tensor
    """Before the mask: illegal actions are taken out in one place, which is not the network."""
    value_BS: Tensor
    """The return that is expected from here on."""


def space_of(env: RetrievalControlEnv) -> Space:
    """The space of an environment."""
    shown = env.observation_space
    assert isinstance(shown, Dict)
    blocks = tuple((name, flatdim(part)) for name, part in shown.items())
    return Space(blocks, env.action_names, env.max_steps)


def shared_space(envs: Iterable[RetrievalControlEnv]) -> Space:
    """The space of some environments; raises `ConfigError` if they have not all the same."""
    first, *others = envs
    for env in others:
        if space_of(env) != space_of(first):
            raise ConfigError(
                f"the collections '{first.world.name}' and '{env.world.name}' show or offer other "
                "things; use the same actions and max_steps for all"
            )
    return space_of(first)


def masked_logps(logits: Tensor, legal: Tensor) -> Tensor:
    """Log-probs [..., A] of the actions in nats; -inf for those that are not legal."""
    return torch.log_softmax(torch.where(legal, logits, -torch.inf), dim=-1)
