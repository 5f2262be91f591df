"""The networks `linear`, `mlp` and `gru`: logits of the actions, and a critic.

They see the blocks of a row, as `gymnasium.spaces.flatten` lays them out. Signs are read as their
distance from the usual. The embeddings of texts are left out: they overfit on the few hundred
training questions that collections have. Where the environment shows candidates (the set `heads`),
all sources share one scorer, so what is learned of one source helps the others. A network may begin
as a fixed sequence of actions: the best one of the training questions is a strong policy, and the
network has only to learn where to leave it; a KL to the start (`beta`) limits how far
(docs/log.md). Shapes: B episodes, S choices, D numbers seen, G signs, H hidden numbers, K sources,
C features of a candidate, N steps, A actions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated, Literal, NamedTuple

import torch
from gymnasium.spaces import Dict, flatdim
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from searchrl import ConfigError, suggest
from searchrl_control.environment.env import RetrievalControlEnv
from searchrl_control.environment.features import (
    CANDIDATE_FEATURES,
    LIST_FEATURES,
    QUERY_FEATURES,
    SOURCES,
)
from searchrl_control.environment.settings import Action


@dataclass(frozen=True, slots=True)
class Space:
    """The blocks of a row with their widths, and the names of the actions, by number.

    An episode has at most `max_choices`.
    """

    blocks: tuple[tuple[str, int], ...]
    actions: tuple[str, ...]
    max_choices: int

    @property
    def width(self) -> int:
        """Numbers that are seen before a choice (D)."""
        return sum(width for _, width in self.blocks)

    @property
    def slices(self) -> dict[str, slice]:
        """The place of each block in a row."""
        ends = accumulate(width for _, width in self.blocks)
        return {
            name: slice(end - width, end)
            for (name, width), end in zip(self.blocks, ends, strict=True)
        }


class Decided(NamedTuple):
    """The output of a network for B episodes of S choices each."""

    logits_BSA: Tensor
    """Before the mask: illegal actions are taken out in one place, which is not the network."""
    value_BS: Tensor
    """The expected return from here on."""


def space_of(env: RetrievalControlEnv) -> Space:
    """The space of an environment."""
    assert isinstance(env.observation_space, Dict)
    blocks = tuple((name, flatdim(part)) for name, part in env.observation_space.items())
    return Space(blocks, env.action_names, env.max_steps)


def shared_space(envs: Iterable[RetrievalControlEnv]) -> Space:
    """The one space of some environments; raises `ConfigError` if there are several."""
    first, *others = envs
    space = space_of(first)
    for env in others:
        if space_of(env) != space:
            raise ConfigError(
                f"the collections '{first.world.name}' and '{env.world.name}' show or offer other "
                "things; use the same actions and max_steps for all"
            )
    return space


def masked_logps(logits: Tensor, legal: Tensor, floor: float) -> Tensor:
    """Log-probs [..., A] of the actions in nats; -inf for those that are not legal.

    p = (1 - A * floor) * softmax + floor, over the A legal actions: in play and in the loss.
    """
    share = 1 - floor * legal.sum(dim=-1, keepdim=True)
    p = share * torch.softmax(torch.where(legal, logits, -torch.inf), dim=-1) + floor
    return torch.where(legal, p.log(), -torch.inf)


CANDIDATES = "candidates"
NAMED = {
    CANDIDATES: CANDIDATE_FEATURES,
    "list": LIST_FEATURES,
    "searches": LIST_FEATURES,
    "terms": QUERY_FEATURES,
}
"""The blocks whose numbers have names; a block may hold them several times."""
EMBEDDINGS = ("found", "query")
FARTHEST = 4.0
"""Standard deviations; a sign that is farther from the usual counts as that far."""


class Inputs(nn.Module):
    """Splits rows [B, S, D] into signs [B, S, G], and candidates [B, S, K, C] if there are any.

    `width` is G.
    """

    def __init__(self, space: Space) -> None:
        super().__init__()
        self.candidates = space.slices.get(CANDIDATES)
        # No parameters and not saved: they follow from the space.
        self.mean_D, self.spread_D = torch.zeros(space.width), torch.ones(space.width)
        self.signs: list[slice] = []
        for name, block in space.slices.items():
            if name in NAMED:
                times = (block.stop - block.start) // len(NAMED[name])
                usual = torch.tensor([*NAMED[name].values()]).repeat(times, 1)
                self.mean_D[block], self.spread_D[block] = usual.unbind(dim=1)
            if name not in (*EMBEDDINGS, CANDIDATES):
                self.signs.append(block)
        self.width = sum(block.stop - block.start for block in self.signs)
        if self.candidates is not None:
            self.width += 2 * len(CANDIDATE_FEATURES)

    def forward(self, seen_BSD: Tensor) -> tuple[Tensor, Tensor | None]:
        """The parts of rows. Of the candidates, their mean and their spread are signs as well."""
        known_BSD = ((seen_BSD - self.mean_D) / self.spread_D).clamp(-FARTHEST, FARTHEST)
        parts = [known_BSD[..., block] for block in self.signs]
        if self.candidates is None:
            return torch.cat(parts, dim=-1), None
        shape = (*seen_BSD.shape[:-1], len(SOURCES), len(CANDIDATE_FEATURES))
        candidates_BSKC = known_BSD[..., self.candidates].reshape(shape)
        mean_BSC = candidates_BSKC.mean(dim=-2)
        spread_BSC = candidates_BSKC.amax(dim=-2) - candidates_BSKC.amin(dim=-2)
        return torch.cat([*parts, mean_BSC, spread_BSC], dim=-1), candidates_BSKC


_SMALL = 0.01
"""The spread of the last layers at the start: actions are about as likely, gradients reach all."""

STRENGTH = 3.0
"""Logit of the actions of the start: with nine actions, it begins at a probability of .7."""

FARTHEST_LOGIT = 8.0
"""Bound of a learned logit: no probability reaches 0, so a policy that went wrong can come back."""


class NetworkSettings(BaseModel):
    """Settings of a network."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["linear", "mlp", "gru"] = "linear"
    """Cross-validation on training questions chose `linear`; `mlp` has a hidden layer of tanh,
    `gru` remembers the episode."""
    hidden: Annotated[int, Field(ge=1)] = 32
    """Width of `mlp` and `gru`."""
    start: tuple[str, ...] = ()
    """The actions after the first Search that it begins with; none: all are about as likely."""


class Network(nn.Module):
    """Inputs, a body, a head for the actions and one for the value."""

    def __init__(self, space: Space, settings: NetworkSettings) -> None:
        super().__init__()
        self.inputs = Inputs(space)
        width, hidden = self.inputs.width, settings.hidden
        self.body: nn.Module = nn.Identity()
        is_linear = settings.name == "linear"
        if settings.name == "mlp":
            self.body = nn.Sequential(nn.Linear(width, hidden), nn.Tanh())
        elif settings.name == "gru":
            self.body = nn.GRU(width, hidden, batch_first=True)
        made = width if is_linear else hidden
        self.actor, self.critic = _last(made, len(space.actions)), _last(made, 1)
        self.scorer: nn.Module | None = None
        if self.inputs.candidates is not None:
            # Without a bias, which would be the same for all sources.
            num_read = 2 * len(CANDIDATE_FEATURES)
            if is_linear:
                self.scorer = _last(num_read, 1, bias=False)
            else:
                first = nn.Linear(num_read, hidden)
                self.scorer = nn.Sequential(first, nn.Tanh(), _last(hidden, 1, bias=False))
            self.places = [space.actions.index(str(source)) for source in SOURCES]
        self.step = space.slices["step"]
        self.start_NA = _place_start(space, settings.start)

    def forward(self, seen_BSD: Tensor) -> Decided:
        """Logits and values: at choice s, of rows up to s, and never of later ones."""
        signs_BSG, candidates_BSKC = self.inputs(seen_BSD)
        hidden_BSH = self.body(signs_BSG)
        if isinstance(self.body, nn.GRU):
            hidden_BSH = hidden_BSH[0]
        logits_BSA = self.actor(hidden_BSH)
        if self.scorer is not None:
            beside_BSKC = candidates_BSKC - candidates_BSKC.mean(dim=-2, keepdim=True)
            both = torch.cat([candidates_BSKC, beside_BSKC], dim=-1)
            more_BSA = torch.zeros_like(logits_BSA)
            more_BSA[..., self.places] = self.scorer(both)[..., 0]
            logits_BSA = logits_BSA + more_BSA
        bounded_BSA = FARTHEST_LOGIT * torch.tanh(logits_BSA / FARTHEST_LOGIT)
        # The block `step` is one-hot.
        begun_BSA = seen_BSD[..., self.step] @ self.start_NA
        return Decided(bounded_BSA + begun_BSA, self.critic(hidden_BSH)[..., 0])


def _place_start(space: Space, names: Sequence[str]) -> Tensor:
    """Logits [N, A] of the start: each action at its step, and Terminate after the last one."""
    most = space.max_choices - 1
    if len(names) > most:
        raise ConfigError(
            f"network.start: an episode has {space.max_choices} actions and begins with one of its "
            f"own, so at most {most} can follow; got {len(names)}"
        )
    start_NA = torch.zeros((space.max_choices + 1, len(space.actions)))
    for step, name in enumerate([*names, Action.TERMINATE][:most] if names else [], 1):
        if name not in space.actions:
            raise ConfigError(
                f"network.start: there is no action {name!r}.{suggest(name, space.actions)}"
            )
        start_NA[step, space.actions.index(name)] = STRENGTH
    return start_NA


def _last(width: int, count: int, *, bias: bool = True) -> nn.Linear:
    layer = nn.Linear(width, count, bias=bias)
    nn.init.normal_(layer.weight, std=_SMALL)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer
