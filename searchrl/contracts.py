"""Contracts of the plugin kinds: what a protocol, retriever, reward, tracker, alarm … must do.

Structural types (`typing.Protocol`): a plugin never has to inherit from us; and the checks of what
crosses several boundaries. Parts on floor 1 know each other through this file alone; names become
objects in `plugins.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, Protocol, TypedDict, runtime_checkable

from searchrl.core.alert import AlarmAction, Alert, Severity
from searchrl.core.drawing import Drawing
from searchrl.core.episode import (
    ACT,
    ANSWER,
    SEARCH,
    Action,
    Episode,
    JudgeCase,
    Passage,
    Score,
    Task,
    Unscored,
    Verdict,
    is_finite_number,
)
from searchrl.core.history import History
from searchrl.endpoints.exchange import Traffic

JUDGE_SCALE = (0.0, 0.5, 1.0)
"""The scores of a verdict on one answer: wrong, partly right, right."""

_SLICE = re.compile(r"[\w.-]+")


@dataclass(frozen=True, slots=True)
class TokenBudget:
    """How long an observation may be: at most `max_tokens` as measured by `count`.

    `cut(text, n)` returns the longest prefix of `text` of at most n tokens. The rollout driver
    passes the policy's tokenizer in; without one, `words()` counts white-space words.
    """

    max_tokens: int
    count: Callable[[str], int]
    cut: Callable[[str, int], str]

    @staticmethod
    def words(max_tokens: int) -> TokenBudget:
        """A budget in white-space separated words, for use without a tokenizer."""

        def cut(text: str, limit: int) -> str:
            pieces = text.split(" ")
            return text if len(pieces) <= limit else " ".join(pieces[: max(limit, 0)])

        return TokenBudget(max_tokens, lambda text: len(text.split(" ")) if text else 0, cut)


@runtime_checkable
class TagProtocol(Protocol):
    """Owns the tags: prompt text, stop strings, parser, observation wrapping, format verdict."""

    name: str
    instruction: str
    stops: tuple[str, ...]

    def parse(self, text: str) -> Action:
        """Read one model turn. Total: never raises on model text."""

    def final_answer(self, turns: Sequence[str]) -> str | None:
        """The answer if the model's turns hold exactly one complete answer block, else None."""

    def format_score(self, turns: Sequence[str]) -> float:
        """The format verdict on the model-written turns: 1 valid, 0.5 answer only, 0 otherwise."""

    def render_observation(
        self, passages: Sequence[Passage], budget: TokenBudget | None = None
    ) -> str:
        """Wrap passages for the model; truncates the passages first, then wraps."""

    def render_notice(self, text: str, budget: TokenBudget | None = None) -> str:
        """Wrap a message of the environment (say, after an invalid turn) for the model.

        Truncates the message first, then wraps.
        """

    def render_turn(self, action: Action, thought: str = "") -> str:
        """Write the turn that parses to `action`: for experts, samples and demonstrations."""

    def opening(self, kind: str) -> str:
        """Text that commits a turn to an action of `kind` (up to and with its opening tag).

        Raises ValueError if no turn of this protocol holds an action of that kind.
        """

    def neutralise(self, text: str) -> str:
        """Make every protocol tag inside foreign text visibly harmless."""


@runtime_checkable
class Drawer(Protocol):
    """A protocol, environment or reward that says how a rollout is drawn. None of them has to.

    Pure: a function of the finished episode and of nothing else.
    """

    def draw_episode(self, episode: Episode) -> Sequence[Drawing]:
        """Return what is to be shown of an episode beside its tokens; `[]` for nothing."""


@runtime_checkable
class Retriever(Protocol):
    """Searches a fixed corpus."""

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return at most k passages per query, best first. Batched; `[]` gives `[]`.

        A query without any indexed term gives no passage. Raises on failure; never returns an
        empty list in place of an error.
        """


@runtime_checkable
class RankingRetriever(Retriever, Protocol):
    """A retriever that can say at which rank a passage comes, shown or not. Nobody has to."""

    def ranks(
        self, queries: Sequence[str], ids: Sequence[str]
    ) -> Sequence[Mapping[str, int | None]]:
        """Return, per query, the rank of each of these passages: from 1; None if not found.

        The passages that `search` returns have the ranks 1 to k.
        """


@runtime_checkable
class StoredRetriever(Retriever, Protocol):
    """A retriever that has passages of its own: an index folder, a server. Nobody has to.

    An environment that is given no corpus searches these; its factory gets no passages then.
    """

    def stored(self, ids: Sequence[str]) -> Sequence[Passage | None] | None:
        """Return the passages of these ids, None for each that it lacks; None: it cannot tell.

        Raises:
            ConfigError: it has no passages at all.
        """


@runtime_checkable
class Reward(Protocol):
    """One reward component. Pure. `values` is its declared set, or (low, high) with `is_range`.

    It may have a method `applies(task) -> bool`. Of a task for which that is false it says nothing:
    its term is left out of the reward, and it is no metric there.
    """

    name: str
    values: tuple[float, ...]
    is_range: bool

    def __call__(self, episode: Episode) -> float | Score | Unscored:
        """Score one finished episode."""


@runtime_checkable
class GroupReward(Protocol):
    """A component that scores the episodes of a group together: diversity, pairwise judges.

    Pure, and declared like a `Reward`. A group holds the rollouts of one prompt that did not fail,
    at least one; in an evaluation each prompt is played once, so a group is one episode.
    """

    name: str
    values: tuple[float, ...]
    is_range: bool

    def __call__(self, episodes: Sequence[Episode]) -> Sequence[float | Score | Unscored]:
        """Score the episodes of one group: one result for each, in the order given."""


@runtime_checkable
class Judge(Protocol):
    """Says how good an answer is: a model that is asked, or a rule."""

    def judge(self, case: JudgeCase) -> Verdict | Unscored:
        """Judge one answer: 0, 0.5 or 1; Unscored where nothing can be said of it.

        Raises on failure: an outage, a reply that is no verdict. It never gives a 0 in place of an
        error. Called by several threads at once.
        """


@runtime_checkable
class RankingJudge(Judge, Protocol):
    """A judge that can compare the answers to one question with each other. Nobody has to."""

    def rank(self, cases: Sequence[JudgeCase]) -> Sequence[Verdict | Unscored]:
        """Judge the answers of a group together: a score from 0 to 1 for each, in their order.

        All cases have the same question. Equal answers get equal scores.
        """


@runtime_checkable
class PaidJudge(Judge, Protocol):
    """A judge whose calls cost something: money, or somebody's patience. Nobody has to."""

    @property
    def traffic(self) -> Traffic:
        """What was spent so far."""

    def estimate(self, num_groups: int, group_size: int) -> Traffic:
        """Return about what judging so many groups would cost; of size 1: answers one by one.

        The calls are those of replies that all come at once and can be read. Raises ConfigError if
        it could not be asked at all: this is called before anything starts.
        """


class Expert(Protocol):
    """A scripted policy for one episode: sees what the model would see, writes raw turns."""

    def act(self, observation: str) -> str:
        """Return the next turn. The first observation is the environment's prompt."""


class Metric(TypedDict):
    """A value, its 95 % interval and the number of observations behind it.

    A metric without sampling error (a learning rate, a time, a loss) has no `low` and no `high`.
    A metric that was not measured is absent: there is no value that stands for it.
    """

    value: float
    low: NotRequired[float]
    high: NotRequired[float]
    n: int


class Paired(TypedDict):
    """A figure of one policy minus that of another, on the same `n` tasks, with its 95 % interval.

    `p` is that of the two-sided test named by `test`. A pair of retrievers has the same.
    """

    value: float
    low: float
    high: float
    n: int
    p: float
    test: str


class Tracker(Protocol):
    """Receives metrics."""

    def log(self, step: int, metrics: Mapping[str, Metric], phase: str) -> None:
        """Record the metrics of one step. `phase` is `train` or `eval`."""

    def close(self) -> None:
        """Flush and release; called once."""


class Alarm(Protocol):
    """Watches a run for one kind of trouble.

    It must be a pure function of the history: a run that is resumed asks it about the last steps
    once more. It is asked after every step, so it must be quick.
    """

    def check(self, history: History) -> Alert | None:
        """Return what is wrong now, or None. While it stays wrong, the alarm sounds only once."""


RetrieverFactory = Callable[..., Retriever]
"""`factory(passages, **config) -> Retriever`; called once per corpus.

`passages` are a tuple, or a `retrieval.passages.PassageStore`, which stays on disk.
"""

ExpertFactory = Callable[[Any, Task, TagProtocol], Expert]
"""`expert(env, task, protocol) -> Expert`: the scripted policy for one episode."""


def find_passages_problem(value: object) -> str:
    """Say what came in place of a list of passages, or "" if `value` is one.

    For the boundaries that passages cross: a retriever's result, an environment's `info`.
    """
    if isinstance(value, str) or not isinstance(value, Sequence):
        return f"{type(value).__name__}; expected a list of Passage"
    for passage in value:
        if not isinstance(passage, Passage):
            return f"a list that holds {type(passage).__name__}; expected Passage"
        for name in ("id", "text", "title"):
            if not isinstance(getattr(passage, name), str):
                kind = type(getattr(passage, name)).__name__
                return f"a Passage whose {name} is {kind}; expected text"
    return ""


def find_ranks_problem(value: object) -> str:
    """Say what came in place of the ranks of gold passages, or "" if `value` is such a list.

    For the boundary that ranks cross: an environment's `info`.
    """
    if isinstance(value, str) or not isinstance(value, Sequence):
        return f"{type(value).__name__}; expected a list of one mapping per query"
    for one in value:
        if not isinstance(one, Mapping):
            return (
                f"a list that holds {type(one).__name__}; expected mappings of passage id to rank"
            )
        for name, rank in one.items():
            is_rank = rank is None or (isinstance(rank, int) and rank >= 1)
            if not isinstance(name, str) or not is_rank:
                return f"the rank {rank!r} of {name!r}; expected a number from 1, or None"
    return ""


def find_action_problem(value: object) -> str:
    """Say what came in place of an `Action`, or "" if `value` is one that can be relied on.

    For the boundaries that actions cross: a protocol's `parse`, an environment's `info`.
    """
    if not isinstance(value, Action):
        return f"{type(value).__name__}; expected an Action"
    if not isinstance(value.kind, str) or not isinstance(value.reason, str):
        return f"an Action of kind {value.kind!r} and reason {value.reason!r}; expected texts"
    if value.kind == SEARCH and not (
        isinstance(value.payload, tuple | list)
        and all(isinstance(query, str) for query in value.payload)
    ):
        return f"a search with the payload {value.payload!r}; expected a tuple of queries"
    if value.kind in (ANSWER, ACT) and not isinstance(value.payload, str):
        return f"an {value.kind} with the payload {value.payload!r}; expected text"
    return ""


def find_task_problem(value: object) -> str:
    """Say what came in place of a `Task`, or "" if it is one that rewards and records can read."""
    if not isinstance(value, Task):
        return f"{type(value).__name__}; expected a Task"
    for name in ("id", "split", "question", "kind", "env", "difficulty"):
        if not isinstance(getattr(value, name), str):
            return f"a Task whose {name} is {getattr(value, name)!r}; expected text"
    if not isinstance(value.index, int):
        kind = type(value.index).__name__
        return f"a Task whose index is {value.index!r} ({kind}); expected an int"
    for name in ("answers", "gold_ids", "slices"):
        texts = getattr(value, name)
        # A text is a sequence of texts as well, of its letters: the usual slip.
        if not isinstance(texts, tuple | list) or not all(isinstance(t, str) for t in texts):
            return f"a Task whose {name} are {texts!r}; expected a tuple of texts"
    for name in value.slices:
        if problem := find_slice_problem(name, value.kind):
            return f"a Task with {problem}"
    if value.difficulty and not _SLICE.fullmatch(value.difficulty):
        said = "expected letters, digits, '_', '.' and '-' only"
        return f"a Task of the difficulty {value.difficulty!r}; {said}"
    if not isinstance(value.meta, Mapping):
        return f"a Task whose meta is {value.meta!r}; expected a mapping"
    return ""


def find_slice_problem(name: str, kind: str) -> str:
    """Say why a task of `kind` cannot be in a slice of this name, or "" if it can.

    A slice is the part `SLICE` of the metric `em/SLICE`, beside the kinds of task.
    """
    if not _SLICE.fullmatch(name):
        return f"the slice {name[:60]!r}; expected letters, digits, '_', '.' and '-' only"
    return f"the slice {name!r}, which is its kind; leave it out" if name == kind else ""


def find_verdict_problem(value: object, *, is_ranked: bool = False) -> str:
    """Say what came in place of a verdict, or "" if it is one.

    With `is_ranked`, it is one of a group that was ranked: any number from 0 to 1. Alone it is one
    of `JUDGE_SCALE`.
    """
    if isinstance(value, Unscored):
        is_told = isinstance(value.reason, str) and value.reason
        return "" if is_told else "Unscored without a reason"
    if not isinstance(value, Verdict):
        return f"{type(value).__name__}; expected a Verdict, or Unscored"
    if not isinstance(value.reason, str):
        return f"a Verdict whose reason is {value.reason!r}; expected text"
    if isinstance(value.score, bool) or not is_finite_number(value.score):
        return f"a Verdict whose score is {value.score!r}; expected a number"
    is_fit = 0 <= value.score <= 1 if is_ranked else value.score in JUDGE_SCALE
    allowed = "0 to 1" if is_ranked else "one of " + ", ".join(f"{one:g}" for one in JUDGE_SCALE)
    return "" if is_fit else f"a Verdict with the score {value.score:g}; expected {allowed}"


MAX_REWARD = 1e30
"""Scores and rewards are at most this large, either way. Beyond it, squares and what the loss makes
of them (32 bits) would not be finite."""


def find_alert_problem(value: object, step: int) -> str:
    """Say why a run of `step` steps cannot use what an alarm returned, or "" if it can.

    None is what an alarm returns if nothing is wrong.
    """
    if value is None:
        return ""
    if not isinstance(value, Alert):
        return f"{type(value).__name__}; expected an Alert, or None"
    for name in ("what", "why"):
        text = getattr(value, name)
        if not isinstance(text, str) or not text.strip():
            return f"an Alert whose {name} is {text!r}; expected a sentence"
    tries = value.tries
    is_pair = isinstance(tries, tuple | list) and len(tries) == 2
    if not is_pair or not all(isinstance(text, str) and text.strip() for text in tries):
        return f"an Alert whose tries are {tries!r}; expected two sentences"
    is_step = isinstance(value.since, int) and not isinstance(value.since, bool)
    if not is_step or not 0 <= value.since <= step:
        return f"an Alert since step {value.since!r}; expected a step from 0 to {step}"
    if not isinstance(value.severity, Severity):
        return f"an Alert of severity {value.severity!r}; expected one of {', '.join(Severity)}"
    if not isinstance(value.action, AlarmAction):
        return (
            f"an Alert with the action {value.action!r}; expected one of {', '.join(AlarmAction)}"
        )
    return ""
