"""Progress of long work, such as the making of an index, told to the program that listens.

A retriever wraps the passages that it reads (`tracked(passages, "indexing")`); a program listens
(`listening`). Without a listener nothing happens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

OnProgress = Callable[[str, int, int], None]
"""`on_progress(doing, done, total)`: `doing` is a word such as `indexing`; `total` 0 is unknown."""

T = TypeVar("T")

_PATIENCE_S = 1.0  # before the first report
_EVERY_S = 0.2  # between two reports
_listener: ContextVar[OnProgress | None] = ContextVar("searchrl_progress", default=None)


@contextmanager
def listening(on_progress: OnProgress | None) -> Iterator[None]:
    """A context in which `on_progress` hears of all work of this thread; None: nobody does."""
    token = _listener.set(on_progress)
    try:
        yield
    finally:
        _listener.reset(token)


def tracked(items: Iterable[T], doing: str, total: int = 0) -> Iterator[T]:
    """Yield `items`, and report some five times a second how many were taken, and at the end.

    Work that is over within a second is not reported at all. `total` is how many items there will
    be, 0 if that is not known.
    """
    on_progress = _listener.get()
    if on_progress is None:
        yield from items
        return
    done, due, is_told = 0, time.monotonic() + _PATIENCE_S, False
    for item in items:
        yield item
        done += 1
        if (now := time.monotonic()) >= due:
            due, is_told = now + _EVERY_S, True
            on_progress(doing, done, total)
    if is_told:
        on_progress(doing, done, total)
