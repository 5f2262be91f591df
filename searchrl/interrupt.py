"""Ctrl-C as a request: finish what is safe to finish, then stop.

Owns the signal handler of long programs. The first Ctrl-C sets a flag that loops look at; the
second one raises at once.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class StopFlag:
    """Whether the user asked to stop; calling it reads it."""

    asked: bool = False

    def __call__(self) -> bool:
        """Whether to stop."""
        return self.asked


@contextmanager
def catching_ctrl_c() -> Iterator[StopFlag]:
    """Yield a flag that the first Ctrl-C sets. Outside the main thread it is never set."""
    stop = StopFlag()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handle(number: int, frame: Any) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True

    previous = signal.signal(signal.SIGINT, handle)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, previous)
