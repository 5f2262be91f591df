"""The layout of recorded choices: what was seen before each, and which of them are trained.

Owns how the views of a ledger become tensors, the same for who draws and who learns. Shapes: B
episodes, S choices, D numbers seen, A actions, N trained choices of a micro-batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import torch
from torch import Tensor

from searchrl.core.trajectory import Trajectory, View
from searchrl.envs.choices import read_row


class SeenRow(Protocol):
    """What a layout needs to know of an episode."""

    @property
    def ids(self) -> list[int]:
        """The actions that were chosen, by number."""

    @property
    def mask(self) -> list[bool]:
        """True at the choices whose log-probs are wanted."""

    @property
    def views(self) -> tuple[View, ...]:
        """What was seen before each choice."""


@dataclass(frozen=True, slots=True)
class ChoiceLayout:
    """A forward pass. Choice `row_N` (of B * S, episode by episode) was `target_N`."""

    seen_BSD: Tensor
    legal_BSA: Tensor
    row_N: Tensor
    target_N: Tensor

    @property
    def num_computed(self) -> int:
        """Choices that are computed, filled up ones included."""
        return self.seen_BSD.shape[0] * self.seen_BSD.shape[1]

    def found(self) -> list[tuple[str, list[Any]]]:
        """What each log-prob is computed from: columns over the trained choices, by name."""
        seen = self.seen_BSD.flatten(0, 1)[self.row_N].float().cpu().numpy().astype("<f4")
        legal = self.legal_BSA.flatten(0, 1)[self.row_N].tolist()
        return [
            ("action", self.target_N.tolist()),
            ("place in its episode", (self.row_N % self.seen_BSD.shape[1]).tolist()),
            ("view", [row.tobytes() for row in seen]),
            ("mask of legal actions", [tuple(row) for row in legal]),
        ]

    def expected(
        self, ledgers: Sequence[Trajectory], places: Sequence[Sequence[int]]
    ) -> list[list[Any]]:
        """The same columns, from the ledger."""
        pairs = [(ledger, n) for ledger, of in zip(ledgers, places, strict=True) for n in of]
        return [
            [ledger.ids[n] for ledger, n in pairs],
            list(chain.from_iterable(places)),
            [ledger.views[n].values for ledger, n in pairs],
            [ledger.views[n].legal for ledger, n in pairs],
        ]


def lay_out(
    rows: Sequence[SeenRow], num_choices: int, device: torch.device, dtype: torch.dtype
) -> ChoiceLayout:
    """The layout of episodes of at most `num_choices` choices, one row each."""
    seen_BSD, legal_BSA = stack_views([row.views for row in rows], num_choices)
    row_N, target_N = [], []
    for number, row in enumerate(rows):
        wanted = [place for place, is_trained in enumerate(row.mask) if is_trained]
        row_N += [number * num_choices + place for place in wanted]
        target_N += [row.ids[place] for place in wanted]
    return ChoiceLayout(
        seen_BSD.to(device, dtype),
        legal_BSA.to(device),
        torch.tensor(row_N, dtype=torch.long, device=device),
        torch.tensor(target_N, dtype=torch.long, device=device),
    )


def stack_views(episodes: Sequence[Sequence[View]], num_choices: int) -> tuple[Tensor, Tensor]:
    """What was seen [B, S, D] and was legal [B, S, A]: zeros, and all legal, after the last view.

    Every episode has at least one view, and at most `num_choices`.
    """
    first = episodes[0][0]
    width, num_actions = len(first.values) // 4, len(first.legal)
    seen_BSD = torch.zeros((len(episodes), num_choices, width), dtype=torch.float32)
    legal_BSA = torch.ones((len(episodes), num_choices, num_actions), dtype=torch.bool)
    for number, views in enumerate(episodes):
        for place, view in enumerate(views):
            seen_BSD[number, place] = torch.from_numpy(read_row(view).copy())
            legal_BSA[number, place] = torch.tensor(view.legal)
    return seen_BSD, legal_BSA
