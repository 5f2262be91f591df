"""Guards around what an environment calls: its protocol and its retriever.

A failure names the part that failed, and not the environment that called it. A retriever that is
registered with `concurrent=False` gets one call at a time.
"""

from __future__ import annotations

import math
import numbers
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from searchrl.contracts import (
    Retriever,
    RetrieverFactory,
    StoredRetriever,
    TagProtocol,
    TokenBudget,
)
from searchrl.contracts.problems import find_action_problem
from searchrl.contracts.retrieving import RankingRetriever
from searchrl.core.episode import Action, Passage
from searchrl.errors import PluginError, ProtocolFailure
from searchrl.tool_calls import CallLock, Raised, Returned, inside
from searchrl.tracing import TRACER, of_text


class GuardedProtocol:
    """A protocol (`contracts.TagProtocol`) that calls another and checks what comes back.

    PluginError names `owner` if it has no name, instruction or stop strings; `who` is named when it
    hangs. Without `has_instruction` its instruction is empty, for models taught by examples.
    """

    def __init__(
        self, protocol: TagProtocol, owner: str, *, who: str = "", has_instruction: bool = True
    ) -> None:
        self.inner = self._protocol = protocol
        self._who = who or owner
        for attribute in ("name", "instruction"):
            if not isinstance(getattr(protocol, attribute, None), str):
                raise PluginError(f"{owner}: the protocol needs a text as its '{attribute}'")
        stops = getattr(protocol, "stops", None)
        if not isinstance(stops, tuple | list) or not all(
            isinstance(stop, str) and stop for stop in stops
        ):
            raise PluginError(f"{owner}: 'stops' must be a tuple of texts, got {stops!r}")
        self.name = protocol.name
        self.instruction = protocol.instruction if has_instruction else ""
        self.stops = tuple(stops)

    def __getattr__(self, attribute: str) -> Any:
        # What only an environment that knows this protocol asks for (its tags, say).
        if attribute == "_protocol":  # not set yet: being copied or unpickled
            raise AttributeError(attribute)
        return getattr(self._protocol, attribute)

    def parse(self, text: str) -> Action:
        """See `TagProtocol.parse`."""
        action: Action = self._call(find_action_problem, "parse", text)
        return action

    def final_answer(self, turns: Sequence[str]) -> str | None:
        """See `TagProtocol.final_answer`."""
        answer: str | None = self._call(_find_answer_problem, "final_answer", turns)
        return answer

    def format_score(self, turns: Sequence[str]) -> float:
        """See `TagProtocol.format_score`."""
        return float(self._call(_find_score_problem, "format_score", turns))

    def render_observation(
        self, passages: Sequence[Passage], budget: TokenBudget | None = None
    ) -> str:
        """See `TagProtocol.render_observation`."""
        return self._text("render_observation", passages, budget)

    def render_notice(self, text: str, budget: TokenBudget | None = None) -> str:
        """See `TagProtocol.render_notice`."""
        return self._text("render_notice", text, budget)

    def render_turn(self, action: Action, thought: str = "") -> str:
        """See `TagProtocol.render_turn`; a ValueError says that it writes no such action."""
        return self._text("render_turn", action, thought, through=ValueError)

    def opening(self, kind: str) -> str:
        """See `TagProtocol.opening`; a ValueError says that it has no such action."""
        return self._text("opening", kind, through=ValueError)

    def neutralise(self, text: str) -> str:
        """See `TagProtocol.neutralise`."""
        return self._text("neutralise", text)

    def _text(self, method: str, *args: Any, through: type[Exception] | tuple[()] = ()) -> str:
        text: str = self._call(_find_text_problem, method, *args, through=through)
        return text

    def _call(
        self,
        find_problem: Callable[[object], str],
        method: str,
        *args: Any,
        through: type[Exception] | tuple[()] = (),
    ) -> Any:
        try:
            with inside(self._who):
                result = getattr(self._protocol, method)(*args)
            problem = find_problem(result)
        except through:
            raise
        except (Exception, SystemExit) as error:  # a plugin's sys.exit() must not end the run
            raise ProtocolFailure(f"{method}() raised {type(error).__name__}: {error}") from error
        if problem:
            raise ProtocolFailure(f"{method}() returned {problem}")
        return result


@dataclass(slots=True)
class BatchSizes:
    """Number of searches in one batch: doubled as long as that saves time.

    A retriever that takes its queries one after another gains nothing, and a large batch would miss
    the time limit of a single search.
    """

    most: int = 1
    _took_s: dict[int, float] = field(default_factory=dict)

    def learn(self, size: int, took_s: float, timeout_s: float | None) -> None:
        """Choose the next size after a batch; one that was not full says nothing of size."""
        if size < self.most:
            return
        self._took_s[size] = took_s
        is_cheaper = size == 1 or took_s < 1.5 * self._took_s[size // 2]
        is_short = timeout_s is None or took_s < timeout_s / 4
        self.most = 2 * size if is_cheaper and is_short else max(1, size // 2)


@dataclass(frozen=True, slots=True)
class GuardedRetrievers:
    """A retriever factory (`contracts.RetrieverFactory`) that guards what another one makes.

    `who` is named when it hangs. `lock`: it takes one call at a time, from whoever holds this lock,
    and none may take longer than `timeout_s`.
    """

    factory: RetrieverFactory
    who: str
    lock: CallLock | None = None
    timeout_s: float | None = None
    sizes: BatchSizes = field(default_factory=lambda: BatchSizes())

    def __call__(self, passages: Sequence[Passage]) -> Retriever:
        """Make a retriever; see `RetrieverFactory`."""
        with self.lock or nullcontext():
            made = self.factory(passages)
        if isinstance(made, StoredRetriever):
            return GuardedStoredRetriever(made, self)
        return GuardedRetriever(made, self)


@dataclass(slots=True, eq=False)
class _Asked:
    """A search that waits for its turn, and what came of it."""

    queries: list[str]
    k: int
    outcome: Returned[list[list[Passage]]] | Raised | None = None


class GuardedRetriever:
    """A retriever (`contracts.Retriever`) that calls another one; see `GuardedRetrievers`.

    Searches that wait for their turn are asked together with those of the thread whose turn it is.
    """

    def __init__(self, retriever: Retriever, guard: GuardedRetrievers) -> None:
        self._retriever = retriever
        self._guard = guard
        self._asked: list[_Asked] = []
        self._lock = threading.Lock()

    def __getattr__(self, attribute: str) -> Any:
        # What an environment that knows this retriever asks for besides.
        if attribute == "_retriever":  # not set yet: being copied or unpickled
            raise AttributeError(attribute)
        return getattr(self._retriever, attribute)

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """See `Retriever.search`; may be called by any number of threads."""
        with inside(self._guard.who), TRACER.start_as_current_span("retrieval") as span:
            span.set_attributes({"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.top_k": k})
            span.set_attributes(of_text("gen_ai.retrieval.query.text", queries))
            if self._guard.lock is None:
                return self._retriever.search(queries, k)
            search = _Asked(list(queries), k)
            with self._lock:
                self._asked.append(search)
            with self._guard.lock:
                if search.outcome is None:
                    self._search_beside(search)
        assert search.outcome is not None
        if isinstance(search.outcome, Raised):
            raise search.outcome.error
        return search.outcome.value

    def ranks(
        self, queries: Sequence[str], ids: Sequence[str]
    ) -> Sequence[Mapping[str, int | None]]:
        """See `RankingRetriever.ranks`; nothing if the retriever does not tell."""
        if not isinstance(self._retriever, RankingRetriever):
            return []
        with inside(self._guard.who), self._guard.lock or nullcontext():
            return self._retriever.ranks(queries, ids)

    def _search_beside(self, search: _Asked) -> None:
        """Ask one batch: this search, and others that wait with the same k."""
        sizes, k = self._guard.sizes, search.k
        with self._lock:
            others = [one for one in self._asked if one.k == k and one is not search]
            batch = [search, *others[: sizes.most - 1]]
            self._asked = [one for one in self._asked if one not in batch]
        began = time.monotonic()
        if self._search_all(batch, k):
            sizes.learn(len(batch), time.monotonic() - began, self._guard.timeout_s)

    def _search_all(self, batch: Sequence[_Asked], k: int) -> bool:
        """Ask for all of them at once; False if that failed, and they were asked one by one."""
        queries = [query for search in batch for query in search.queries]
        outcome = self._try(queries, k)
        if len(batch) == 1:
            batch[0].outcome = outcome
            return True
        results = outcome.value if isinstance(outcome, Returned) else None
        if not isinstance(results, list | tuple) or len(results) != len(queries):
            # Somebody's query is at fault. The others must not fail with it.
            for search in batch:
                search.outcome = self._try(search.queries, k)
            return False
        rest = iter(results)
        for search in batch:
            search.outcome = Returned([next(rest) for _ in search.queries])
        return True

    def _try(self, queries: list[str], k: int) -> Returned[list[list[Passage]]] | Raised:
        try:
            return Returned(self._retriever.search(queries, k))
        except (Exception, SystemExit) as error:  # of whoever asked; it is raised there
            return Raised(error)


class GuardedStoredRetriever(GuardedRetriever):
    """One that has passages of its own (`contracts.StoredRetriever`)."""

    _retriever: StoredRetriever

    def stored(self, ids: Sequence[str]) -> Sequence[Passage | None] | None:
        """See `StoredRetriever.stored`."""
        with inside(self._guard.who), self._guard.lock or nullcontext():
            return self._retriever.stored(ids)


def _find_answer_problem(value: object) -> str:
    return "" if value is None else _find_text_problem(value)


def _find_text_problem(value: object) -> str:
    return "" if isinstance(value, str) else f"{type(value).__name__}; expected text"


def _find_score_problem(value: object) -> str:
    if isinstance(value, numbers.Real) and math.isfinite(value):
        return ""
    return f"{value!r}; expected a finite number"
