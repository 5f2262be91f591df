"""What a network reads of an observation: signs of the lists, and candidates.

Owns the split of a row of numbers into these parts, and that signs are read as how far they are
from what is usual (`typical`). The embeddings of texts are left out: they overfit on the few
hundred training questions that collections have. Shapes: B episodes, S choices, D numbers seen, G
signs, K sources, C features of a candidate.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from searchrl_control.environment.candidates import CANDIDATE_FEATURES, SOURCES
from searchrl_control.environment.features import LIST_FEATURES, QUERY_FEATURES
from searchrl_control.policies.space import Space
from searchrl_control.policies.typical import FARTHEST, TYPICAL

CANDIDATES = "candidates"
NAMED = {
    CANDIDATES: CANDIDATE_FEATURES,
    "list": LIST_FEATURES,
    "searches": LIST_FEATURES,
    "terms": QUERY_FEATURES,
}
"""The blocks whose numbers have names; a block may hold them several times."""
EMBEDDINGS = ("found", "query")


class Inputs(nn.Module):
    """Splits rows [B, S, D] into signs [B, S, G], and candidates [B, S, K, C] if there are any.

    `width` is G.
    """

    mean_D: Tensor
    spread_D: Tensor

    def __init__(self, space: Space) -> None:
        super().__init__()
        self.candidates = space.find_block(CANDIDATES)
        mean_D, spread_D = torch.zeros(space.width), torch.ones(space.width)
        self.signs: list[slice] = []
        for name, width in space.blocks:
            block = space.find_block(name)
            assert block is not None
            if name in NAMED:
                usual = torch.tensor([TYPICAL[sign] for sign in NAMED[name]])
                usual = usual.repeat(width // len(NAMED[name]), 1)
                mean_D[block], spread_D[block] = usual.unbind(dim=1)
            if name not in (*EMBEDDINGS, CANDIDATES):
                self.signs.append(block)
        # Not saved: they follow from the space.
        self.register_buffer("mean_D", mean_D, persistent=False)
        self.register_buffer("spread_D", spread_D, persistent=False)
        self.width = sum(block.stop - block.start for block in self.signs)
        if self.candidates is not None:
            self.width += 2 * len(CANDIDATE_FEATURES)

    def forward(self, seen_BSD: Tensor) -> tuple[Tensor, Tensor | None]:
        """The parts of rows. Of the candidates, their mean and their spread are signs as well."""
        known_BSD = (seen_BSD - self.mean_D) / self.spread_D
        known_BSD = known_BSD.clamp(-FARTHEST, FARTHEST)
        parts = [known_BSD[..., block] for block in self.signs]
        if self.candidates is None:
            return torch.cat(parts, dim=-1), None
        shape = (*seen_BSD.shape[:-1], len(SOURCES), len(CANDIDATE_FEATURES))
        candidates_BSKC = known_BSD[..., self.candidates].reshape(shape)
        mean_BSC = candidates_BSKC.mean(dim=-2)
        spread_BSC = candidates_BSKC.amax(dim=-2) - candidates_BSKC.amin(dim=-2)
        return torch.cat([*parts, mean_BSC, spread_BSC], dim=-1), candidates_BSKC
