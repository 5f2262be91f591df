"""What a network reads of an observation: signs of the lists, candidates, and embeddings if wanted.

Owns the split of a row of numbers into these parts, and that signs are read as how far they are
from what is usual (`typical`). Works on the space of `retrieval-control` and on any other: blocks
that it does not know are read as they are. Shapes: B episodes, S choices, D
numbers seen, G signs, K sources, C features of a candidate, E numbers of an embedding's code, A
actions.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from searchrl_control.environment.candidates import CANDIDATE_FEATURES
from searchrl_control.environment.features import LIST_FEATURES, QUERY_FEATURES
from searchrl_control.environment.heads import SOURCES
from searchrl_control.policies.space import Space
from searchrl_control.policies.typical import FARTHEST, means_and_spreads

CANDIDATES = "candidates"
NAMED = {
    CANDIDATES: CANDIDATE_FEATURES,
    "list": LIST_FEATURES,
    "searches": LIST_FEATURES,
    "terms": QUERY_FEATURES,
}
"""The blocks whose numbers have names; a block may hold them several times."""
EMBEDDINGS = ("found", "query")
"""Blocks that are frozen embeddings of texts."""


class Read(NamedTuple):
    """A row in parts: signs [B, S, G], and candidates [B, S, K, C] or None."""

    signs_BSG: Tensor
    candidates_BSKC: Tensor | None


class Inputs(nn.Module):
    """Splits rows; encodes the embeddings if `embedding` is above 0, else leaves them out.

    Args:
        space: of the environment.
        embedding: numbers into which each embedding is encoded by a trained layer.
    """

    mean_D: Tensor
    spread_D: Tensor

    def __init__(self, space: Space, embedding: int) -> None:
        super().__init__()
        names = [name for name, _ in space.blocks]
        self.candidates = space.find_block(CANDIDATES) if _has_sources(space) else None
        self.embeddings = [
            block for name in EMBEDDINGS if (block := space.find_block(name)) is not None
        ]
        left_out = {*EMBEDDINGS, *([CANDIDATES] if self.candidates else [])}
        self.signs = [
            block
            for name in names
            if name not in left_out and (block := space.find_block(name)) is not None
        ]
        # A space of embeddings alone would leave nothing to read.
        if not self.signs and not embedding:
            self.signs, self.embeddings = self.embeddings, []
        encoded = self.embeddings if embedding else []
        self.encoders = nn.ModuleList(
            nn.Linear(block.stop - block.start, embedding) for block in encoded
        )
        mean_D, spread_D = _usual(space)
        # Not saved: they follow from the space.
        self.register_buffer("mean_D", mean_D, persistent=False)
        self.register_buffer("spread_D", spread_D, persistent=False)
        self.width = sum(block.stop - block.start for block in self.signs)
        self.width += embedding * len(self.encoders)
        if self.candidates is not None:
            self.width += 2 * len(CANDIDATE_FEATURES)

    def forward(self, seen_BSD: Tensor) -> Read:
        """The parts of rows. Of the candidates, their mean and their spread are signs as well."""
        known_BSD = (seen_BSD - self.mean_D) / self.spread_D
        known_BSD = known_BSD.clamp(-FARTHEST, FARTHEST)
        parts = [known_BSD[..., block] for block in self.signs]
        for encoder, block in zip(self.encoders, self.embeddings, strict=False):
            parts.append(torch.tanh(encoder(seen_BSD[..., block])))
        if self.candidates is None:
            return Read(torch.cat(parts, dim=-1), None)
        shape = (*seen_BSD.shape[:-1], len(SOURCES), len(CANDIDATE_FEATURES))
        candidates_BSKC = known_BSD[..., self.candidates].reshape(shape)
        mean_BSC = candidates_BSKC.mean(dim=-2)
        spread_BSC = candidates_BSKC.amax(dim=-2) - candidates_BSKC.amin(dim=-2)
        return Read(torch.cat([*parts, mean_BSC, spread_BSC], dim=-1), candidates_BSKC)


def _usual(space: Space) -> tuple[Tensor, Tensor]:
    """What is usual of every number of a row [D]: its mean and its spread; 0 and 1 if unknown."""
    mean_D, spread_D = torch.zeros(space.width), torch.ones(space.width)
    for name, width in space.blocks:
        block, names = space.find_block(name), NAMED.get(name)
        if block is not None and names is not None and width % len(names) == 0:
            means, spreads = means_and_spreads(names)
            mean_D[block] = torch.tensor(means).repeat(width // len(names))
            spread_D[block] = torch.tensor(spreads).repeat(width // len(names))
    return mean_D, spread_D


def _has_sources(space: Space) -> bool:
    block = space.find_block(CANDIDATES)
    width = len(SOURCES) * len(CANDIDATE_FEATURES)
    named = all(str(source) in space.actions for source in SOURCES)
    return named and block is not None and block.stop - block.start == width
