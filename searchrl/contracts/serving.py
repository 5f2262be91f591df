"""Contracts of a wrapper that serves the policy to somebody who acts: it speaks in tokens.

An environment that returns `Rendered` text, at reset and at each step, has made its ids itself; a
step is then given a `SampledTurn`. Such a wrapper has a method `serve(serving)`, called before
`reset`; with None nobody plays. It may have `remedies`: for each reason why it begins another
segment, a sentence that says what to change in whoever acts.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any


class Rendered(str):
    """Text for the policy with its token ids; the policy writes next.

    Attributes:
        ids: a prompt where a segment begins, else the tokens behind the last one there.
        segment: number of the segment that goes on; the next number begins one.
        stops: strings that end the turn, besides the policy's own end.
        max_tokens: limit of the turn; None: that of the run.
        reason: a word for why a segment begins, `first` for the first; empty: it goes on.
    """

    ids: tuple[int, ...]
    segment: int
    stops: tuple[str, ...]
    max_tokens: int | None
    reason: str

    def __new__(
        cls,
        text: str,
        ids: tuple[int, ...],
        segment: int = 0,
        stops: tuple[str, ...] = (),
        max_tokens: int | None = None,
        reason: str = "",
    ) -> Rendered:
        """See the class."""
        made = super().__new__(cls, text)
        made.ids, made.segment, made.stops, made.max_tokens = ids, segment, stops, max_tokens
        made.reason = reason
        return made


class SampledTurn(str):
    """A turn of the policy without its stop string. `reason` is a `TurnStop`.

    Attributes:
        ids: every sampled id, those that ended the turn included.
        logps: log-prob of each, at the sampling temperature over the full vocabulary.
        reason: `eos`, `stop_string` or `max_tokens`.
    """

    ids: tuple[int, ...]
    logps: tuple[float, ...]
    reason: str

    def __new__(
        cls, text: str, ids: tuple[int, ...], logps: tuple[float, ...], reason: str
    ) -> SampledTurn:
        """See the class."""
        made = super().__new__(cls, text)
        made.ids, made.logps, made.reason = ids, logps, reason
        return made


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
