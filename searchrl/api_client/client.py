"""One client for models behind OpenAI-compatible addresses: cache, threads, budget.

A call is counted when it is sent, tokens when the reply says them: calls never exceed their limit,
tokens and cost by no more than the calls that were under way.
"""

from __future__ import annotations

import threading
import warnings
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace

from searchrl.api_client.exchange import MAX_STOPS, PATHS, Reply, Request, make_body, read_reply
from searchrl.api_client.server import Server, quote, read_key
from searchrl.cache import JsonCache
from searchrl.config.endpoint import EndpointConfig
from searchrl.contracts import Traffic
from searchrl.errors import BudgetSpent, EndpointFailure
from searchrl.files import cache_path


class Client:
    """Asks one model of one endpoint; safe to use from several threads.

    Args:
        url: the address, such as `http://localhost:8000/v1`.
        model: the name under which the server knows it.
        settings: the section `endpoint` of a config, or another with its keys.
        section: the name of this section, for messages: `endpoint`, `judge`.

    `traffic` counts requests, tokens and cost so far. A wrong address or key is a `ConfigError`, a
    cache that cannot be used an `EndpointFailure`.
    """

    def __init__(
        self, url: str, model: str, settings: EndpointConfig, section: str = "endpoint"
    ) -> None:
        for form in PATHS.values():  # a whole address, of either interface
            url = url.rstrip("/").removesuffix(form)
        self.url = url + PATHS[settings.api]
        self.concurrency = settings.concurrency
        self._model, self._settings, self._section = model, settings, section
        left_out = f"a key that it does not take is left out with --set {section}.extra.KEY=null"
        self._server = Server(
            self.url,
            section,
            key=read_key(settings.key_env),
            timeout_s=settings.timeout_s,
            max_retries=settings.max_retries,
            concurrency=settings.concurrency,
            advice=((400, left_out), (422, left_out), (404, "look at address and model name")),
            max_bytes=2**20,  # ten times the longest that a model writes
        )
        self._cache: JsonCache | None = None
        if settings.has_cache:
            path = settings.cache_path or cache_path("endpoints.sqlite")
            advice = f"remove the file, or use none: --set {section}.cache=off"
            self._cache = JsonCache(path, advice=advice)
        self.traffic = self.estimate(0, 0, 0)
        self._is_closed = False
        self._slots = threading.BoundedSemaphore(settings.concurrency)
        self._lock = threading.Lock()

    def estimate(self, calls: int, prompt_tokens: int, completion_tokens: int) -> Traffic:
        """The cost of so many calls and tokens."""
        prompt, completion = self._settings.prompt_price, self._settings.completion_price
        cost = None
        if prompt is not None and completion is not None:
            cost = (prompt_tokens * prompt + completion_tokens * completion) / 1_000_000
        return Traffic(
            calls, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens, cost=cost
        )

    def start(self, request: Request) -> Future[Reply]:
        """Ask in the background, at most `concurrency` requests at a time."""
        future: Future[Reply] = Future()
        # A daemon: one that waits for a server does not keep the program from ending.
        task = (self._answer, future, request)
        threading.Thread(target=copy_context().run, args=task, daemon=True).start()
        return future

    def _answer(self, future: Future[Reply], request: Request) -> None:
        with self._slots:
            if self._is_closed:
                future.cancel()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(self.complete(request))
                except BaseException as error:
                    future.set_exception(error)

    def complete(self, request: Request) -> Reply:
        """Ask, and wait for the reply.

        `BudgetSpent`: nothing may be sent any more. `EndpointFailure`: there is no reply, and why.
        """
        body = make_body(self._model, self._settings.api, request, self._settings.extra)
        key = JsonCache.key(self.url, body, request.draw)
        if self._cache is not None and (kept := self._cache.get(key)) is not None:
            with suppress(EndpointFailure):  # it is damaged: then it is asked for again
                reply = read_reply(self._settings.api, kept)
                self._count(cached=1)
                return reply
        try:
            answer = self._server.post(body, before=self._take_call)
            reply = read_reply(self._settings.api, answer)
        except BudgetSpent:
            raise
        except EndpointFailure as error:
            self._count(failed=1)
            told = str(error) if self.url in str(error) else f"{self.url} {quote(error)}"
            raise EndpointFailure(told) from None
        if reply.usage is None:
            self._count(uncounted=1)
        else:
            self._count(prompt_tokens=reply.usage[0], completion_tokens=reply.usage[1])
        if self._cache is not None:
            try:
                self._cache.put(key, answer)
            except EndpointFailure as error:  # the reply is good, and paid for
                warnings.warn(str(error), stacklevel=2)
        return reply

    def forget(self, request: Request) -> None:
        """Keep no reply to a request: the caller could not use it, and another one may come."""
        if self._cache is not None:
            body = make_body(self._model, self._settings.api, request, self._settings.extra)
            with suppress(EndpointFailure):  # it is only asked for in vain once more
                self._cache.put(JsonCache.key(self.url, body, request.draw), None)

    def told(self, stops: tuple[str, ...]) -> tuple[str, ...]:
        """The stop strings that the server is told (`extra: {stop: null}`: none)."""
        return () if "stop" in self._settings.extra else stops[:MAX_STOPS]

    def close(self) -> None:
        """End: nothing more is sent. What is under way is still kept if the program goes on."""
        self._is_closed = True

    def _take_call(self, is_retry: bool) -> None:
        """Count a call that is about to be sent, or refuse it."""
        if self._is_closed:
            raise EndpointFailure("the client was closed before there was an answer")
        with self._lock:
            spent, limits, section = self.traffic, self._settings, self._section
            for name, used, limit in (
                ("max_calls", spent.calls, limits.max_calls),
                ("max_tokens", spent.tokens, limits.max_tokens),
                ("max_cost", spent.cost, limits.max_cost),
            ):
                told = ""
                if limit is not None and used is not None and used >= limit:
                    told = f"is used up: {used:g} spent; raise it with --set {section}.{name}=…"
                elif limit is not None and spent.uncounted and name != "max_calls":
                    told = f"is lost, no tokens are counted; use --set {section}.max_calls=…"
                if told:
                    raise BudgetSpent(f"the budget of the {section}, {name} = {limit:g}, {told}")
            self.traffic = replace(spent, calls=spent.calls + 1, retries=spent.retries + is_retry)

    def _count(self, **more: int) -> None:
        with self._lock:
            sums = {name: getattr(self.traffic, name) + number for name, number in more.items()}
            spent = replace(self.traffic, **sums)
            cost = self.estimate(0, spent.prompt_tokens, spent.completion_tokens).cost
            self.traffic = replace(spent, cost=cost)
