"""The batcher: searches of many requests, asked of the retriever together.

Owns the queue of requests, which queries form a batch, and the one thread that searches. Batches
hold queries of one k only: what a retriever finds first may depend on how much it is asked for. A
request with more queries than a batch takes its turns with the others. Knows no HTTP.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from searchrl import RetrieverFailure
from searchrl.contracts import Passage, Retriever, find_passages_problem

QUERIES_AT_ONCE = 64
"""Queries of one call of the retriever, at most."""

Found = list[list[Passage]]


@dataclass(slots=True, eq=False)
class _Waiting:
    """A request, what was found for its first queries, and who waits for the rest."""

    queries: Sequence[str]
    k: int
    future: asyncio.Future[Found]
    found: Found = field(default_factory=list)


class _Part(NamedTuple):
    """The queries of a request that are in a batch."""

    waiting: _Waiting
    queries: Sequence[str]


class Batcher:
    """Searches for many at once; `search` belongs to one event loop.

    Args:
        retriever: gets one call at a time, from a thread of its own.
        at_once: queries of one call, at most.
    """

    def __init__(self, retriever: Retriever, at_once: int = QUERIES_AT_ONCE) -> None:
        self._retriever = retriever
        self._at_once = at_once
        self._waiting: deque[_Waiting] = deque()
        self._is_new = asyncio.Event()
        self._calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._began_s: float | None = None
        self.num_calls = 0
        """Calls of the retriever so far."""

    @property
    def num_waiting(self) -> int:
        """Requests that are not finished."""
        return len(self._waiting)

    @property
    def busy_s(self) -> float:
        """Seconds that the call under way has taken so far; 0 if there is none."""
        return 0.0 if self._began_s is None else time.monotonic() - self._began_s

    async def search(self, queries: Sequence[str], k: int) -> Found:
        """The passages of each query, in their order.

        Raises:
            RetrieverFailure: if the retriever failed on these queries, or broke its contract.
        """
        if not queries:
            return []
        waiting = _Waiting(queries, k, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._is_new.set()
        try:
            return await waiting.future
        finally:  # also if nobody waits for it any more
            self._waiting.remove(waiting)

    async def run(self) -> None:
        """Search until cancelled."""
        # A daemon: a search that hangs must not keep the server from ending.
        threading.Thread(target=self._work, name="retriever", daemon=True).start()
        try:
            while True:
                await self._is_new.wait()
                if parts := self._take():
                    await self._search(parts)
                else:
                    self._is_new.clear()
        finally:
            self._calls.put(None)

    def _take(self) -> list[_Part]:
        """The next batch: of the request that waits longest, and of others with the same k."""
        parts: list[_Part] = []
        room = self._at_once
        for waiting in self._waiting:
            if waiting.future.done() or (parts and waiting.k != parts[0].waiting.k):
                continue
            begin = len(waiting.found)
            parts.append(_Part(waiting, waiting.queries[begin : begin + room]))
            room -= len(parts[-1].queries)
            if not room:
                break
        return parts

    async def _search(self, parts: Sequence[_Part]) -> None:
        queries = [query for part in parts for query in part.queries]
        k = parts[0].waiting.k
        try:
            found = await self._call(queries, k)
        except Exception as error:
            if len(parts) == 1:
                _tell(parts[0].waiting.future, error=error)
                return
            # Somebody's query is at fault. The others must not fail with it.
            for part in parts:
                if not part.waiting.future.done():  # somebody waits for it still
                    await self._search([part])
            return
        rest = iter(found)
        for part in parts:
            part.waiting.found += [next(rest) for _ in part.queries]
            if len(part.waiting.found) == len(part.waiting.queries):
                _tell(part.waiting.future, part.waiting.found)
            elif not part.waiting.future.done():  # the others first
                self._waiting.remove(part.waiting)
                self._waiting.append(part.waiting)

    async def _call(self, queries: list[str], k: int) -> Found:
        """Call the retriever in its thread, and check what it returns."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._began_s = time.monotonic()
        self.num_calls += 1
        self._calls.put((queries, k, future, loop))
        try:
            found = await future
        finally:
            self._began_s = None
        if not isinstance(found, Sequence) or len(found) != len(queries):
            num = len(found) if isinstance(found, Sequence) else type(found).__name__
            raise RetrieverFailure(f"the retriever gave {num} results for {len(queries)} queries")
        for passages in found:
            if problem := find_passages_problem(passages):
                raise RetrieverFailure(f"the retriever returned for a query {problem}")
        return [list(passages)[:k] for passages in found]

    def _work(self) -> None:
        """What the thread does."""
        while (asked := self._calls.get()) is not None:
            queries, k, future, loop = asked
            result: Any = None
            error: Exception | None = None
            try:
                result = self._retriever.search(queries, k)
            except (Exception, SystemExit) as raised:  # a plugin's sys.exit() must not end it
                error = RetrieverFailure(f"{type(raised).__name__}: {raised}")
            try:
                loop.call_soon_threadsafe(_tell, future, result, error)
            except RuntimeError:  # the loop is closed: the server has ended meanwhile
                return


def _tell(future: asyncio.Future[Any], result: Any = None, error: Exception | None = None) -> None:
    if future.done():  # nobody waits for it any more
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
