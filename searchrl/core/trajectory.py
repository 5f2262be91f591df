"""The record of tokens: which token, written by whom, sampled with which log-probability.

Owns the append-only columns that travel from the sampler to the trainer. What was sampled is
stored verbatim; text is derived from ids and never the other way round. It does not know tags,
rewards or tensors. The rollout driver appends, the packer reads. Standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from hashlib import blake2b
from itertools import chain
from typing import NamedTuple


class Author(IntEnum):
    """Author of a token. Only MODEL tokens are ever trained."""

    PROMPT = 0
    """The rendered prompt, the assistant prefix included."""
    MODEL = 1
    """Sampled from the policy (or written by a demonstrator)."""
    ENV = 2
    """An observation."""


class Origin(StrEnum):
    """Origin of a trajectory's model tokens."""

    SAMPLED = "sampled"
    DEMONSTRATION = "demonstration"
    """A trajectory whose sampler log-probs are absent, never NaN or 0."""
    REPLAY = "replay"


class TurnStop(StrEnum):
    """Why a model turn ended."""

    STOP_STRING = "stop_string"
    EOS = "eos"
    MAX_TOKENS = "max_tokens"


def is_finite(logp: float | None) -> bool:
    """Return True if a ratio can be taken of this log-prob."""
    return logp is not None and math.isfinite(logp)


class TokenStep(NamedTuple):
    """One token of a trajectory: a row of the record, for readers and examples."""

    id: int
    author: Author
    sampler_logp: float | None
    turn: int
    policy_version: int


@dataclass(frozen=True, slots=True)
class Turn:
    """One model turn: the sampled ids are `[start, stop)` of its segment.

    `text_behind` is the last token's text beyond the stop string: in the ids, but not parsed.
    """

    index: int
    start: int
    stop: int
    reason: TurnStop
    text_behind: str = ""
    segment: int = 0
    """Number of the segment in which it stands."""


@dataclass(slots=True)
class Segment:
    """A row of tokens that the model saw at once, as columns. `reason` says why it begins.

    A later segment may begin with tokens that an earlier one holds: they are part of its prompt,
    and so a sampled token is trained once, where it was sampled.
    """

    reason: str = "first"
    ids: list[int] = field(default_factory=list)
    authors: list[Author] = field(default_factory=list)
    logps: list[float | None] = field(default_factory=list)
    """Sampler log-prob; None where the model did not sample, and in a demonstration."""
    turns: list[int] = field(default_factory=list)
    """Turn index per token; −1 in the prompt."""
    versions: list[int] = field(default_factory=list)
    """Policy version per token; −1 where the model did not sample."""

    def extend(
        self,
        ids: Sequence[int],
        author: Author,
        logps: Sequence[float | None] | None = None,
        turn: int = -1,
        version: int = -1,
    ) -> None:
        """Append tokens of one author and turn."""
        n = len(ids)
        self.ids.extend(ids)
        self.authors.extend([author] * n)
        self.logps.extend([None] * n if logps is None else logps)
        self.turns.extend([turn] * n)
        self.versions.extend([version] * n)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def prompt(self) -> list[int]:
        """Ids before the first model turn."""
        return self.ids[: self.authors.count(Author.PROMPT)]

    @property
    def trained(self) -> list[bool]:
        """True for tokens that a loss may use: the model's with a finite log-prob.

        All of a demonstration's: its author was certain of each.
        """
        return [
            author is Author.MODEL and (logp is None or math.isfinite(logp))
            for author, logp in zip(self.authors, self.logps, strict=True)
        ]


@dataclass(slots=True)
class Trajectory:
    """Append-only record of one rollout: segments of tokens, and the turns that stand in them.

    `group_id` is unique per prompt instance, never an index. `task_id` and `env` name the task.
    `generated_text` is the decoded model and environment text after the prompt, for reading only.
    Most rollouts have one segment. An agent's may have several: it forks, or compacts its context.
    The columns `ids`, `authors`, … hold the tokens of all segments, one behind the other.
    """

    rollout_id: str
    group_id: str
    env: str = ""
    task_id: str = ""
    origin: Origin = Origin.SAMPLED
    generated_text: str = ""
    segments: list[Segment] = field(default_factory=lambda: [Segment()], repr=False)
    turns: list[Turn] = field(default_factory=list, repr=False)
    """Turns in the order in which they were asked for."""
    current: int = 0
    """Number of the segment to which tokens are appended."""
    parent: str = ""
    """The rollout that it continues behind its first `num_kept` turns; "": none.

    Their tokens are part of its prompt, and so they are trained once, where they were sampled. Its
    own `turns` begin behind them.
    """
    num_kept: int = 0
    num_kept_tokens: int = 0
    """Tokens that the model wrote in the kept turns."""

    def append_prompt(self, ids: Sequence[int]) -> None:
        """Append the rendered prompt (once in a segment, first).

        Raises:
            ValueError: if tokens were appended before; a prompt is never re-rendered.
        """
        if self.segments[self.current]:
            raise ValueError("the prompt is appended once, before any other token")
        self.segments[self.current].extend(ids, Author.PROMPT)

    def begin_segment(self, reason: str) -> None:
        """Begin another segment, which has a prompt of its own."""
        self.segments.append(Segment(reason))
        self.current = len(self.segments) - 1

    def append_model(
        self,
        ids: Sequence[int],
        logps: Sequence[float] | None,
        *,
        version: int,
        reason: TurnStop,
        text_behind: str = "",
    ) -> Turn:
        """Append one model turn: ids verbatim and the sampler's log-prob of each.

        Args:
            ids: sampled token ids, in order.
            logps: log-probabilities at the sampling temperature over the full vocabulary; None
                for a demonstration.
            version: policy version the tokens were sampled from.
            reason: why the turn ended.
            text_behind: text behind the stop string inside the last token.

        Raises:
            ValueError: if lengths differ, or log-probs are given for a demonstration or missing
                for a sampled turn or token.
        """
        if (logps is None) != (self.origin is Origin.DEMONSTRATION):
            has = "needs" if logps is None else "has no"
            raise ValueError(f"a {self.origin} trajectory {has} sampler log-probs")
        if logps is not None and len(logps) != len(ids):
            raise ValueError(f"{len(ids)} ids but {len(logps)} log-probs")
        if logps is not None and None in logps:
            raise ValueError("a token was sampled without a log-prob")
        segment = self.segments[self.current]
        start, stop = len(segment), len(segment) + len(ids)
        turn = Turn(len(self.turns), start, stop, reason, text_behind, self.current)
        segment.extend(ids, Author.MODEL, logps, turn.index, version)
        self.turns.append(turn)
        return turn

    def append_env(self, ids: Sequence[int]) -> None:
        """Append an observation behind the last model turn of the segment."""
        last = [turn.index for turn in self.turns if turn.segment == self.current][-1:]
        if not last:
            raise ValueError("an observation follows a model turn")
        self.segments[self.current].extend(ids, Author.ENV, turn=last[0])

    def __len__(self) -> int:
        return sum(map(len, self.segments))

    def __iter__(self) -> Iterator[TokenStep]:
        columns = (self.ids, self.authors, self.sampler_logps, self.turns_of, self.policy_versions)
        return map(TokenStep, *columns)

    @property
    def ids(self) -> tuple[int, ...]:
        """All token ids, prompt first."""
        return tuple(chain(*(one.ids for one in self.segments)))

    @property
    def authors(self) -> tuple[Author, ...]:
        """Author per token."""
        return tuple(chain(*(one.authors for one in self.segments)))

    @property
    def sampler_logps(self) -> tuple[float | None, ...]:
        """Sampler log-prob per token; None where the model did not sample."""
        return tuple(chain(*(one.logps for one in self.segments)))

    @property
    def turns_of(self) -> tuple[int, ...]:
        """Turn index per token; −1 in a prompt."""
        return tuple(chain(*(one.turns for one in self.segments)))

    @property
    def policy_versions(self) -> tuple[int, ...]:
        """Policy version per token; −1 where the model did not sample."""
        return tuple(chain(*(one.versions for one in self.segments)))

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens before the first model turn."""
        return len(self.segments[0].prompt)

    @property
    def num_model_tokens(self) -> int:
        """Tokens the model wrote: the only ones a loss may touch."""
        return sum(turn.stop - turn.start for turn in self.turns)

    def by_segment(self) -> Iterator[tuple[Segment, list[Turn]]]:
        """Yield each segment with the turns that stand in it, in their order there."""
        for number, segment in enumerate(self.segments):
            yield segment, [turn for turn in self.turns if turn.segment == number]

    def turn_ids(self, turn: Turn) -> tuple[int, ...]:
        """The sampled ids of a turn."""
        return tuple(self.segments[turn.segment].ids[turn.start : turn.stop])

    @property
    def forks(self) -> list[tuple[int, str]]:
        """The turn that began each segment after the first, and the reason."""
        return [(turns[0].index, one.reason) for one, turns in self.by_segment() if turns][1:]

    def seen_before(self, turn: Turn) -> str:
        """Return a key of the text just before a turn: the prompt, or the observation.

        Equal tokens have equal keys, in any rollout.
        """
        before = [one.stop for one in self.turns[: turn.index] if one.segment == turn.segment]
        shown = self.segments[turn.segment].ids[max(before, default=0) : turn.start]
        return blake2b(repr(shown).encode(), digest_size=8).hexdigest()


RowId = tuple[str, int]
"""A rollout by its name, and the number of a segment."""


class TokenColumns(NamedTuple):
    """Figures of a segment's trained tokens, in order, at the first update on it."""

    advantage: float | tuple[float, ...]
    """One number where the algorithm gave one for the whole rollout."""
    ratio: tuple[float, ...]
    """pi / sampler before that update."""
    entropy: tuple[float, ...]
    """Nats, of the full distribution at the sampling temperature."""
    weight: float | tuple[float, ...]
    """Factor on the advantage in the loss. One number for the whole rollout, unless the loss has a
    factor for every token."""
    clipped: tuple[int, ...] | None
    """Places of the tokens whose gradient the clip took, counted among the trained ones; None for a
    loss without a clip."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A text behind the first `stop` tokens of a rollout's segment.

    `text` is a string, or token ids. For a text before a turn: its `start`, and its `segment`.
    """

    trajectory: Trajectory
    stop: int
    text: str | tuple[int, ...]
    segment: int = 0

    def __post_init__(self) -> None:
        """Raise ValueError for a place that is not in the record."""
        length = len(self.trajectory.segments[self.segment])
        if not 1 <= self.stop <= length:
            raise ValueError(
                f"a probe behind {self.stop} tokens of segment {self.segment} of "
                f"{self.trajectory.rollout_id}, which has {length}: expected 1 to that"
            )


@dataclass(frozen=True, slots=True)
class Reading:
    """Figures of each token of a text, in nats, at the sampling temperature."""

    logps: tuple[float, ...]
    entropies: tuple[float, ...]
