"""Contracts of a wrapper that compacts the text that the policy reads; it speaks in text.

Such a wrapper has a method `measure(room)`, called before every `step`, and may have `stops`:
strings that end a turn besides those of the protocol. A step that is not the last may put a
`Context` into `info["context"]`: the policy then reads that, with the observation behind it, in
place of all before. A turn that only compacts has the action `COMPACT`; the protocol is not asked
about it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Room:
    """The room that is left before a step."""

    num_tokens: int
    """Tokens that the policy reads now, the turn that `step` is given included."""
    max_tokens: int
    """The most that it can read."""
    max_turn_tokens: int
    """The most that it writes in a turn; 0: turns have no limit of their own."""
    count: Callable[[str], int]
    """Tokens of a text."""


@dataclass(frozen=True, slots=True)
class Context:
    """Text that the policy reads from here on: another segment of the rollout begins with it."""

    prompt: str
    """The user's message, as `reset` returns one."""
    kept: tuple[int | str, ...] = ()
    """Parts behind it: numbers of turns of the episode, whose tokens are repeated as they
    were sampled, and texts of the environment."""
    reason: str = "compacted"
    """A word for why the segment begins."""
