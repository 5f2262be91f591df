"""The calls under way: which thread makes them, how they overlap, and what becomes of late ones.

Owns a pool of reusable daemon threads, and the threads in which objects live that bear one only
(`pinned`). Every call has a thread while it is made, so that calls which wait overlap. A call that
misses its deadline keeps its thread (Python cannot kill one), the pool forgets the thread, and
`DeadlineExceeded` holds the place where the code hangs. Daemon threads never delay the exit of the
interpreter. `deadline` is the way in for most callers; the rollout driver has a queue of its own.
"""

from __future__ import annotations

import contextvars
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from searchrl.calls import watchdog
from searchrl.calls.outcomes import DeadlineExceeded, Raised, Returned
from searchrl.errors import SearchRLError

T = TypeVar("T")

MAX_TOGETHER = 256
"""Calls of one queue that are under way at the same time, at most; and threads with objects."""

MAX_HANGING = 1024
"""Threads that may hang at the same time. More calls are refused until some of them return."""


@contextmanager
def inside(owner: str) -> Iterator[None]:
    """Say that what follows is code of `owner`: it is named if the call does not return.

    For a part that is called by another one: a retriever that an environment searches. Only the
    innermost counts. Outside of a call with a deadline it does nothing.
    """
    worker = _here.worker
    if worker is None:
        yield
        return
    before, worker.inside = worker.inside, owner
    try:
        yield
    finally:
        worker.inside = before


class Turn:
    """A lock for code that takes one call at a time, whose time limits count their own time only.

    Whoever waits for it is not late because of the others. If the one that has it is given up, all
    who wait raise its `DeadlineExceeded`, and so does everybody who comes before it returns.
    """

    _LOOK_S = 0.1
    """How often those who wait look whether the one before them was given up."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_taken = False
        self._holder: Worker | None = None

    def __enter__(self) -> None:
        worker = _here.worker
        with self._changed, worker.waiting() if worker is not None else nullcontext():
            while self._is_taken:
                if self._holder is not None and self._holder.late is not None:
                    raise self._holder.late.again()
                self._changed.wait(self._LOOK_S)
            self._is_taken, self._holder = True, worker

    def __exit__(self, *raised: object) -> None:
        with self._changed:
            self._is_taken, self._holder = False, None
            self._changed.notify()


@dataclass(slots=True, eq=False)
class Call(Generic[T]):
    """A call in a `CallQueue`: waiting for its turn, under way, or with an outcome."""

    fn: Callable[[], T]
    owner: str
    home: Worker | None = None
    """The thread that has to make it; None: any."""
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    came_back: Returned[T] | Raised | None = None
    """Its outcome as its own thread tells it; nobody else looks once the call is given up."""
    outcome: Returned[T] | Raised | None = None
    worker: Worker | None = None
    """The thread that makes it; None before it has begun."""
    began_at: float = 0.0

    def make(self, worker: Worker) -> None:
        """Make it in this thread, the worker's."""
        worker.inside, worker.waited_s = "", 0.0
        self.began_at, self.worker = time.monotonic(), worker
        try:
            self.came_back = Returned(self.context.run(self.fn))
        except BaseException as error:  # passed on to the caller
            self.came_back = Raised(error)

    def left_s(self, timeout_s: float, now: float) -> float:
        """How long it may still take: it is not late before it has begun, or while it waits."""
        if self.worker is None:
            return timeout_s
        return timeout_s - (now - self.began_at - self.worker.waited_until(now))

    @property
    def is_over(self) -> bool:
        """Whether there is an outcome."""
        return self.outcome is not None

    @property
    def result(self) -> Returned[T] | Raised:
        """The outcome of a call that was waited for."""
        assert self.outcome is not None, "this call was not waited for"
        return self.outcome


class CallQueue:
    """Calls beside the caller. They begin in the order in which they were added.

    Args:
        timeout_s: the time limit of a call, from its own beginning; None: none.
        alone: owners that are called by one thread at a time. Once a call of such an owner hangs,
            no other of this queue is made.
    """

    def __init__(self, timeout_s: float | None, alone: Collection[str] = ()) -> None:
        limit_s = threading.TIMEOUT_MAX if timeout_s is None else timeout_s
        self.timeout_s = min(max(limit_s, 0.0), threading.TIMEOUT_MAX)
        self._alone = frozenset(alone)
        # One that knows its owner: `_held` needs that.
        self._lock = threading.RLock()
        self._finished = threading.Condition(self._lock)
        self._waiting: deque[Call[Any]] = deque()
        self._running: dict[Call[Any], None] = {}
        """Calls that were given to a thread."""
        self._hanging: set[str] = set()
        """Owners among `alone` of which a call hangs."""
        self._num_workers = 0
        self._tells_each = False

    def add(self, fn: Callable[[], T], owner: str, home: Worker | None = None) -> Call[T]:
        """Add a call; it begins as soon as it is its turn. `home` is the thread that makes it."""
        call = Call(fn, owner, home)
        with self._lock:
            if _num_hanging() >= MAX_HANGING:
                text = f"{owner} was not called: {MAX_HANGING} earlier calls still hang"
                call.outcome = Raised(SearchRLError(text))
            elif owner in self._hanging:
                self._refuse(call)
            elif home is not None and home.late is not None:
                call.outcome = Raised(home.late.again())
            elif home is not None:
                self._running[call] = None
                home.inbox.put((self, call))
            else:
                self._waiting.append(call)
                if self._num_workers < MAX_TOGETHER and (first := self._next()) is not None:
                    self._num_workers += 1
                    _take().inbox.put((self, first))
        return call

    def wait_for_all(self) -> None:
        """Wait until every call has an outcome: one that misses its deadline is given up."""
        with self._held():
            pause_s = self._tend()
            while self._waiting or self._running:
                self._finished.wait(pause_s)
                pause_s = self._tend()

    def wait_for_one(self, calls: Sequence[Call[Any]]) -> None:
        """Wait until some of these calls have an outcome."""
        with self._held():
            self._tells_each = True
            pause_s = self._tend()
            while not any(call.is_over for call in calls):
                self._finished.wait(pause_s)
                pause_s = self._tend()
            self._tells_each = False

    def close(self) -> None:
        """Give up every call that has no outcome. One that is under way keeps its thread."""
        with self._lock:
            self._waiting.clear()
            for call in [one for one in self._running if one.home is not None and one.worker]:
                self._give_up(call)  # nobody looks whether it hangs, and others live there
            self._running.clear()

    @contextmanager
    def _held(self) -> Iterator[None]:
        """The lock, for a caller whom Ctrl-C may meet while it waits.

        Python's `Condition.wait` then raises without having got the lock again.
        """
        self._lock.acquire()
        try:
            yield
        finally:
            with suppress(RuntimeError):  # somebody else has it
                self._lock.release()

    def serve(self, worker: Worker, call: Call[Any] | None) -> None:
        """What a worker does for this queue: this call, then those that wait for no thread."""
        while call is not None:
            if call in self._running:  # else it was given up before it had begun
                call.make(worker)
            with self._lock:
                if worker.late is not None:
                    return
                if call in self._running:
                    call.outcome = call.came_back
                    del self._running[call]
                call = None if worker.is_home else self._next()
                if call is None and not worker.is_home:
                    self._num_workers -= 1
                    worker.rest()
                if self._tells_each or not (self._running or self._waiting):
                    self._finished.notify_all()

    # What follows is called with the lock held.

    def _tend(self) -> float | None:
        """Give up what is late; seconds until there is more to do."""
        now = time.monotonic()
        for call in list(self._running):
            if call.worker is None and call.home is not None and call.home.late is not None:
                call.outcome = Raised(call.home.late.again())
                del self._running[call]
            # One that has come back waits for the lock, and is not late.
            elif call.came_back is None and call.left_s(self.timeout_s, now) <= 0:
                self._give_up(call)
        # A wait of next to nothing is a wait all the same: no thread may spin on the lock.
        looks = [max(call.left_s(self.timeout_s, now), 1e-4) for call in self._running]
        return min(looks, default=None)

    def _next(self) -> Call[Any] | None:
        """The call that is made next, if one may be."""
        busy = self._alone and {call.owner for call in self._running}
        for call in self._waiting:
            if call.owner not in self._alone or call.owner not in busy:
                self._waiting.remove(call)
                self._running[call] = None
                return call
        return None

    def _give_up(self, call: Call[Any]) -> None:
        """Give up a call that is late; of an owner that is called alone, all that wait as well."""
        worker = call.worker
        assert worker is not None
        worker.late = DeadlineExceeded(worker.inside or call.owner, self.timeout_s, worker.where())
        call.outcome = Raised(worker.late)
        _abandoned.append(worker.thread)
        del self._running[call]
        if call.home is None:
            self._num_workers -= 1
        if call.owner in self._alone:
            self._hanging.add(call.owner)
            for other in [other for other in self._waiting if other.owner == call.owner]:
                self._refuse(other)
                self._waiting.remove(other)
        if call.home is None and (following := self._next()) is not None:
            self._num_workers += 1
            _take().inbox.put((self, following))

    def _refuse(self, call: Call[Any]) -> None:
        text = f"{call.owner} was not called: it takes one call at a time, and an earlier one hangs"
        call.outcome = Raised(SearchRLError(text))


class Worker:
    """One daemon thread that makes one call at a time; None in its `inbox` ends it.

    `is_home`: objects live in it (see `pinned`), so it makes their calls alone, and never rests.
    """

    def __init__(self, *, is_home: bool = False) -> None:
        self.inbox: SimpleQueue[tuple[CallQueue, Call[Any]] | None] = SimpleQueue()
        self.is_home = is_home
        self.inside = ""
        """Whose code it runs, if that is not the code of the owner of its call."""
        self.waited_s = 0.0
        """How long its call has waited for turns, the present wait left out."""
        self._waits_since: float | None = None
        self.late: DeadlineExceeded | None = None
        """Why its call was given up: nothing else is made here."""
        self.thread = threading.Thread(target=self._run, name="searchrl-calls", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        _here.worker = self
        watchdog.introduce()
        while (job := self.inbox.get()) is not None:
            queue, call = job
            queue.serve(self, call)
            # An idle worker must not keep the last call's arguments and result alive.
            del job, queue, call
            if self.late is not None:  # its call has returned after all
                return

    @property
    def lives(self) -> bool:
        """Whether it takes calls: no longer once one was given up, nor in a forked process."""
        return self.late is None and self.thread.is_alive()

    def rest(self) -> None:
        """Go back to the pool. A call that comes before the last one has quite ended waits."""
        if len(_idle) < MAX_TOGETHER:
            _idle.append(self)
        else:
            self.inbox.put(None)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """What follows waits for other calls: the time limit of its own stands still."""
        self._waits_since = began = time.monotonic()
        try:
            yield
        finally:
            self._waits_since = None
            self.waited_s += time.monotonic() - began

    def waited_until(self, now: float) -> float:
        """How long its call has waited for turns."""
        since = self._waits_since
        return self.waited_s + (0.0 if since is None else max(now - since, 0.0))

    def where(self) -> str:
        """The stack of the thread at this moment."""
        frame = sys._current_frames().get(self.thread.ident or 0)
        return "".join(traceback.format_stack(frame)) if frame is not None else ""


class _Here(threading.local):
    """The worker of this thread, if it is one."""

    worker: Worker | None = None


_here = _Here()

# Idle workers only: a busy worker belongs to its queue. `deque` is thread-safe for append and pop.
# The most recently used worker is taken first, so a single caller always gets the same thread.
_idle: deque[Worker] = deque()
_abandoned: list[threading.Thread] = []


def _num_hanging() -> int:
    if len(_abandoned) >= MAX_HANGING:
        _abandoned[:] = [thread for thread in _abandoned if thread.is_alive()]
    return len(_abandoned)


def _take() -> Worker:
    while _idle:
        try:
            worker = _idle.pop()
        except IndexError:  # another thread took the last one
            break
        if worker.lives:  # after a fork the child inherits workers without threads
            return worker
    return Worker()
