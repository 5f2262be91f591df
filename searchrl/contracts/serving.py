"""Contracts of a wrapper that serves the policy to somebody who acts: it speaks in tokens.

Such a wrapper has a method `serve(serving)`, called before `reset`; with None nobody plays. Its
`reset` and `step` return a `Rendered` in place of text, whose ids it made itself (the last step: a
text), and a step is given a `SampledTurn`. It may have `remedies`: for each reason why it begins
another segment, a sentence that says what to change in whoever acts.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Rendered:
    """Token ids that the policy reads next; it then writes."""

    text: str
    """The ids as text, for the record."""
    ids: tuple[int, ...]
    """A prompt where a segment begins, else the tokens behind the last one there."""
    segment: int = 0
    """Number of the segment that goes on; the next number begins one."""
    stops: tuple[str, ...] = ()
    """Strings that end the turn, besides the policy's own end."""
    max_tokens: int | None = None
    """Limit of the turn; None: that of the run."""
    reason: str = ""
    """A word for why another segment begins; empty: it goes on."""


@dataclass(frozen=True, slots=True)
class SampledTurn:
    """A turn of the policy."""

    text: str
    """The turn without its stop string."""
    ids: tuple[int, ...]
    """Every sampled id, those that ended the turn included."""
    logps: tuple[float, ...]
    """Log-prob of each, at the sampling temperature over the full vocabulary."""
    reason: str
    """`eos`, `stop_string` or `max_tokens`."""


@dataclass(frozen=True, slots=True)
class Serving:
    """The policy and the limits of a rollout, for a wrapper that serves the policy."""

    rollout_id: str
    """The name of the rollout in the record."""
    codec: Any
    """The policy's `Renderer`."""
    temperature: float
    """0: greedy, in an evaluation."""
    thinking: bool
    """Default for chat templates."""
    max_total_tokens: int
    """Limit of one segment."""
    timeout_s: float | None
    """Limit of a reset or step."""
    over: Future[None]
    """Done when the rollout is over, also if a step is still under way."""
