"""Calls with a deadline: run foreign code that may hang, and say who hung and where.

Owns a pool of reusable daemon threads. A call that misses its deadline keeps its thread (Python
cannot kill one), the pool forgets it, and the caller gets `DeadlineExceeded` with the place where
the code hangs. Daemon threads never hold up the exit of the interpreter. It does not retry, count
or classify: the scorer does that for reward components, the rollout driver for environments.

`fn` runs in another thread than the caller, not always the same one, with a copy of the caller's
context variables. Thread-local state (an sqlite3 connection, torch's grad mode) does not follow.
"""

from __future__ import annotations

import contextvars
import os
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar, TypeVarTuple

from searchrl.errors import SearchRLError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_Job = tuple[contextvars.Context, Callable[..., Any], tuple[Any, ...]]


class DeadlineExceeded(SearchRLError):
    """A call did not return in time. `where` is the stack at which it was found hanging."""

    def __init__(self, owner: str, timeout_s: float, where: str = "") -> None:
        super().__init__(f"{owner} did not return within {timeout_s:g} s")
        self.owner = owner
        self.timeout_s = timeout_s
        self.where = where


class _Worker:
    """One daemon thread that runs one job at a time: `inbox` in, `outbox` (value, error) out."""

    def __init__(self) -> None:
        self.inbox: SimpleQueue[_Job | None] = SimpleQueue()
        self.outbox: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self.thread = threading.Thread(target=self._run, name="searchrl-deadline", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while (job := self.inbox.get()) is not None:
            context, fn, args = job
            try:
                outcome: tuple[Any, BaseException | None] = (context.run(fn, *args), None)
            except BaseException as error:  # handed over: the caller raises it
                outcome = (None, error)
            self.outbox.put(outcome)
            # An idle worker must not keep the last call's arguments and result alive.
            del job, context, fn, args, outcome

    def where(self) -> str:
        """The stack the thread stands at now."""
        frame = sys._current_frames().get(self.thread.ident or 0)
        return "".join(traceback.format_stack(frame)) if frame is not None else ""


# Idle workers only: a busy worker belongs to its caller, an abandoned one to nobody. `deque` is
# thread-safe for append and pop. The most recently used worker is taken first, so one caller
# keeps meeting the same thread.
_idle: deque[_Worker] = deque()
_MAX_IDLE = 4 * (os.cpu_count() or 1) + 4


def call_with_deadline(
    fn: Callable[[*Ts], T], *args: *Ts, timeout_s: float | None, owner: str
) -> T:
    """Return `fn(*args)`, or raise `DeadlineExceeded` naming `owner` after `timeout_s` seconds.

    What `fn` raises is raised here, traceback included. `timeout_s=None` calls directly.
    """
    if timeout_s is None:
        return fn(*args)
    worker = _take()
    worker.inbox.put((contextvars.copy_context(), fn, args))
    try:
        value, error = worker.outbox.get(timeout=min(max(timeout_s, 0.0), threading.TIMEOUT_MAX))
    except BaseException as interruption:  # too late, or Ctrl-C while waiting
        where = worker.where()
        worker.inbox.put(None)  # should it ever return, its thread ends instead of leaking
        if isinstance(interruption, Empty):
            raise DeadlineExceeded(owner, timeout_s, where) from None
        raise
    if len(_idle) < _MAX_IDLE:
        _idle.append(worker)
    else:
        worker.inbox.put(None)
    if error is not None:
        try:
            raise error
        finally:
            del error  # breaks the cycle error -> traceback -> this frame -> error
    result: T = value
    return result


def _take() -> _Worker:
    while _idle:
        try:
            worker = _idle.pop()
        except IndexError:  # another thread took the last one
            break
        if worker.thread.is_alive():  # after a fork the child inherits workers without threads
            return worker
    return _Worker()
