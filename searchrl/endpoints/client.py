"""One client for OpenAI-compatible endpoints: cache, concurrency, budget.

Owns the order of things: a request is looked up in the cache, then sent by `sending`, and kept.
Whatever goes wrong is an `EndpointFailure`, or `BudgetSpent`. It knows no tags, tasks or rewards.
Callers: the endpoint policy, and judges; writers of queries are meant to use it as well.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from searchrl.config.endpoint import EndpointConfig
from searchrl.endpoints.budget import Allowance, Budget
from searchrl.endpoints.cache import ReplyCache, cache_key, default_cache
from searchrl.endpoints.exchange import Api, Reply, Request, Traffic, Usage
from searchrl.endpoints.retries import Retries
from searchrl.endpoints.sending import Sender
from searchrl.endpoints.transport import Target, quote, read_key
from searchrl.endpoints.wire import MAX_STOPS, endpoint_url, make_body, read_reply
from searchrl.errors import BudgetSpent, EndpointFailure

_GONE_AFTER = 20
"""Requests without an answer, one after the other, from which on nothing more is sent: each could
wait for the whole time limit."""
MAX_REPLY_BYTES = 2**20
"""Bytes of a reply, at most: ten times the longest that a model writes. More would be parsed for
as long as a model needs to write it."""
PATIENCE_S = 5.0
"""How long the end of a client waits for replies that are under way: they are paid for."""

_Job = tuple[Future[Reply], Request]


@dataclass(frozen=True, slots=True)
class Access:
    """How an endpoint is reached. `key` is never shown.

    `section` is where its settings stand, for messages: `endpoint`, `judge`.
    """

    url: str
    model: str
    api: Api = Api.CHAT
    key: str | None = field(default=None, repr=False)
    timeout_s: float = 120.0
    concurrency: int = 8
    extra: Mapping[str, Any] = field(default_factory=dict)
    section: str = "endpoint"

    @property
    def advice(self) -> tuple[tuple[int, str], ...]:
        """What to do about a status, for messages."""
        extra = f"--set {self.section}.extra.KEY=null"
        not_taken = f"a key that it does not take is left out with {extra}"
        lost = "look at the address and at the name of the model"
        return ((400, not_taken), (422, not_taken), (404, lost))


class Client:
    """Asks one model of one endpoint; safe to use from several threads.

    Args:
        access: where and how.
        retries: which calls are repeated, and when.
        budget: what may be spent.
        cache: where replies are kept; None: nowhere.
        sleep: how waits are waited; another one in tests. By default the end of the client ends
            them.
    """

    def __init__(
        self,
        access: Access,
        *,
        retries: Retries | None = None,
        budget: Budget | None = None,
        cache: ReplyCache | None = None,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self.access = access
        self.url = endpoint_url(access.url, access.api, access.section)
        target = Target(
            *(self.url, access.section, access.key, access.timeout_s),
            *(access.concurrency, access.advice),
            max_bytes=MAX_REPLY_BYTES,
        )
        # Requests that were under way together are one sign, not many.
        gone_after = max(_GONE_AFTER, 2 * access.concurrency)
        self._sender = Sender(target, retries=retries, gone_after=gone_after, sleep=sleep)
        self._budget = budget or Budget(section=access.section)
        self._cache = cache
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    @classmethod
    def of(
        cls, url: str, model: str, settings: EndpointConfig, section: str = "endpoint"
    ) -> Client:
        """The client that the section `endpoint` of a config describes, or another with its keys.

        Raises:
            ConfigError: for a wrong address or key.
            EndpointFailure: if the cache cannot be used.
        """
        allowance = Allowance(
            settings.max_calls,
            settings.max_tokens,
            settings.max_cost,
            settings.prompt_price,
            settings.completion_price,
        )
        access = Access(
            url,
            model,
            Api(settings.api),
            read_key(settings.key_env),
            settings.timeout_s,
            settings.concurrency,
            settings.extra,
            section,
        )
        endpoint_url(url, access.api, section)  # before anything is made on disk
        cache = None
        if settings.has_cache:
            cache = ReplyCache(settings.cache_path or default_cache(), section=section)
        retries = Retries(settings.max_retries)
        return cls(access, retries=retries, budget=Budget(allowance, section), cache=cache)

    @property
    def traffic(self) -> Traffic:
        """What was sent and spent so far."""
        return self._budget.traffic

    def cost_of(self, usage: Usage) -> float | None:
        """What so many tokens cost; None if there are no prices."""
        return self._budget.cost_of(usage)

    def start(self, request: Request) -> Future[Reply]:
        """Ask in the background, at most `concurrency` requests at a time."""
        job = (Future[Reply](), request)
        self._jobs.put(job)
        with self._lock:
            if len(self._threads) < self.access.concurrency:
                # Daemons: one that waits for a server does not keep the program from ending.
                thread = threading.Thread(target=self._work, name="endpoint", daemon=True)
                self._threads.append(thread)
                thread.start()
        return job[0]

    def complete(self, request: Request) -> Reply:
        """Ask, and wait for the reply.

        Raises:
            BudgetSpent: if nothing may be sent any more.
            EndpointFailure: if there is no reply; it says why, and what to do.
        """
        body, key = self._body_and_key(request)
        if self._cache is not None and (kept := self._cache.get(key)) is not None:
            self._budget.count(cached=1)
            return kept
        try:
            reply = self._send(body)
        except BudgetSpent:
            raise
        except EndpointFailure:
            self._budget.count(failed=1)
            raise
        if self._cache is not None:
            try:
                self._cache.put(key, reply)
            except EndpointFailure as error:  # the reply is good, and paid for
                self._budget.count(unkept=1, fault=str(error))
        return reply

    def forget(self, request: Request) -> None:
        """Keep no reply to a request: the caller could not use it, and another one may come."""
        if self._cache is not None:
            with suppress(EndpointFailure):  # it is only asked for in vain once more
                self._cache.drop(self._body_and_key(request)[1])

    def _body_and_key(self, request: Request) -> tuple[dict[str, Any], str]:
        """What is sent for a request, and the key of its reply in the cache."""
        body = make_body(self.access.model, self.access.api, request, self.access.extra)
        return body, cache_key(self.url, body, request.draw)

    def told(self, stops: tuple[str, ...]) -> tuple[str, ...]:
        """Which of some stop strings the server is told (`extra: {stop: null}`: none)."""
        return () if "stop" in self.access.extra else stops[:MAX_STOPS]

    def close(self) -> None:
        """End: nothing more is sent. What is under way has `PATIENCE_S` to arrive and be kept."""
        self._sender.stop()
        for _ in self._threads:
            self._jobs.put(None)
        until = time.monotonic() + PATIENCE_S
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        self._sender.close()
        if self._cache is not None:
            self._cache.close()

    def _work(self) -> None:
        """What a thread does: one job after the other, until there is None."""
        while (job := self._jobs.get()) is not None:
            asked, request = job
            if self._sender.is_stopping:
                asked.cancel()
            if not asked.set_running_or_notify_cancel():
                continue
            try:
                asked.set_result(self.complete(request))
            except BaseException as error:  # passed on to who asked
                asked.set_exception(error)

    def _send(self, body: dict[str, Any]) -> Reply:
        """Send a body, and count what it cost."""
        answer = self._sender.post(
            body, before=lambda is_retry: self._budget.take_call(is_retry=is_retry)
        )
        try:
            reply = read_reply(self.access.api, answer)
        except EndpointFailure as error:
            raise EndpointFailure(f"{self.url} {quote(error)}") from None
        self._budget.add(reply.usage)
        return reply
