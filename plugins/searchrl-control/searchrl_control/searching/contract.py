"""What a reformulator is shown and what it gives back.

A reformulator says how a search is narrowed and broadened; it searches nothing itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from searchrl.contracts import Passage


@dataclass(frozen=True, slots=True)
class Asked:
    """A search and what it found.

    `weights` are its index terms as they were searched. `passages` are the first of the list that
    the agent sees, best first; their `score` is that of the list.
    """

    question: str
    weights: Mapping[str, float]
    passages: tuple[Passage, ...] = ()


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The search to make instead.

    `weights`, if there are any, are index terms and are searched as they are. Otherwise `text` is
    split into terms. `text` is what people read in any case.
    """

    text: str
    weights: Mapping[str, float] = field(default_factory=dict)


class Reformulator(Protocol):
    """Narrows and broadens searches. Called by several threads at once."""

    def narrow(self, asked: Asked) -> Rewrite:
        """Return a search for less: nearer to what was found. Raises on failure."""

    def broaden(self, asked: Asked) -> Rewrite:
        """Return a search for more: other words for the same. Raises on failure."""


def as_shown(passage: Passage) -> str:
    """A passage as a model reads it: its title, if it has one, and its text."""
    return f"{passage.title}. {passage.text}" if passage.title else passage.text
