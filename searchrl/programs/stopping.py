"""Ctrl-C as a request: finish what is safe to finish, then stop.

Owns the signal handlers of long programs. The first Ctrl-C sets a flag that loops look at; the
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
def catching_ctrl_c(*, and_sigterm: bool = False) -> Iterator[StopFlag]:
    """Yield a flag that the first Ctrl-C sets. Outside the main thread it is never set.

    `and_sigterm`: SIGTERM is a Ctrl-C, too. torchrun sends it when another process has died, half
    a minute before it kills.
    """
    stop = StopFlag()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handle(number: int, frame: Any) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True

    caught = (signal.SIGINT, signal.SIGTERM) if and_sigterm else (signal.SIGINT,)
    previous = {number: signal.signal(number, handle) for number in caught}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
