"""Sending to one server, again where that may help: what all our HTTP clients share.

Owns the repetitions: which calls are made once more and after what wait, a server that is down and
is not waited for again and again, and one that no call can succeed at and is not asked again. One
call is `transport`. It knows no model and no corpus. Callers: `client` and `lines`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from searchrl.endpoints.retries import Retries
from searchrl.endpoints.transport import Hopeless, Passing, Target, Transport
from searchrl.errors import EndpointFailure

_DOWN_AFTER = 3
"""Requests without an answer, one after the other, from which on a server counts as down."""


class Sender:
    """Posts JSON to one server; safe to use from several threads, which share its connections.

    Args:
        target: where, and how.
        retries: which calls are repeated, and when.
        gone_after: requests without an answer, one after the other, from which on nothing more is
            sent; None: there is no such number.
        sleep: how waits are waited; another one in tests. By default `stop` ends them.
    """

    def __init__(
        self,
        target: Target,
        *,
        retries: Retries | None = None,
        gone_after: int | None = None,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self._transport = Transport(target)
        self._retries = retries or Retries()
        self._stopping = threading.Event()
        self._sleep = sleep or self._stopping.wait
        self._lock = threading.Lock()
        self._hopeless: Hopeless | None = None
        self._gone_after = gone_after
        self._gone: str | None = None
        self._num_lost = 0

    def post(self, body: Any, *, before: Callable[[bool], None] = lambda is_retry: None) -> Any:
        """Send a body, again where that may help; the decoded JSON of the answer.

        `before(is_retry)` is called before each call; what it raises ends the matter.

        Raises:
            Refused: if the server finds fault with the request.
            EndpointFailure: if there is no answer, or none that is JSON.
        """
        for number in range(self._retries.max_retries + 1):
            with self._lock:
                hopeless, gone = self._hopeless, self._gone
                is_down = self._num_lost >= _DOWN_AFTER
            if hopeless is not None:
                raise Hopeless(str(hopeless), hopeless.status)
            if gone is not None:
                raise EndpointFailure(gone)
            if self._stopping.is_set():
                raise EndpointFailure("the client was closed before there was an answer")
            before(number > 0)
            try:
                answer = self._transport.post(body)
            except Passing as passing:
                wait_s = self._retries.wait_s(number, passing.asked_s)
                # A server that is down is not waited for again and again.
                if number < self._retries.max_retries and not is_down and wait_s is not None:
                    self._sleep(wait_s)
                    continue
                text = f"{passing} ({number + 1} times)" if number else str(passing)
                if wait_s is None:
                    text += f"; it asks to wait {passing.asked_s:g} s, which is too long"
                with self._lock:
                    self._num_lost += 1
                    if self._gone_after is not None and self._num_lost >= self._gone_after:
                        said = f"{self._num_lost} requests in a row had no answer: no more is sent"
                        self._gone = f"{text}; {said}"
                raise EndpointFailure(text) from passing
            except Hopeless as error:
                with self._lock:
                    self._hopeless = error
                raise
            with self._lock:
                self._num_lost = 0
            return answer
        raise AssertionError("the last repetition returns or raises")

    @property
    def is_hopeless(self) -> bool:
        """Whether the server refused what every other call would meet as well."""
        return self._hopeless is not None

    @property
    def is_stopping(self) -> bool:
        """Whether nothing more is sent."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Send nothing more, and end all waits; what is under way may arrive."""
        self._stopping.set()

    def close(self) -> None:
        """Stop, and close the connections."""
        self.stop()
        self._transport.close()
