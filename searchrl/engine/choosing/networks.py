"""The network `mlp`: each choice from what is seen before it, in layers; none of them: linear.

Owns the built-in policy of `register_policies`. Packages bring others, such as recurrent ones.
Shapes: B episodes, S choices, D numbers seen, A actions.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

from pydantic import Field
from torch import Tensor, nn

from searchrl.contracts import ChoiceSpace, Chosen

Layers = list[Annotated[int, Field(ge=1, le=65_536)]]


class Mlp(nn.Module):
    """Layers of tanh over what is seen, and one more for the actions.

    Args:
        space: what is seen and chosen.
        hidden: the width of each layer; an empty list makes the network linear.
        critic: whether it has values, from layers of the same widths.
    """

    def __init__(
        self, space: ChoiceSpace, *, hidden: Layers | None = None, critic: bool = False
    ) -> None:
        super().__init__()
        widths = [64] if hidden is None else hidden
        self.actor = _make_layers([space.width, *widths, space.num_actions])
        self.critic = _make_layers([space.width, *widths, 1]) if critic else None

    def forward(self, seen_BSD: Tensor) -> Chosen:
        """Return what speaks for each action, and the value if there is a critic."""
        value_BS = None if self.critic is None else self.critic(seen_BSD)[..., 0]
        return Chosen(self.actor(seen_BSD), value_BS)


def _make_layers(widths: list[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.Tanh()]
    last = layers[-2]
    assert isinstance(last, nn.Linear)
    # Nearly even at the start: nothing has been learned that would favour an action.
    nn.init.normal_(last.weight, std=0.01)
    nn.init.zeros_(last.bias)
    return nn.Sequential(*layers[:-1])
