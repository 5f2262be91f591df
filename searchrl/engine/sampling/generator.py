"""The generation contract: token-level, multi-turn, non-blocking. No torch.

A generator knows no tags, rewards or tasks: it gets ids and stop strings and gives back ids and
log-probs.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NewType, Protocol

from searchrl.contracts import Expert
from searchrl.core.trajectory import TurnStop
from searchrl.errors import SearchRLError

Handle = NewType("Handle", int)
"""Name of an open dialogue inside a generator."""

Experts = Sequence[Expert] | None
"""The env's scripted policy of each dialogue."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Settings for drawing tokens. `temperature` 0 is greedy; log-probs are then those at 1.

    `top_k` (0: all), `top_p` and `min_p` cut what can be drawn, not the log-probs: those are of
    the full vocabulary. They are for evaluation; in training they bias the ratio.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    @property
    def is_truncated(self) -> bool:
        """True if some tokens can never be drawn."""
        return self.temperature > 0 and (self.top_k > 0 or self.top_p < 1 or self.min_p > 0)


@dataclass(frozen=True, slots=True)
class FinishedTurn:
    """One finished model turn: exactly the sampled ids and the log-prob of each.

    `logps` is None for a scripted turn. `error` says why there is no turn: this dialogue ends, and
    the others go on.
    """

    handle: Handle
    ids: tuple[int, ...]
    logps: tuple[float, ...] | None
    reason: TurnStop
    version: int
    error: SearchRLError | None = None


@dataclass(slots=True, eq=False)
class OpenSequence:
    """All ids of a dialogue (`ids`), and the turn being sampled (`new_ids`, `new_logps`)."""

    handle: Handle
    ids: list[int]
    rng_key: int
    stops: tuple[str, ...] = ()
    max_tokens: int = 0
    is_asked: bool = False
    """True while a turn was asked for and has not ended."""
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


class Generator(Protocol):
    """Opens dialogues, continues them, returns finished turns."""

    def open(
        self, prompt_ids: Sequence[int], n: int, rng_keys: Sequence[int], experts: Experts = None
    ) -> list[Handle]:
        """Open n dialogues on one prompt.

        Args:
            prompt_ids: rendered prompt, shared by all n.
            n: dialogues to open (the group).
            rng_keys: one 64-bit key per dialogue, on which its draws depend alone.
            experts: the env's scripted policy per dialogue; only the scripted generator reads it.
        """

    def submit(
        self, handle: Handle, append_ids: Sequence[int], stops: Sequence[str], max_tokens: int
    ) -> None:
        """Append observation ids (or none) and ask for the next turn."""

    def poll(self) -> list[FinishedTurn]:
        """Return finished turns; empty only when none can be until the next submit or close.

        A generator may hold fewer dialogues than are open; the others wait until one is closed.
        """

    def close(self, handle: Handle) -> None:
        """End a dialogue and free its memory."""

    def sync(self, policy: Any) -> int:
        """Take the policy's current weights; returns the new version."""


class Dialogues:
    """The open dialogues of a generator, as `OpenSequence`s; a subclass has `poll` and `sync`."""

    def __init__(self) -> None:
        self._sequences: dict[Handle, OpenSequence] = {}
        self._numbers = itertools.count()

    def open(
        self, prompt_ids: Sequence[int], n: int, rng_keys: Sequence[int], experts: Experts = None
    ) -> list[Handle]:
        """See `Generator.open`."""
        handles = [Handle(next(self._numbers)) for _ in range(n)]
        for handle, key in zip(handles, rng_keys, strict=True):
            self._sequences[handle] = OpenSequence(handle, list(prompt_ids), key)
        return handles

    def submit(
        self, handle: Handle, append_ids: Sequence[int], stops: Sequence[str], max_tokens: int
    ) -> None:
        """See `Generator.submit`."""
        self._sequences[handle].ask(append_ids, stops, max_tokens)

    def close(self, handle: Handle) -> None:
        """See `Generator.close`."""
        self._sequences.pop(handle, None)


def mix_key(*parts: int) -> int:
    """Derive a 64-bit RNG key from integers such as (seed, step, example, sample).

    SplitMix64's finaliser over the parts, in order (Steele, Lea & Flood 2014, OOPSLA).
    """
    mask, golden = (1 << 64) - 1, 0x9E3779B97F4A7C15
    state = golden
    for part in parts:
        z = ((state ^ part) + golden) & mask
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        state = z ^ (z >> 31)
    return state
