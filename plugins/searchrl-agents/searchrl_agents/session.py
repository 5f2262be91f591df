"""A rollout as its agent sees it: requests come in by threads of a server, turns go out in turn.

Owns what waits for what. The environment's thread takes one event after the other, whatever order
an agent's own threads have; a thread of the server waits for its answer.
"""

from __future__ import annotations

import json
import queue
import re
import secrets
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, NamedTuple

from searchrl.contracts import ToolCall
from searchrl.protocols import read_calls
from searchrl_agents.talk import Called, Refused, Reply, Request

_THOUGHT = re.compile(r"\s*(?:<think>)?(.*?)</think>|\s*<think>(.*)", re.DOTALL)


def over() -> Refused:
    """Error for the key of a rollout that is over."""
    return Refused("this rollout is over; its key is valid no more", 401, "invalid_api_key")


class Event(NamedTuple):
    """Event of an agent: `chat` or `tool`, which awaits an answer, or `ended`, with how."""

    kind: str
    body: Any
    future: Future[Any]


class Session:
    """One rollout: the server calls `chat`, `tool`, `answer` and `reward`, the environment `next`.

    The first four may raise `Refused`; the first two block until the answer is there.

    Args:
        temperature: that of the run: a request may name no other.
        max_requests: most replies of the policy.
    """

    def __init__(self, temperature: float, max_requests: int) -> None:
        self.key = secrets.token_urlsafe(24)
        self.temperature = temperature
        self.posted: str | None = None
        self.rewarded: float | None = None
        self.num_requests = 0
        self._max_requests = max_requests
        self._events: queue.Queue[Event] = queue.Queue()
        self._lock = threading.Lock()
        self._asked: dict[str, Future[Any]] = {}
        self._open: set[Future[Any]] = set()
        self._is_open = True

    def chat(self, request: Request) -> Sequence[Reply]:
        """Replies of the policy. A repeated request gets those of the first one."""
        with self._lock:
            future = self._asked.get(request.key) if request.is_again else None
            if future is None:
                if self.num_requests + request.count > self._max_requests:
                    raise Refused(
                        f"this rollout had its {self._max_requests} replies; end it, or raise "
                        "wrapper.max_requests",
                        429,
                        "too_many_requests",
                    )
                self.num_requests += request.count
                future = self._put("chat", request)
                self._asked[request.key] = future
        replies: Sequence[Reply] = future.result()
        return replies

    def tool(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Call a tool of the environment; returns what it says."""
        with self._lock:
            future = self._put("tool", (name, arguments))
        return str(future.result())

    def answer(self, text: str) -> None:
        """Take the answer to the task; the last one counts."""
        self._ensure_open()
        self.posted = text

    def reward(self, value: float) -> None:
        """Take the agent's own reward; the last one counts."""
        self._ensure_open()
        self.rewarded = value

    def next(self, timeout_s: float) -> Event | None:
        """The next event; None after so many seconds."""
        with suppress(queue.Empty):
            return self._events.get(timeout=max(0.0, timeout_s))
        return None

    def end(self, ended: Future[Any]) -> None:
        """Add the end of the agent as its last event."""
        self._events.put(Event("ended", None, ended))

    def close(self) -> None:
        """Refuse everything from now on, and everything that waits."""
        with self._lock:
            self._is_open = False
        for future in self._open:
            if not future.done():
                future.set_exception(over())

    def _put(self, kind: str, body: Any) -> Future[Any]:
        self._ensure_open()
        future: Future[Any] = Future()
        self._open.add(future)
        self._events.put(Event(kind, body, future))
        return future

    def _ensure_open(self) -> None:
        if not self._is_open:
            raise over()


def read_turn(text: str, has_tools: bool, number: int) -> tuple[str, str, tuple[Called, ...]]:
    """(reasoning, content, calls) of a turn; calls that are not well-formed stay in the content.

    A thought that is not closed, because the turn was cut, is reasoning to its end.
    """
    reasoning, content = "", text
    if thought := _THOUGHT.match(text):
        reasoning, content = thought[thought.lastindex or 1].strip(), text[thought.end() :]
    calls: list[ToolCall] = []
    if has_tools:
        with suppress(ValueError):
            calls, content = read_calls(content)
    called = (
        Called(f"call_{number}_{place}", call.name, json.dumps(call.arguments, ensure_ascii=False))
        for place, call in enumerate(calls)
    )
    return reasoning, content.strip(), tuple(called)
