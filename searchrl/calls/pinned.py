"""Objects that live in one thread: made there, called there, and closed there.

Owns the rule for instances of environments: what one keeps may belong to its thread (a connection
of sqlite3, an event loop). Up to `MAX_TOGETHER` of them have a thread each; more share these, and
then one that hangs takes those with it that live beside it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from searchrl.calls import pool
from searchrl.calls.deadline import call_with_deadline
from searchrl.calls.pool import Call, CallQueue, Worker

T = TypeVar("T")
R = TypeVar("R")


class Pinned(Generic[T]):
    """An object and the thread in which it lives. `make` makes it there, at the first call.

    `owner` is who is named when a call does not return.
    """

    def __init__(self, make: Callable[[], T], owner: str) -> None:
        self._make = make
        self.owner = owner
        self._made: list[T] = []
        self.home = _move_in(self)

    def call(self, queue: CallQueue, fn: Callable[[T], R]) -> Call[R]:
        """Add a call of `fn` with the object to a queue."""
        return queue.add(lambda: fn(self._get()), self.owner, self.home)

    def ask(self, fn: Callable[[T], R], timeout_s: float | None = None) -> R:
        """Return `fn(object)`, called in its thread; raises as `call_with_deadline`."""
        return call_with_deadline(
            lambda: fn(self._get()), timeout_s=timeout_s, owner=self.owner, home=self.home
        )

    def _get(self) -> T:
        if not self._made:
            self._made.append(self._make())
        return self._made[0]


_homes: dict[Worker, weakref.WeakSet[Pinned[Any]]] = {}
"""The threads, and who lives in each. They stay: one that is empty is the next to be taken."""

_moving = threading.Lock()


def _move_in(one: Pinned[Any]) -> Worker:
    with _moving:
        for home in [home for home in _homes if not home.lives]:
            del _homes[home]
        found = min(_homes, key=lambda home: len(_homes[home]), default=None)
        if found is None or (_homes[found] and len(_homes) < pool.MAX_TOGETHER):
            found = Worker(is_home=True)
            _homes[found] = weakref.WeakSet()
        _homes[found].add(one)
        return found
