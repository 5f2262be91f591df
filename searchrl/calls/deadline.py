"""Calls with a deadline: run foreign code that may wait or hang, and say which code hung and where.

Owns the two ways to make such calls and wait for them: one, and a batch whose waits overlap. How
they overlap is the business of `calls`. Nothing is retried, counted or classified here: the scorer
does that for reward components, the rollout driver for environments. Code that holds Python's lock
stops every thread, these too: `watchdog` ends the process then.

A call runs in another thread than the caller, not always the same one (`pinned` has objects that
need that), with a copy of the caller's context variables. Thread-local state (torch's grad mode)
does not follow.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from typing import TypeVar, TypeVarTuple

from searchrl.calls.outcomes import DeadlineExceeded, Raised, Returned
from searchrl.calls.pool import CallQueue, Turn, Worker, inside

__all__ = [
    "DeadlineExceeded",
    "Raised",
    "Returned",
    "Turn",
    "call_together",
    "call_with_deadline",
    "inside",
]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def call_with_deadline(
    fn: Callable[[*Ts], T],
    *args: *Ts,
    timeout_s: float | None,
    owner: str,
    home: Worker | None = None,
) -> T:
    """Return `fn(*args)`, or raise `DeadlineExceeded` naming `owner` after `timeout_s` seconds.

    What `fn` raises is raised here, traceback included. `timeout_s=None` calls directly, unless
    `home` is the thread that has to make the call.
    """
    if timeout_s is None and home is None:
        return fn(*args)
    with closing(CallQueue(timeout_s)) as queue:
        call = queue.add(functools.partial(fn, *args), owner, home)
        queue.wait_for_all()
    outcome = call.result
    if isinstance(outcome, Returned):
        return outcome.value
    try:
        raise outcome.error
    finally:
        del outcome, call, queue  # breaks the cycle error -> traceback -> this frame -> error


def call_together(
    calls: Sequence[tuple[Callable[[], T], str]],
    *,
    timeout_s: float | None,
    alone: Collection[str] = (),
) -> list[Returned[T] | Raised]:
    """Make the (function, owner) calls, each with its own deadline; outcomes in the same order.

    They overlap: a batch in which every call waits takes little more time than one call.
    `timeout_s=None` calls directly, one after another.
    """
    if timeout_s is None:
        return [_call_here(fn) for fn, _ in calls]
    with closing(CallQueue(timeout_s, alone)) as queue:
        begun = [queue.add(fn, owner) for fn, owner in calls]
        queue.wait_for_all()
    return [call.result for call in begun]


def _call_here(fn: Callable[[], T]) -> Returned[T] | Raised:
    try:
        return Returned(fn())
    except (Exception, SystemExit) as error:  # a KeyboardInterrupt here is the user's
        return Raised(error)
