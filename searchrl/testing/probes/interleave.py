"""Two calls at once, line by line: what one leaves in a shared place, the other one finds.

Owns the baton that two threads hand to each other after every line of the plugin's code. Races that
two plain threads meet once in a thousand runs are met at once, and always in the same way. A
thread that does not take the baton (it sleeps, or waits for a lock of the plugin's) is passed over.
The checks of `trials` use it.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from searchrl.calls.deadline import Raised, Returned

_PATIENCE_S = 0.1
"""How long a thread may take to come to its next line before it is passed over."""

_MAX_LINES = 4000
"""Changes of the baton; a long call goes on without."""

_tracing = threading.Lock()
"""Held while a trace function is put in or taken out: Python refuses two threads at once there."""


def files_of(file: str, made: object) -> frozenset[str]:
    """The files of a plugin whose lines take turns: its own, and that of the object's class."""
    try:
        return frozenset({file, inspect.getsourcefile(type(made)) or file})
    except TypeError:  # built in C
        return frozenset({file})


def call_both(
    one: Callable[[], object], other: Callable[[], object], files: frozenset[str]
) -> tuple[Returned[object] | Raised, Returned[object] | Raised]:
    """Make two calls in two threads that take turns at each line of `files`."""
    baton = _Baton()
    outcomes: list[Returned[object] | Raised | None] = [None, None]

    def run(number: int, call: Callable[[], object]) -> None:
        def trace(frame: FrameType, event: str, value: Any) -> Any:
            if frame.f_code.co_filename not in files:
                return None
            if event == "line":
                baton.pass_on(number)
            return trace

        with _tracing:
            sys.settrace(trace)
        try:
            outcomes[number] = Returned(call())
        except (Exception, SystemExit) as error:
            outcomes[number] = Raised(error)
        finally:
            with _tracing:
                sys.settrace(None)
            baton.leave(number)

    threads = [
        threading.Thread(target=run, args=pair, daemon=True) for pair in enumerate((one, other))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first, second = outcomes
    assert first is not None and second is not None
    return first, second


class _Baton:
    """Whose line is next: thread 0 or thread 1."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holder = 0
        self._away: set[int] = set()
        """Threads that are over, or did not take the baton when they got it."""
        self._num_passed = 0

    def pass_on(self, number: int) -> None:
        """Give the baton to the other thread, and wait until it comes back."""
        other = 1 - number
        with self._changed:
            self._away.discard(number)
            self._num_passed += 1
            if other in self._away or self._num_passed > _MAX_LINES:
                return
            self._holder = other
            self._changed.notify_all()
            came_back = self._changed.wait_for(
                lambda: self._holder == number or other in self._away, _PATIENCE_S
            )
            if not came_back:
                self._away.add(other)
                self._holder = number

    def leave(self, number: int) -> None:
        """The thread is over."""
        with self._changed:
            self._away.add(number)
            self._changed.notify_all()
