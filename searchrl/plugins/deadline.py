"""Calls with a deadline: run foreign code that may hang, and report which code hung and where.

Owns a pool of reusable daemon threads. A call that misses its deadline keeps its thread (Python
cannot kill one), the pool forgets the thread, and `DeadlineExceeded` holds the place where the code
hangs. Daemon threads never delay the exit of the interpreter. `call_together` waits for a batch of
calls at the same time. Nothing is retried, counted or classified here: the scorer does that for
reward components, the rollout driver for environments.

`fn` runs in another thread than the caller, not always the same one, with a copy of the caller's
context variables. Thread-local state (an sqlite3 connection, torch's grad mode) does not follow.
"""

from __future__ import annotations

import contextvars
import functools
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, Queue, SimpleQueue
from typing import Any, Generic, TypeVar, TypeVarTuple

from searchrl.errors import SearchRLError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MAX_TOGETHER = 256
"""Calls of one batch that are under way at the same time, at most."""

MAX_HANGING = 1024
"""Threads that may hang at the same time. More calls are refused until some of them return."""

_PATIENCE_S = 0.25
"""How long a batch waits for its first call before it starts the next one at the same time."""


class DeadlineExceeded(SearchRLError):
    """A call did not return in time. `where` is the stack at which it was found hanging."""

    def __init__(self, owner: str, timeout_s: float, where: str = "") -> None:
        super().__init__(f"{owner} did not return within {timeout_s:g} s")
        self.owner = owner
        self.timeout_s = timeout_s
        self.where = where


@dataclass(frozen=True, slots=True)
class Returned(Generic[T]):
    """A call came back with a value."""

    value: T


@dataclass(frozen=True, slots=True)
class Raised:
    """A call raised, or missed its deadline (`DeadlineExceeded`)."""

    error: BaseException


def call_with_deadline(
    fn: Callable[[*Ts], T], *args: *Ts, timeout_s: float | None, owner: str
) -> T:
    """Return `fn(*args)`, or raise `DeadlineExceeded` naming `owner` after `timeout_s` seconds.

    What `fn` raises is raised here, traceback included. `timeout_s=None` calls directly.
    """
    if timeout_s is None:
        return fn(*args)
    (outcome,) = call_together([(functools.partial(fn, *args), owner)], timeout_s=timeout_s)
    if isinstance(outcome, Returned):
        return outcome.value
    try:
        raise outcome.error
    finally:
        del outcome  # breaks the cycle error -> traceback -> this frame -> error


def call_together(
    calls: Sequence[tuple[Callable[[], T], str]], *, timeout_s: float | None
) -> list[Returned[T] | Raised]:
    """Make the (function, owner) calls, each with its own deadline; outcomes in the same order.

    Calls that return quickly run one after another. While a slow call runs, the next ones start,
    with less waiting each time: a batch in which every call hangs takes little more than one
    `timeout_s`, not one per call. `timeout_s=None` calls directly, one after another.
    """
    if timeout_s is None:
        return [_call_here(fn) for fn, _ in calls]
    patience_s = min(_PATIENCE_S, timeout_s / 8)
    begun: list[_Call[T]] = []
    try:
        for fn, owner in calls:
            if len(begun) >= MAX_TOGETHER:
                begun[-MAX_TOGETHER].finish()
            begun.append(_Call(fn, owner, timeout_s))
            if not begun[-1].wait(patience_s):
                # Halving: all waits of a batch together take at most twice the first one.
                patience_s /= 2
        return [call.finish() for call in begun]
    except BaseException:  # Ctrl-C while waiting
        for call in begun:
            call.abandon()
        raise


def _call_here(fn: Callable[[], T]) -> Returned[T] | Raised:
    try:
        return Returned(fn())
    except (Exception, SystemExit) as error:  # a KeyboardInterrupt here is the user's
        return Raised(error)


class _Worker:
    """One daemon thread that runs one job at a time: `inbox` in, `outbox` out; None ends it."""

    def __init__(self) -> None:
        self.inbox: SimpleQueue[tuple[contextvars.Context, Callable[[], Any]] | None]
        self.inbox = SimpleQueue()
        # Not a SimpleQueue: in CPython 3.11 its `get` with a time-out that runs out between two
        # looks at the clock waits for ever, and short patience makes that likely.
        self.outbox: Queue[Returned[Any] | Raised] = Queue()
        self.thread = threading.Thread(target=self._run, name="searchrl-deadline", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while (job := self.inbox.get()) is not None:
            context, fn = job
            outcome: Returned[Any] | Raised
            try:
                outcome = Returned(context.run(fn))
            except BaseException as error:  # passed on to the caller
                outcome = Raised(error)
            self.outbox.put(outcome)
            # An idle worker must not keep the last call's arguments and result alive.
            del job, context, fn, outcome

    def where(self) -> str:
        """The stack of the thread at this moment."""
        frame = sys._current_frames().get(self.thread.ident or 0)
        return "".join(traceback.format_stack(frame)) if frame is not None else ""


# Idle workers only: a busy worker belongs to its call. `deque` is thread-safe for append and pop.
# The most recently used worker is taken first, so a single caller always gets the same thread.
_idle: deque[_Worker] = deque()
_MAX_IDLE = 4 * (os.cpu_count() or 1) + 4
_abandoned: list[threading.Thread] = []


class _Call(Generic[T]):
    """A call under way in a worker of its own, until it is finished or abandoned."""

    def __init__(self, fn: Callable[[], T], owner: str, timeout_s: float) -> None:
        self._owner = owner
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + min(max(timeout_s, 0.0), threading.TIMEOUT_MAX)
        self._worker: _Worker | None = None
        self._outcome: Returned[T] | Raised | None = None
        if _num_hanging() >= MAX_HANGING:
            self._outcome = Raised(
                SearchRLError(f"{owner} was not called: {MAX_HANGING} earlier calls still hang")
            )
            return
        self._worker = _take()
        self._worker.inbox.put((contextvars.copy_context(), fn))

    def wait(self, seconds: float) -> bool:
        """Wait for the outcome, at most until the deadline; True if it is there."""
        if self._worker is None:
            return True
        left_s = min(seconds, max(self._deadline - time.monotonic(), 0.0))
        try:
            self._outcome = self._worker.outbox.get(timeout=left_s)
        except Empty:
            return False
        if len(_idle) < _MAX_IDLE:
            _idle.append(self._worker)
        else:
            self._worker.inbox.put(None)
        self._worker = None
        return True

    def finish(self) -> Returned[T] | Raised:
        """The outcome; a call that has none by its deadline is abandoned."""
        if not self.wait(threading.TIMEOUT_MAX):
            assert self._worker is not None
            late = DeadlineExceeded(self._owner, self._timeout_s, self._worker.where())
            self._outcome = Raised(late)
            self.abandon()
        assert self._outcome is not None
        return self._outcome

    def abandon(self) -> None:
        """Give up a call that has not returned, and its worker with it."""
        if self._worker is not None:
            self._worker.inbox.put(None)  # if the call ever returns, its thread ends
            _abandoned.append(self._worker.thread)
            self._worker = None


def _num_hanging() -> int:
    if len(_abandoned) >= MAX_HANGING:
        _abandoned[:] = [thread for thread in _abandoned if thread.is_alive()]
    return len(_abandoned)


def _take() -> _Worker:
    while _idle:
        try:
            worker = _idle.pop()
        except IndexError:  # another thread took the last one
            break
        if worker.thread.is_alive():  # after a fork the child inherits workers without threads
            return worker
    return _Worker()
