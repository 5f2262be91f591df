"""An excerpt of a rollout: some neighbouring tokens, who wrote them, and what is known of each.

Owns the picture that an error shows of the tokens around a place. It is data and plain text;
colours are the terminal's. Whoever finds a fault in tokens makes one. Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from searchrl.core.trajectory import Author, Trajectory

AROUND = 5
"""Tokens shown on either side of a place."""

COLUMNS = ("place", "token", "author", "trained", "sampler", "trainer")


class ShownToken(NamedTuple):
    """One token of an excerpt. Unknown or missing values are None."""

    place: int
    """Its number in the segment, from 0."""
    id: int
    text: str
    author: str
    is_trained: bool | None
    sampler_logp: float | None
    trainer_logp: float | None
    is_fault: bool

    @property
    def cells(self) -> tuple[str, ...]:
        """One text for each of `COLUMNS`; white space and control characters are spelt out."""
        trained = {None: "—", True: "yes", False: "no"}[self.is_trained]
        logps = (
            "—" if logp is None else f"{logp:.4f}"
            for logp in (self.sampler_logp, self.trainer_logp)
        )
        return (str(self.place), f"{self.id} {visible(self.text)}", self.author, trained, *logps)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Neighbouring tokens of one segment of a rollout, which has `num_tokens` of them."""

    rollout_id: str
    num_tokens: int
    tokens: tuple[ShownToken, ...]

    @property
    def title(self) -> str:
        """The rollout and the places of its tokens."""
        first, last = self.tokens[0].place, self.tokens[-1].place
        return f"rollout {visible(self.rollout_id)}, tokens {first} to {last} of {self.num_tokens}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        tokens = [token._asdict() for token in self.tokens]
        return {"rollout_id": self.rollout_id, "num_tokens": self.num_tokens, "tokens": tokens}

    def __str__(self) -> str:
        rows = [COLUMNS, *(token.cells for token in self.tokens)]
        marks = ["  ", *("> " if token.is_fault else "  " for token in self.tokens)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
        lines = [
            mark + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            for mark, row in zip(marks, rows, strict=True)
        ]
        return "\n".join([self.title, *(line.rstrip() for line in lines)])


def visible(text: str) -> str:
    """A text on one line, with unprintable characters spelt out.

    >>> visible("</search>\\n\\x1b[31m")
    '</search>\\\\n\\\\x1b[31m'
    """
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in text
    )


def take_excerpt(
    trajectory: Trajectory,
    place: int,
    decode: Callable[[Sequence[int]], str],
    *,
    segment: int = 0,
    is_trained: Sequence[bool] | None = None,
    trainer_logps: Mapping[int, float] | None = None,
) -> Excerpt:
    """The tokens of a segment around a place; `place` itself is marked.

    Args:
        trajectory: the rollout.
        place: the number of a token; one beyond the end marks the last token.
        decode: ids to text.
        segment: its number; it has at least one token.
        is_trained: True for each trained token; by default those that the model wrote.
        trainer_logps: the trainer's log-probs by place, as far as they are known.
    """
    row = trajectory.segments[segment]
    place = min(max(place, 0), len(row) - 1)
    shown = range(max(0, place - AROUND), min(len(row), place + AROUND + 1))
    mask = is_trained if is_trained is not None else [one is Author.MODEL for one in row.authors]
    logps = trainer_logps or {}
    tokens = tuple(
        ShownToken(
            place=at,
            id=row.ids[at],
            text=decode([row.ids[at]]),
            author=row.authors[at].name.lower(),
            is_trained=mask[at] if at < len(mask) else None,
            sampler_logp=row.logps[at],
            trainer_logp=logps.get(at),
            is_fault=at == place,
        )
        for at in shown
    )
    return Excerpt(trajectory.rollout_id, len(row), tokens)
