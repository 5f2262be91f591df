"""Calls into the code of others: they overlap, they have time limits, and what hangs is named.

Python cannot end a thread: a call that is late is given up and keeps its thread. A call has the
caller's context variables, but not its thread-local state (torch's grad mode).
"""

from __future__ import annotations

import atexit
import contextvars
import faulthandler
import functools
import os
import sys
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar, TypeVarTuple

from searchrl.errors import SearchRLError

T = TypeVar("T")
R = TypeVar("R")
Ts = TypeVarTuple("Ts")

MAX_TOGETHER = 256
"""Calls of one queue that are under way at the same time, at most; those of objects beside them."""

STUCK_S = 300.0
"""Time that code may keep the interpreter, unless a time limit of the run is longer."""


class DeadlineExceeded(SearchRLError):
    """A call of `owner` did not return in time; `where` is the stack at which it hung."""

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
    fn: Callable[[*Ts], T],
    *args: *Ts,
    timeout_s: float | None,
    owner: str,
) -> T:
    """Return `fn(*args)`, or raise `DeadlineExceeded` of `owner` after `timeout_s` seconds."""
    (outcome,) = call_together([(functools.partial(fn, *args), owner)], timeout_s=timeout_s)
    return _unwrap(outcome)


def call_together(
    calls: Sequence[tuple[Callable[[], T], str]], *, timeout_s: float | None
) -> list[Returned[T] | Raised]:
    """Make the (function, owner) calls beside each other; outcomes stand in the same order."""
    with closing(CallQueue(timeout_s)) as queue:
        begun = [queue.add(fn, owner) for fn, owner in calls]
        queue.wait_for_all()
    return [call.result for call in begun]


def _unwrap(outcome: Returned[T] | Raised) -> T:
    if isinstance(outcome, Returned):
        return outcome.value
    try:
        raise outcome.error
    finally:
        del outcome  # breaks the cycle error -> traceback -> this frame -> error


@contextmanager
def inside(owner: str) -> Iterator[None]:
    """Say that what follows is code of `owner`, named if the call does not return."""
    if not isinstance(worker := threading.current_thread(), Worker):
        yield
        return
    before, worker.inside = worker.inside, owner
    try:
        yield
    finally:
        worker.inside = before


class CallLock:
    """A lock for code that takes one call at a time; time limits stand still in the queue."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder: threading.Thread | None = None

    def __enter__(self) -> None:
        with _waiting():
            while not self._lock.acquire(timeout=0.1):
                if isinstance(holder := self._holder, Worker) and (late := holder.late):
                    # One of its own for each caller: a raised error collects a traceback.
                    raise DeadlineExceeded(late.owner, late.timeout_s, late.where)
        self._holder = threading.current_thread()

    def __exit__(self, *raised: object) -> None:
        self._holder = None
        self._lock.release()


@dataclass(slots=True, eq=False)
class Call(Generic[T]):
    """A call in a `CallQueue`. Without a `worker`, its thread, it has not begun."""

    fn: Callable[[], T]
    owner: str
    home: Worker | None  # the thread that has to make it; None: any
    worker: Worker | None = None
    outcome: Returned[T] | Raised | None = None

    @property
    def result(self) -> Returned[T] | Raised:
        """The outcome of a call that was waited for."""
        assert self.outcome is not None, "this call was not waited for"
        return self.outcome


class CallQueue:
    """Calls beside the caller, each with `timeout_s` from its beginning; begun in order."""

    def __init__(self, timeout_s: float | None) -> None:
        self.timeout_s = threading.TIMEOUT_MAX if timeout_s is None else timeout_s
        self._open: dict[Call[Any], None] = {}
        """Calls of which the caller has not heard; `_waiting` are those any thread may begin."""
        self._waiting: deque[Call[Any]] = deque()
        self._done: SimpleQueue[Call[Any]] = SimpleQueue()
        self._lock = threading.Lock()
        self._num_workers = 0
        self._is_closed = False

    def add(self, fn: Callable[[], T], owner: str, home: Worker | None = None) -> Call[T]:
        """Add a call. `home` is the thread that has to make it."""
        call = Call(functools.partial(contextvars.copy_context().run, fn), owner, home)
        self._open[call] = None
        if home is None:
            self._waiting.append(call)
            self._employ()
        elif home.late is None:
            home.inbox.put(functools.partial(self._make, call))
        return call

    def wait_for_all(self) -> None:
        """Wait until every call has an outcome: one that misses its deadline is given up."""
        while self._open:
            self._wait()

    def wait_for_one(self, calls: Sequence[Call[Any]]) -> None:
        """Wait until some of these calls have an outcome."""
        while all(call.outcome is None for call in calls):
            self._wait()

    def close(self) -> None:
        """Give up every call that has no outcome. One that is under way keeps its thread."""
        self._is_closed = True
        for call in list(self._open):
            if call.home is not None and call.worker is not None:
                self._give_up(call)  # nobody looks any more whether it hangs

    def _employ(self) -> None:
        """Let one more thread make the calls that wait, if there may be more."""
        with self._lock:
            if not self._waiting or self._num_workers >= MAX_TOGETHER:
                return
            self._num_workers += 1
        _take().inbox.put(self._serve)

    def _wait(self) -> None:
        """Hear of a call that is over, or give up what is late by now."""
        now, pause_s, num_open = time.monotonic(), min(1.0, self.timeout_s), len(self._open)
        for call in list(self._open):
            if call.home is not None and call.home.late is not None:
                call.outcome = call.outcome or Raised(call.home.late)
            if call.outcome is not None:
                del self._open[call]
            # The clock of a call that waits for others stands still: it has no beginning.
            elif call.worker is not None and (began_at := call.worker.began_at) is not None:
                left_s = began_at + self.timeout_s - now
                if left_s <= 0:
                    self._give_up(call)
                pause_s = min(pause_s, max(left_s, 0.0))
        if len(self._open) == num_open:
            with suppress(Empty), _waiting():
                self._open.pop(self._done.get(timeout=pause_s), None)

    def _give_up(self, call: Call[Any]) -> None:
        worker = call.worker
        assert worker is not None
        stack = traceback.format_stack(sys._current_frames().get(worker.ident or 0))
        late = DeadlineExceeded(worker.inside or call.owner, self.timeout_s, "".join(stack))
        with self._lock:
            if call.outcome is not None:  # it has just come back
                return
            call.outcome, worker.late = Raised(late), late
            self._num_workers -= call.home is None
        _lost.append(worker)
        self._open.pop(call, None)
        self._employ()

    def _serve(self, worker: Worker) -> None:
        """Make calls until none waits, or one is given up."""
        call = self._next(worker)
        while call is not None and self._make(call, worker):
            following = self._next(worker)
            self._done.put(call)
            call = following

    def _next(self, worker: Worker) -> Call[Any] | None:
        """The call that waits longest; if there is none, the thread is free for other queues."""
        with self._lock:
            if self._waiting and not self._is_closed:
                return self._waiting.popleft()
            self._num_workers -= 1
        _idle.append(worker)
        return None

    def _make(self, call: Call[Any], worker: Worker) -> bool:
        """Make a call; False if it was given up meanwhile."""
        if self._is_closed:
            return True
        worker.inside, worker.began_at = "", time.monotonic()
        call.worker = worker
        outcome: Returned[Any] | Raised
        try:
            outcome = Returned(call.fn())
        except BaseException as error:  # passed on to the caller
            outcome = Raised(error)
        with self._lock:
            if call.outcome is not None:
                return False
            call.outcome = outcome
        if call.home is not None:
            self._done.put(call)
        return True


class Worker(threading.Thread):
    """A daemon thread that does one job at a time; an object may live in it (`Pinned`)."""

    def __init__(self) -> None:
        super().__init__(name="searchrl-calls", daemon=True)
        self.inbox: SimpleQueue[Callable[[Worker], object]] = SimpleQueue()
        self.inside = ""  # whose code it runs, if that is not the code of the owner of its call
        self.began_at: float | None = 0.0  # by the time that counts; None: it waits for others
        self.late: DeadlineExceeded | None = None  # why its call was given up
        self.start()

    def run(self) -> None:
        """Do what comes, until a call is given up."""
        while self.late is None:
            job = self.inbox.get()
            job(self)
            del job  # an idle thread must not keep a call's arguments and result alive

    @property
    def lives(self) -> bool:
        """True while it takes calls: until one is given up, and not in a forked process."""
        return self.late is None and self.is_alive()


_idle: deque[Worker] = deque()


_lost: list[Worker] = []


@atexit.register
def _count_lost() -> None:
    if num_lost := sum(map(Worker.is_alive, _lost)):
        print(f"threads lost to calls that never returned: {num_lost}", file=sys.stderr)


def _take() -> Worker:
    with suppress(IndexError):
        while True:
            if (worker := _idle.pop()).lives:  # not so of those that a forked process inherits
                return worker
    return Worker()


@contextmanager
def _waiting() -> Iterator[None]:
    """Stop the clock of this call's time limit while it waits for other calls."""
    worker = threading.current_thread()
    if not isinstance(worker, Worker) or worker.began_at is None:
        yield
        return
    used_s, worker.began_at = time.monotonic() - worker.began_at, None
    try:
        yield
    finally:
        worker.began_at = time.monotonic() - used_s


class Pinned(Generic[T]):
    """An object that is made (by `make`), called and closed in a thread of its own."""

    def __init__(self, make: Callable[[], T], owner: str) -> None:
        self.owner = owner
        self._get = functools.cache(make)
        self.home = _take()
        weakref.finalize(self, _idle.append, self.home)

    def call(self, queue: CallQueue, fn: Callable[[T], R]) -> Call[R]:
        """Add a call of `fn` with the object to a queue."""
        return queue.add(lambda: fn(self._get()), self.owner, self.home)

    def ask(self, fn: Callable[[T], R], timeout_s: float | None = None) -> R:
        """Return `fn(object)`, called in its thread; raises as `call_with_deadline`."""
        with closing(CallQueue(timeout_s)) as queue:
            call = self.call(queue, fn)
            queue.wait_for_all()
        return _unwrap(call.result)


_watch = {"stuck_s": 0.0}


def watch(stuck_s: float = STUCK_S) -> None:
    """From now on, end the process if no thread gets the interpreter for so many seconds.

    `faulthandler` then writes file and line of every thread to stderr. Off under pytest, which uses
    it too, and in notebooks.
    """
    if "pytest" in sys.modules or "ipykernel" in sys.modules:
        return
    is_first = not _watch["stuck_s"]
    _watch["stuck_s"] = stuck_s
    _arm()
    if is_first:
        threading.Thread(target=_rearm, name="searchrl-watch", daemon=True).start()
        if hasattr(os, "register_at_fork"):
            # A child has no thread of faulthandler's, and would wait for its end for good.
            disarm = faulthandler.cancel_dump_traceback_later
            os.register_at_fork(before=disarm, after_in_parent=_arm)


def _arm() -> None:
    faulthandler.dump_traceback_later(_watch["stuck_s"], exit=True, file=2)


def _rearm() -> None:
    while True:
        time.sleep(min(_watch["stuck_s"] / 8, 10.0))
        _arm()
