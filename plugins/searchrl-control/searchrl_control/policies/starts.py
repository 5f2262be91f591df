"""A network that begins as a fixed sequence of actions.

Owns what speaks for each action at each step before anything is learned. The best fixed sequence of
the training questions is a strong policy; a network that begins with it has to learn only where to
leave it, and a KL to the start (`beta`) says how far. Without it, the few hundred
training questions of a collection do not suffice (docs/log.md). Nothing here is trained. Shapes: B
episodes, S choices, D numbers seen, N steps, A actions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from searchrl import ConfigError, suggest
from searchrl_control.environment.actions import Action
from searchrl_control.policies.space import Space

STEP = "step"

STRENGTH = 3.0
"""In logits: with nine actions, the one of the sequence begins at a probability of .7."""


class Start(nn.Module):
    """Speaks for the actions of a sequence, each at its step; for Terminate after the last one.

    Args:
        space: of the environment; its block `step` says how many actions were done.
        names: of the actions after the first one, which the mask decides. None: every action is
            about as likely.
        strength: in logits.

    Raises:
        ConfigError: an action is not there, they are too many, or the space shows no step.
    """

    start_NA: Tensor

    def __init__(self, space: Space, names: Sequence[str], strength: float) -> None:
        super().__init__()
        self.block = space.find_block(STEP) if names else None
        start_NA = torch.zeros((0, space.num_actions))
        if names:
            start_NA = self._place(space, list(names), strength)
        # Not saved: it follows from the settings.
        self.register_buffer("start_NA", start_NA, persistent=False)

    def forward(self, seen_BSD: Tensor) -> Tensor | float:
        """What is added to the logits [B, S, A]."""
        if self.block is None:
            return 0.0
        return seen_BSD[..., self.block] @ self.start_NA

    def _place(self, space: Space, names: list[str], strength: float) -> Tensor:
        if self.block is None:
            raise ConfigError(
                "network.start: the environment does not show which step it is (a block 'step'); "
                "leave network.start out"
            )
        if len(names) > space.max_choices - 1:
            raise ConfigError(
                f"network.start: an episode has {space.max_choices} actions and begins with one of "
                f"its own, so at most {space.max_choices - 1} can follow; got {len(names)}"
            )
        start_NA = torch.zeros((self.block.stop - self.block.start, space.num_actions))
        end = str(Action.TERMINATE)
        ended = [end] if end in space.actions else []
        for step, name in enumerate([*names, *ended][: space.max_choices - 1], 1):
            if name not in space.actions:
                raise ConfigError(
                    f"network.start: there is no action {name!r}.{suggest(name, space.actions)}"
                )
            start_NA[step, space.actions.index(name)] = strength
        return start_NA
