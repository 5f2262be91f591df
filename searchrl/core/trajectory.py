"""The record of tokens: which token, written by whom, sampled with which log-probability.

Owns the append-only columns that travel from the sampler to the trainer. What was sampled is
stored verbatim; text is derived from ids and never the other way round. It does not know tags,
rewards or tensors. The rollout driver appends, the packer reads. Standard library only.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from hashlib import blake2b
from itertools import accumulate, pairwise
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
    """One model turn as a token range: `[start, stop)` are the sampled ids.

    `text_behind` is the last token's text beyond the stop string: in the ids, but not parsed.
    """

    index: int
    start: int
    stop: int
    reason: TurnStop
    text_behind: str = ""


@dataclass(slots=True)
class Trajectory:
    """Append-only columns over the tokens of one rollout.

    `group_id` is unique per prompt instance, never an index. `task_id` and `env` name the task.
    `generated_text` is the decoded model and environment text after the prompt, for reading only.
    `starts` are the first places of segments: a segment is the text that the model saw at once, and
    most rollouts have one (see `join_segments`). `reasons` say why each begins.
    """

    rollout_id: str
    group_id: str
    env: str = ""
    task_id: str = ""
    origin: Origin = Origin.SAMPLED
    starts: tuple[int, ...] = (0,)
    reasons: tuple[str, ...] = ("first",)
    own_prompt: bool = False
    """True where an agent wrote the prompt: those of its group may then differ."""
    generated_text: str = ""
    _ids: list[int] = field(default_factory=list, repr=False)
    _authors: list[Author] = field(default_factory=list, repr=False)
    _logps: list[float | None] = field(default_factory=list, repr=False)
    _turns_of: list[int] = field(default_factory=list, repr=False)
    _versions: list[int] = field(default_factory=list, repr=False)
    _turns: list[Turn] = field(default_factory=list, repr=False)

    def append_prompt(self, ids: Sequence[int]) -> None:
        """Append the rendered prompt (once, first).

        Raises:
            ValueError: if tokens were appended before; a prompt is never re-rendered.
        """
        if self._ids:
            raise ValueError("the prompt is appended once, before any other token")
        self._extend(ids, Author.PROMPT, [None] * len(ids), turn=-1, version=-1)

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
                for a sampled turn.
        """
        if (logps is None) != (self.origin is Origin.DEMONSTRATION):
            has = "needs" if logps is None else "has no"
            raise ValueError(f"a {self.origin} trajectory {has} sampler log-probs")
        columns: Sequence[float | None] = [None] * len(ids) if logps is None else logps
        if len(columns) != len(ids):
            raise ValueError(f"{len(ids)} ids but {len(columns)} log-probs")
        start = len(self._ids)
        turn = Turn(len(self._turns), start, start + len(ids), reason, text_behind)
        self._extend(ids, Author.MODEL, columns, turn=turn.index, version=version)
        self._turns.append(turn)
        return turn

    def append_env(self, ids: Sequence[int]) -> None:
        """Append an observation after the last model turn."""
        if not self._turns:
            raise ValueError("an observation follows a model turn")
        self._extend(ids, Author.ENV, [None] * len(ids), turn=self._turns[-1].index, version=-1)

    def _extend(
        self,
        ids: Sequence[int],
        author: Author,
        logps: Sequence[float | None],
        *,
        turn: int,
        version: int,
    ) -> None:
        n = len(ids)
        self._ids.extend(ids)
        self._authors.extend([author] * n)
        self._logps.extend(logps)
        self._turns_of.extend([turn] * n)
        self._versions.extend([version] * n)

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[TokenStep]:
        columns = (self._ids, self._authors, self._logps, self._turns_of, self._versions)
        return map(TokenStep, *columns)

    @property
    def ids(self) -> tuple[int, ...]:
        """All token ids, prompt first."""
        return tuple(self._ids)

    @property
    def authors(self) -> tuple[Author, ...]:
        """Author per token."""
        return tuple(self._authors)

    @property
    def sampler_logps(self) -> tuple[float | None, ...]:
        """Sampler log-prob per token; None where the model did not sample."""
        return tuple(self._logps)

    @property
    def turns_of(self) -> tuple[int, ...]:
        """Turn index per token; −1 in the prompt."""
        return tuple(self._turns_of)

    @property
    def policy_versions(self) -> tuple[int, ...]:
        """Policy version per token; −1 where the model did not sample."""
        return tuple(self._versions)

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The model turns as token ranges."""
        return tuple(self._turns)

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens before the first model turn."""
        return self._turns[0].start if self._turns else len(self._ids)

    @property
    def segments(self) -> list[range]:
        """The places of each segment's tokens."""
        return [range(*pair) for pair in pairwise((*self.starts, len(self._ids)))]

    @property
    def forks(self) -> list[tuple[int, str]]:
        """The turn that began each segment after the first, and the reason."""
        first = {bisect_right(self.starts, turn.start): turn.index for turn in self._turns[::-1]}
        numbered = enumerate(self.reasons, 1)
        return [(first[number], why) for number, why in numbered if number in first][1:]

    @property
    def trained(self) -> list[bool]:
        """True for tokens that a loss may use: the model's with a finite log-prob.

        All of a demonstration's: its author was certain of each.
        """
        is_certain = self.origin is Origin.DEMONSTRATION
        return [
            author is Author.MODEL and (is_certain or is_finite(logp))
            for author, logp in zip(self._authors, self._logps, strict=True)
        ]

    def seen_before(self, turn: Turn) -> str:
        """Return a key of the text just before a turn: the prompt, or the observation.

        Equal tokens have equal keys, in any rollout.
        """
        behind = [one.stop for one in self._turns if one.stop <= turn.start]
        begin = self.starts[bisect_right(self.starts, turn.start) - 1]
        shown = self._ids[max([begin, *behind]) : turn.start]
        return blake2b(repr(shown).encode(), digest_size=8).hexdigest()

    @property
    def num_model_tokens(self) -> int:
        """Tokens the model wrote: the only ones a loss may touch."""
        return sum(turn.stop - turn.start for turn in self._turns)


def join_segments(segments: Sequence[Trajectory], segment_of: Sequence[int]) -> Trajectory:
    """One rollout of several segments, one behind the other; it takes the first one's name.

    `segment_of` holds the segment of each turn, in the order of requests, which numbers the turns.
    Raises ValueError if a segment has more or fewer turns.
    """
    first, starts = segments[0], tuple(accumulate(map(len, segments), initial=0))[:-1]
    joined = replace(
        first,
        starts=starts,
        reasons=tuple(reason for one in segments for reason in one.reasons),
        _ids=[token for one in segments for token in one.ids],
        _authors=[author for one in segments for author in one.authors],
        _logps=[logp for one in segments for logp in one.sampler_logps],
        _versions=[version for one in segments for version in one.policy_versions],
        _turns_of=[],
        _turns=[],
    )
    numbers: list[list[int]] = [[] for _ in segments]
    for number, segment in enumerate(segment_of):
        numbers[segment].append(number)
    turns: dict[int, Turn] = {}
    for one, start, places in zip(segments, starts, numbers, strict=True):
        if len(places) != len(one.turns):
            problem = f"a segment has {len(one.turns)} turns, and {len(places)} were asked for"
            raise ValueError(problem)
        joined._turns_of += [places[turn] if turn >= 0 else -1 for turn in one.turns_of]
        for number, turn in zip(places, one.turns, strict=True):
            turns[number] = replace(
                turn, index=number, start=turn.start + start, stop=turn.stop + start
            )
    joined._turns += [turns[number] for number in range(len(segment_of))]
    return joined


class TokenColumns(NamedTuple):
    """Figures of a rollout's trained tokens, in order, at the first update on it."""

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
    """A text behind the first tokens of a rollout: `stop` is where they end in its record.

    The model sees the tokens of the segment in which the last of them stands. `text` is a string,
    or token ids.
    """

    trajectory: Trajectory
    stop: int
    text: str | tuple[int, ...]

    def __post_init__(self) -> None:
        """Raise ValueError for a place that is not in the record."""
        if not 1 <= self.stop <= len(self.trajectory):
            raise ValueError(
                f"a probe behind {self.stop} tokens of {self.trajectory.rollout_id}, which has "
                f"{len(self.trajectory)}: expected 1 to that"
            )


@dataclass(frozen=True, slots=True)
class Reading:
    """Figures of each token of a text, in nats, at the sampling temperature."""

    logps: tuple[float, ...]
    entropies: tuple[float, ...]
