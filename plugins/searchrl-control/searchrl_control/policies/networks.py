"""The networks `linear`, `mlp` and `gru`: what speaks for each action, and a critic.

Owns how they are built. All three weigh the signs for each action on its own. Where the environment
shows candidates (the set `heads`), one scorer that all sources share says what speaks for each of
them, so what is learned of one source helps the others. Nothing of the embeddings of texts is
trained here: they are numbers in the observation. A network may begin as a fixed sequence of
actions (`starts`): it then learns when to leave it. Shapes: B episodes, S choices, D numbers seen,
G signs, H hidden numbers, K sources, C features of a candidate, A actions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import torch
from pydantic import Field, ValidationError, validate_call
from torch import Tensor, nn

from searchrl import ConfigError, suggest
from searchrl_control.environment.candidates import CANDIDATE_FEATURES
from searchrl_control.environment.heads import SOURCES
from searchrl_control.policies.inputs import Inputs
from searchrl_control.policies.space import Decided, Space
from searchrl_control.policies.starts import STRENGTH, Start

Width = Annotated[int, Field(ge=0)]
AtLeastOne = Annotated[int, Field(ge=1)]
Names = tuple[str, ...]
AboveZero = Annotated[float, Field(gt=0, le=20)]

_SMALL = 0.01
"""The spread of the last layers at the start: every action is about as likely, and every layer
below still gets a gradient."""

FARTHEST_LOGIT = 8.0
"""What is learned can speak this much for or against an action and no more: no legal action's
probability reaches 0, so a policy that went wrong can still come back."""


class Network(nn.Module):
    """Inputs, a body, a head for the actions and one for the value.

    Args:
        space: of the environment.
        body: from signs [B, S, G] to [B, S, H].
        inputs: what is read.
        width: H.
        hidden: of the shared scorer of candidates; 0: linear.
        start: what speaks for each action before anything is learned.
    """

    def __init__(
        self,
        space: Space,
        inputs: Inputs,
        body: nn.Module,
        width: int,
        hidden: int,
        start: Start,
    ) -> None:
        super().__init__()
        self.inputs = inputs
        self.start = start
        self.body = body
        self.actor = _last(width, space.num_actions)
        self.critic = _last(width, 1)
        self.scorer: nn.Module | None = None
        if inputs.candidates is not None:
            self.scorer = _scorer(2 * len(CANDIDATE_FEATURES), hidden)
            # A buffer would be saved; this follows from the space.
            self.places = [space.actions.index(str(source)) for source in SOURCES]

    def forward(self, seen_BSD: Tensor) -> Decided:
        """What speaks for each action: at choice s, of rows up to s, and never of later ones."""
        signs_BSG, candidates_BSKC = self.inputs(seen_BSD)
        hidden_BSH = self.body(signs_BSG)
        logits_BSA = self.actor(hidden_BSH)
        if self.scorer is not None and candidates_BSKC is not None:
            beside_BSKC = candidates_BSKC - candidates_BSKC.mean(dim=-2, keepdim=True)
            both = torch.cat([candidates_BSKC, beside_BSKC], dim=-1)
            more_BSA = torch.zeros_like(logits_BSA)
            more_BSA[..., self.places] = self.scorer(both)[..., 0]
            logits_BSA = logits_BSA + more_BSA
        bounded_BSA = FARTHEST_LOGIT * torch.tanh(logits_BSA / FARTHEST_LOGIT)
        return Decided(bounded_BSA + self.start(seen_BSD), self.critic(hidden_BSH)[..., 0])


def make_linear(
    space: Space,
    *,
    embedding: Width = 0,
    start: Names = (),
    strength: AboveZero = STRENGTH,
) -> nn.Module:
    """The network `linear`: what cross-validation chose on training questions.

    Args:
        space: of the environment.
        embedding: numbers into which each text embedding is encoded; 0 leaves them out. They
            overfit on the few hundred training questions that collections have.
        start: the actions after the first Search that the network begins with.
        strength: how much more speaks for them, in logits.
    """
    inputs = Inputs(space, embedding)
    begun = Start(space, start, strength)
    return Network(space, inputs, nn.Identity(), inputs.width, 0, begun)


def make_mlp(
    space: Space,
    *,
    hidden: AtLeastOne = 32,
    embedding: Width = 0,
    start: Names = (),
    strength: AboveZero = STRENGTH,
) -> nn.Module:
    """The network `mlp`: one hidden layer of tanh, in the body and in the scorer."""
    inputs = Inputs(space, embedding)
    body = nn.Sequential(nn.Linear(inputs.width, hidden), nn.Tanh())
    return Network(space, inputs, body, hidden, hidden, Start(space, start, strength))


def make_gru(
    space: Space,
    *,
    hidden: AtLeastOne = 32,
    embedding: Width = 0,
    start: Names = (),
    strength: AboveZero = STRENGTH,
) -> nn.Module:
    """The network `gru`: remembers what it saw in the episode."""
    inputs = Inputs(space, embedding)
    body = _Recurrent(inputs.width, hidden)
    return Network(space, inputs, body, hidden, hidden, Start(space, start, strength))


NETWORKS: Mapping[str, Callable[..., nn.Module]] = {
    "linear": make_linear,
    "mlp": make_mlp,
    "gru": make_gru,
}


def make_network(space: Space, described: Mapping[str, Any]) -> nn.Module:
    """A new network from its name and its settings. Raises `ConfigError` for wrong ones."""
    settings = dict(described)
    name = settings.pop("name", "linear")
    if name not in NETWORKS:
        raise ConfigError(f"network: there is no {name!r}.{suggest(str(name), NETWORKS)}")
    try:
        make = validate_call(config={"arbitrary_types_allowed": True})(NETWORKS[name])
        return make(space, **settings)
    except ValidationError as error:
        wrong = error.errors()[0]
        where = ".".join(map(str, wrong["loc"]))
        raise ConfigError(
            f"network.{where} = {wrong['input']!r}: {wrong['msg']}; '{name}' takes "
            f"{', '.join(list(inspect.signature(NETWORKS[name]).parameters)[1:])}"
        ) from error


class _Recurrent(nn.Module):
    """A GRU over the choices of an episode: [B, S, G] to [B, S, H]."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gru = nn.GRU(width, hidden, batch_first=True)

    def forward(self, signs_BSG: Tensor) -> Tensor:
        """What is remembered at each choice."""
        hidden_BSH: Tensor = self.gru(signs_BSG)[0]
        return hidden_BSH


def _scorer(width: int, hidden: int) -> nn.Module:
    """What speaks for a candidate; without a bias, which would say the same of all sources."""
    if not hidden:
        return _last(width, 1, bias=False)
    return nn.Sequential(nn.Linear(width, hidden), nn.Tanh(), _last(hidden, 1, bias=False))


def _last(width: int, count: int, *, bias: bool = True) -> nn.Linear:
    layer = nn.Linear(width, count, bias=bias)
    nn.init.normal_(layer.weight, std=_SMALL)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer
