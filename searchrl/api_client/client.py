"""One client for models behind OpenAI-compatible addresses: cache, threads, budget.

Owns the order of things: a request is looked up in the cache, then sent by `server`, and kept.
Whatever goes wrong is an `EndpointFailure`, or `BudgetSpent`. It knows no tags, tasks or rewards.
"""

from __future__ import annotations

import threading
import time
import warnings
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from searchrl.api_client.cache import JsonCache
from searchrl.api_client.exchange import (
    MAX_STOPS,
    PATHS,
    Reply,
    Request,
    make_body,
    read_reply,
)
from searchrl.api_client.server import Server, quote, read_key
from searchrl.api_client.traffic import Budget
from searchrl.config.endpoint import EndpointConfig
from searchrl.contracts import Traffic
from searchrl.errors import BudgetSpent, EndpointFailure

GONE_AFTER = 20
"""Requests without an answer, one after the other, from which on nothing more is sent: each could
wait for the whole time limit."""
MAX_REPLY_BYTES = 2**20
"""Bytes of a reply, at most: ten times the longest that a model writes."""
PATIENCE_S = 5.0
"""How long the end of a client waits for replies that are under way: they are paid for."""


class Client:
    """Asks one model of one endpoint; safe to use from several threads.

    Args:
        url: the address, such as `http://localhost:8000/v1`.
        model: the name under which the server knows it.
        settings: the section `endpoint` of a config, or another with its keys.
        section: where the settings stand, for messages: `endpoint`, `judge`.

    Raises:
        ConfigError: for a wrong address or key.
        EndpointFailure: if the cache cannot be used.
    """

    def __init__(
        self, url: str, model: str, settings: EndpointConfig, section: str = "endpoint"
    ) -> None:
        for form in PATHS.values():  # a whole address, of either interface
            url = url.rstrip("/").removesuffix(form)
        self.url = url + PATHS[settings.api]
        self.concurrency = settings.concurrency
        self._model, self._settings = model, settings
        left_out = f"a key that it does not take is left out with --set {section}.extra.KEY=null"
        lost = "look at the address and at the name of the model"
        self._server = Server(
            self.url,
            section,
            key=read_key(settings.key_env),
            timeout_s=settings.timeout_s,
            max_retries=settings.max_retries,
            concurrency=settings.concurrency,
            advice=((400, left_out), (422, left_out), (404, lost)),
            max_bytes=MAX_REPLY_BYTES,
        )
        self._budget = Budget(settings, section)
        self._cache: JsonCache | None = None
        if settings.has_cache:
            path = settings.cache_path or JsonCache.default_path()
            self._cache = JsonCache(path, section=section)
        self._is_closed = False
        self._num_lost = 0
        self._jobs: SimpleQueue[tuple[Future[Reply], Request] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    @property
    def traffic(self) -> Traffic:
        """What was sent and spent so far."""
        return self._budget.traffic

    def estimate(self, calls: int, prompt_tokens: int, completion_tokens: int) -> Traffic:
        """What so many calls and tokens would cost."""
        return self._budget.estimate(calls, prompt_tokens, completion_tokens)

    def start(self, request: Request) -> Future[Reply]:
        """Ask in the background, at most `concurrency` requests at a time."""
        asked: Future[Reply] = Future()
        self._jobs.put((asked, request))
        with self._lock:
            if len(self._threads) < self.concurrency:
                # Daemons: one that waits for a server does not keep the program from ending.
                thread = threading.Thread(target=self._work, name="endpoint", daemon=True)
                self._threads.append(thread)
                thread.start()
        return asked

    def complete(self, request: Request) -> Reply:
        """Ask, and wait for the reply.

        Raises:
            BudgetSpent: if nothing may be sent any more.
            EndpointFailure: if there is no reply; it says why, and what to do.
        """
        body, key = self._body_and_key(request)
        if self._cache is not None and (kept := self._cache.get(key)) is not None:
            with suppress(EndpointFailure):  # it is damaged: then it is asked for again
                reply = read_reply(self._settings.api, kept)
                self._budget.count(cached=1)
                return reply
        try:
            answer = self._server.post(body, before=self._before)
            self._num_lost = 0
            reply = read_reply(self._settings.api, answer)
        except BudgetSpent:
            raise
        except EndpointFailure as error:
            self._num_lost += 1
            self._budget.count(failed=1)
            told = str(error) if self.url in str(error) else f"{self.url} {quote(error)}"
            raise EndpointFailure(told) from None
        self._budget.add(reply.usage)
        if self._cache is not None:
            try:
                self._cache.put(key, answer)
            except EndpointFailure as error:  # the reply is good, and paid for
                warnings.warn(str(error), stacklevel=2)
        return reply

    def forget(self, request: Request) -> None:
        """Keep no reply to a request: the caller could not use it, and another one may come."""
        if self._cache is not None:
            with suppress(EndpointFailure):  # it is only asked for in vain once more
                self._cache.put(self._body_and_key(request)[1], None)

    def told(self, stops: tuple[str, ...]) -> tuple[str, ...]:
        """Which of some stop strings the server is told (`extra: {stop: null}`: none)."""
        return () if "stop" in self._settings.extra else stops[:MAX_STOPS]

    def close(self) -> None:
        """End: nothing more is sent. What is under way has `PATIENCE_S` to arrive and be kept."""
        self._is_closed = True
        for _ in self._threads:
            self._jobs.put(None)
        until = time.monotonic() + PATIENCE_S
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        self._server.close()
        if self._cache is not None:
            self._cache.close()

    def _body_and_key(self, request: Request) -> tuple[dict[str, Any], str]:
        body = make_body(self._model, self._settings.api, request, self._settings.extra)
        return body, JsonCache.key(self.url, body, request.draw)

    def _before(self, is_retry: bool) -> None:
        if self._is_closed:
            raise EndpointFailure("the client was closed before there was an answer")
        # Requests that were under way together are one sign, not many.
        if self._num_lost >= max(GONE_AFTER, 2 * self.concurrency):
            text = f"{self._num_lost} requests in a row had no answer: no more is sent"
            raise EndpointFailure(f"{self.url}: {text}")
        self._budget.take_call(is_retry)

    def _work(self) -> None:
        """What a thread does: one job after the other, until there is None."""
        while (job := self._jobs.get()) is not None:
            asked, request = job
            if self._is_closed:
                asked.cancel()
            if not asked.set_running_or_notify_cancel():
                continue
            try:
                asked.set_result(self.complete(request))
            except BaseException as error:  # passed on to who asked
                asked.set_exception(error)
