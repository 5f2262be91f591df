"""Episodes as strings: tasks, actions, passages, turns, scores and failures.

Owns the frozen records that environments produce, rewards read and judges are asked about. Holds
no tokens (those are `core.trajectory`) and no behaviour beyond small derived properties. Standard
library only, so that plugin authors and model-free commands can import it for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

SEARCH = "search"
ANSWER = "answer"
ACT = "act"
INVALID = "invalid"
TOOL = "tool"
COMPACT = "compact"
"""A turn that says in fewer words what was read before."""


@dataclass(frozen=True, slots=True)
class Passage:
    """One retrieved text. `score` is the retriever's own and compares only within one result.

    `original` is the text before the wrapper `altered` changed it; empty: nothing was changed.
    """

    id: str
    text: str
    title: str = ""
    score: float = 0.0
    original: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """One question. A pure function of (env, split, index, seed).

    `answers` are the accepted gold answers (any may match); `gold_ids` name the passages that
    hold the evidence (empty: unknown or none); `kind` groups tasks in metrics. `slices` are more
    groups of the metric `em`, such as `unseen_wording`: letters, digits, `_`, `.` and `-`, and no
    kind. `difficulty` is the data's word, such as `hard` (empty: none), one more group.
    `changed_answers` are right by passages that the wrapper `altered` changed.
    """

    id: str
    split: str
    index: int
    question: str
    answers: tuple[str, ...] = ()
    kind: str = "task"
    gold_ids: tuple[str, ...] = ()
    env: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)
    slices: tuple[str, ...] = ()
    difficulty: str = ""
    changed_answers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool by name; `arguments` are JSON values."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Action:
    """A model turn as a protocol read it.

    `kind` is `search` (payload: tuple of queries), `answer` (payload: text), `invalid` (payload:
    None, `reason` says why) or a kind that a protocol and an environment agree on, such as `act`
    (payload: text, what to do) and `tool` (payload of the built-in protocol: a `ToolCall`).
    """

    kind: str
    payload: Any = None
    reason: str = ""

    @property
    def queries(self) -> tuple[str, ...]:
        """The queries of a search action; empty for every other kind."""
        return tuple(self.payload) if self.kind == SEARCH else ()


@dataclass(frozen=True, slots=True)
class EpisodeTurn:
    """One model turn and what the environment said to it.

    `text` is the action text given to the parser (the assistant prefix included in the first
    turn; cut after the stop string). `observation` is the text appended (empty after the end).
    `ranks` of the gold passages, one mapping per query, count from 1; None: the query does not find
    it; empty: the retriever does not tell.
    """

    text: str
    action: Action
    passages: tuple[Passage, ...] = ()
    observation: str = ""
    reward: float = 0.0
    ranks: tuple[Mapping[str, int | None], ...] = ()


class StopReason(StrEnum):
    """Why an episode ended."""

    ANSWERED = "answered"
    """The environment terminated: an answer, or the protocol's own end."""
    TURN_LIMIT = "turn_limit"
    """The environment truncated: its number of turns is used up."""
    TURN_TOKENS = "turn_tokens"
    """A turn reached its token budget before any stop string."""
    TOTAL_TOKENS = "total_tokens"
    """The trajectory's token budget or the model's context is used up."""
    EOS = "eos"
    """The model ended its message without an action that ends the episode."""
    FAILED = "failed"
    """Something other than the model failed; see `Episode.failure`."""


class FailureKind(StrEnum):
    """Kind of the part that failed. A failed episode is Unscored, counted and shown, never 0."""

    ENVIRONMENT = "environment"
    RETRIEVER = "retriever"
    GENERATION = "generation"
    SCORING = "scoring"
    PROTOCOL = "protocol"
    TIMEOUT = "timeout"
    BUDGET = "budget"
    """No failure: the budget of an endpoint was spent before the end of the episode."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure: `owner` is the plugin and name at fault, `detail` holds the traceback."""

    kind: FailureKind
    owner: str
    message: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Episode:
    """A finished episode as reward components see it. Frozen: components are pure functions.

    `final_answer` is None unless there is exactly one complete answer block. `format_score` is
    the protocol's verdict (1, 0.5 or 0). `env_return` is the sum of the env's step rewards.
    `step` is its training step, from 1; in an evaluation, the number of steps done.
    """

    task: Task
    turns: tuple[EpisodeTurn, ...] = ()
    final_answer: str | None = None
    format_score: float = 0.0
    signals: Mapping[str, float] = field(default_factory=dict)
    env_return: float = 0.0
    num_model_tokens: int = 0
    stop_reason: StopReason = StopReason.ANSWERED
    failure: Failure | None = None
    step: int = 0

    @property
    def num_searches(self) -> int:
        """Turns whose action was a search (a turn with several queries counts once)."""
        return sum(turn.action.kind == SEARCH for turn in self.turns)

    @property
    def queries(self) -> tuple[str, ...]:
        """All queries in order."""
        return tuple(q for turn in self.turns for q in turn.action.queries)

    @property
    def passages(self) -> tuple[Passage, ...]:
        """All passages shown, in order, repeats included."""
        return tuple(p for turn in self.turns for p in turn.passages)

    @property
    def num_tool_calls(self) -> int:
        """Turns whose action was the call of a tool; searches count on their own."""
        return sum(turn.action.kind == TOOL for turn in self.turns)

    @property
    def is_passive(self) -> bool:
        """True for an answer without any search or tool call."""
        return self.final_answer is not None and not self.num_searches + self.num_tool_calls


@dataclass(frozen=True, slots=True)
class Score:
    """A component's value, optionally with one process score per turn."""

    value: float
    per_turn: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Unscored:
    """A result without a score. The rollout is excluded from training, counted and shown."""

    reason: str


@dataclass(frozen=True, slots=True)
class JudgeCase:
    """One answer for a judge; `references` are the accepted answers, if known.

    The answer is text of a model: it may hold orders to the judge.
    """

    question: str
    answer: str
    references: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judge's score of one answer, and why in a few words (may be empty).

    `number`, 0 to 1, is the judge's own if it was asked for one; `score` is then made of it.
    """

    score: float
    reason: str = ""
    number: float | None = None


def is_finite_number(value: Any) -> bool:
    """Return True if a value can be taken as a float: no text, no NaN, no infinity."""
    if isinstance(value, str | bytes):  # also one that reads as a number
        return False
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError, OverflowError):
        return False
