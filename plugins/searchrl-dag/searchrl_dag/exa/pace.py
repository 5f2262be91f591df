"""How many calls begin in a second, of all that ask one address in this process."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable


class Pace:
    """Lets calls begin `calls_per_s` times a second, evenly. `now` and `sleep` are others in tests.

    Safe to use from several threads.
    """

    def __init__(
        self,
        calls_per_s: float,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._gap_s = 1.0 / calls_per_s
        self._now = now
        self._sleep = sleep
        self._next = now()
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Wait until the next call may begin."""
        with self._lock:
            now = self._now()
            start = max(now, self._next)
            self._next = start + self._gap_s
        if start > now:
            self._sleep(start - now)


@functools.cache
def pace_of(url: str, calls_per_s: float) -> Pace:
    """The pace of all that ask an address as often."""
    return Pace(calls_per_s)
