"""An open sequence: the state of one dialogue inside a generator.

Owns the ids and what was asked and sampled since the last turn. It computes nothing and knows no
tags: the driver's `Dialogue` has the episode. Callers: the generators that sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from searchrl.core.trajectory import TurnStop
from searchrl.engine.sampling.generator import FinishedTurn, Handle


@dataclass(slots=True, eq=False)
class OpenSequence:
    """All ids so far (`ids`), and the turn that is being sampled (`new_ids`, `new_logps`)."""

    handle: Handle
    ids: list[int]
    rng_key: int
    stops: tuple[str, ...] = ()
    max_tokens: int = 0
    is_asked: bool = False
    """Whether a turn was asked for and has not ended."""
    new_ids: list[int] = field(default_factory=list)
    new_logps: list[float] = field(default_factory=list)

    def ask(self, append_ids: Sequence[int], stops: Sequence[str], max_tokens: int) -> None:
        """Begin a turn after an observation; see `Generator.submit`."""
        self.ids.extend(append_ids)
        self.stops, self.max_tokens = tuple(stops), max_tokens
        self.new_ids, self.new_logps = [], []
        self.is_asked = True

    def append(self, token: int, logp: float) -> None:
        """Take in a sampled token."""
        self.ids.append(token)
        self.new_ids.append(token)
        self.new_logps.append(logp)

    def finish(self, reason: TurnStop, version: int) -> FinishedTurn:
        """End the turn."""
        self.is_asked = False
        return FinishedTurn(
            self.handle, tuple(self.new_ids), tuple(self.new_logps), reason, version
        )
