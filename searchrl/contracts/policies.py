"""Contracts of policies without tokens: what a choice environment shows, and what a network says.

Owns the space of choices, the shape of what a network returns, and how environments are told apart:
by the turns that they take. Torch is imported for types only. Shapes: B episodes, S choices, D
numbers that are seen before a choice, A actions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from torch import Tensor

TEXT_TURNS = "text"
"""Of an environment: a turn is text."""
CHOICE_TURNS = "choice"
"""Of an environment: a turn is the number of an action."""
TURNS = (TEXT_TURNS, CHOICE_TURNS)


@dataclass(frozen=True, slots=True)
class ChoiceSpace:
    """What a choice environment shows before each choice, and what can be chosen.

    `blocks` are the parts of its observation with the count of numbers of each, in the order in
    which they lie in one row of `width` numbers: a network may read each for itself. `actions` are
    the names of the actions, by number. An episode has at most `max_choices`.
    """

    blocks: tuple[tuple[str, int], ...]
    actions: tuple[str, ...]
    max_choices: int = 5

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

    def to_dict(self) -> dict[str, Any]:
        """The space as plain JSON-able values."""
        return {
            "blocks": [list(block) for block in self.blocks],
            "actions": list(self.actions),
            "max_choices": self.max_choices,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ChoiceSpace:
        """The space that `to_dict` wrote."""
        blocks = tuple((str(name), int(width)) for name, width in data["blocks"])
        return cls(blocks, tuple(map(str, data["actions"])), int(data["max_choices"]))


class Chosen(NamedTuple):
    """What a network says of B episodes of S choices each."""

    logits_BSA: Tensor
    """Before the mask: illegal actions are taken out in one place, which is not the network."""
    value_BS: Tensor | None = None
    """The return that is expected from here on, if the network has a critic."""


class ChoicePolicy(Protocol):
    """A policy without tokens: a `torch.nn.Module`, whose `forward` is this.

    It is causal: what it says of choice s depends on `seen_BSD[:, : s + 1]` alone. Rows beyond the
    end of an episode are 0, and what it says of them is not read. Every parameter is trained.
    """

    def __call__(self, seen_BSD: Tensor) -> Chosen:
        """Say how much speaks for each action, at every choice of every episode."""


PolicyFactory = Callable[..., ChoicePolicy]
"""`factory(space, **settings) -> ChoicePolicy`."""
