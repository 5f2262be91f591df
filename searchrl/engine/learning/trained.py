"""What the learner needs of a policy: a language model and a network of choices both are one.

Owns the two protocols between the learner and what it trains. `engine.model.policy` and
`engine.choosing.policy` are the policies; `packing` makes layouts with them, `checkpoint` saves
them. Shapes: N trained tokens of a micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from searchrl.core.trajectory import Trajectory, View
from searchrl.engine.model.head import TokenLogps


class BatchLayout(Protocol):
    """How the rollouts of a micro-batch go through a policy; log-probs stand in the same order."""

    @property
    def num_computed(self) -> int:
        """Tokens that are computed, padding included."""

    def found(self) -> list[tuple[str, list[Any]]]:
        """What each log-prob is computed from: columns over the trained tokens, by name."""

    def expected(
        self, ledgers: Sequence[Trajectory], places: Sequence[Sequence[int]]
    ) -> list[list[Any]]:
        """The same columns, from the ledgers; `places` are those of the trained tokens of each."""


LayOut = Callable[..., Any]
"""`lay_out(rollouts, device, is_packed=…)` returns a `BatchLayout`."""


class TrainedPolicy(Protocol):
    """A policy that a learner updates. `version` counts the updates."""

    version: int

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The trainable parameters, in a fixed order."""

    @property
    def device(self) -> torch.device:
        """Where it computes."""

    @property
    def dtype(self) -> torch.dtype:
        """What it computes in."""

    @property
    def source(self) -> str:
        """Where its weights came from."""

    @property
    def num_parameters(self) -> tuple[int, int]:
        """(trainable, total) parameter counts."""

    def tell(self, ids: Sequence[int]) -> str:
        """Ids in words, for people."""

    def named_parameters(self) -> Iterable[tuple[str, nn.Parameter]]:
        """All parameters by name."""

    def named_modules(self) -> Iterable[tuple[str, nn.Module]]:
        """All modules by name."""

    def weights_stamp(self) -> tuple[int, ...]:
        """Changes whenever a trainable weight changes."""

    def find_packing_fault(self) -> str | None:
        """Why rollouts have to be padded, or None if they can share a prompt."""

    def lay_out(self, rollouts: Sequence[Any], device: torch.device, *, is_packed: bool) -> Any:
        """A layout of rollouts."""

    def values(self, episodes: Sequence[Sequence[View]]) -> list[tuple[float, ...]] | None:
        """What a critic expects at every choice, from what was seen; None: there is none."""

    def evaluating(self) -> AbstractContextManager[None]:
        """Dropout off, and back to what was."""

    def updating(self) -> AbstractContextManager[None]:
        """How it is while an update is computed: without dropout."""

    def attending(self) -> AbstractContextManager[None]:
        """Packed rows can be computed in it."""

    def keep_reference(self) -> None:
        """Keep the current weights as the reference."""

    def logps(
        self,
        layout: Any,
        *,
        temperature: float = 1.0,
        with_entropy: bool = False,
        with_best: bool = False,
        reference: bool = False,
        entropy_gradient: bool = False,
    ) -> TokenLogps:
        """Log-probs of the trained tokens of a layout."""

    def distributions(
        self, layout: Any, *, temperature: float = 1.0, reference: bool = False
    ) -> Tensor:
        """Log-probs of everything that could have been chosen, where `logps` gives one."""

    def save(self, folder: Path) -> None:
        """Write the policy into a folder."""

    def load(self, folder: Path, saved: Mapping[str, Tensor]) -> None:
        """Take over the weights that were saved in a folder."""
