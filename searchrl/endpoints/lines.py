"""Lines to servers: how many calls are under way, and how many begin in a second.

Owns what all who ask the same server in one process share: its connections, its limits, and what is
known of it (down, refusing everything). Sending and repeating is `sending`. Callers: retrievers
that ask a server, such as `http` and those of plugins.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Hashable
from typing import Any

from searchrl.endpoints.retries import Retries
from searchrl.endpoints.sending import Sender
from searchrl.endpoints.transport import Target


class Pace:
    """Lets calls begin `calls_per_s` times a second, evenly; None: as soon as they come.

    `now` and `sleep` are others in tests.
    """

    def __init__(
        self,
        calls_per_s: float | None,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._gap_s = 0.0 if calls_per_s is None else 1.0 / calls_per_s
        self._now = now
        self._sleep = sleep
        self._next = now()
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Wait until the next call may begin. Safe to use from several threads."""
        with self._lock:
            now = self._now()
            start = max(now, self._next)
            self._next = start + self._gap_s
        if start > now:
            self._sleep(start - now)


class Line:
    """The connections to a server, and how many calls may be under way.

    They are closed when nobody uses them any more.
    """

    def __init__(self, target: Target, retries: Retries, calls_per_s: float | None = None) -> None:
        self._sender = Sender(target, retries=retries)
        self._slots = threading.BoundedSemaphore(target.concurrency)
        self._pace = Pace(calls_per_s)
        weakref.finalize(self, self._sender.close)

    def post(self, body: Any) -> Any:
        """Send a body when it is its turn, again where that may help; the decoded answer.

        Raises:
            Refused: if the server finds fault with the request.
            EndpointFailure: if there is no answer, or none that is JSON.
        """
        with self._slots:
            return self._sender.post(body, before=lambda is_retry: self._pace.wait())

    @property
    def is_hopeless(self) -> bool:
        """Whether the server refused what every other call would meet as well."""
        return self._sender.is_hopeless


_lines: weakref.WeakValueDictionary[Hashable, Line] = weakref.WeakValueDictionary()
"""One per server while somebody uses it, however many corpora or sources it stands for."""
_lock = threading.Lock()


def line_to(target: Target, retries: Retries, calls_per_s: float | None = None) -> Line:
    """The line to a server: the one that there is for the same target and limits, or a new one."""
    key = (target, retries, calls_per_s)
    with _lock:
        line = _lines.get(key)
        # A server that refused everything may have been put right since: a new caller asks it.
        if line is None or line.is_hopeless:
            _lines[key] = line = Line(target, retries, calls_per_s)
        return line
