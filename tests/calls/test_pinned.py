"""Objects that live in one thread: where they are called, and what becomes of neighbours."""

from __future__ import annotations

import sqlite3
import threading

import pytest

from searchrl.calls import pinned, pool
from searchrl.calls.deadline import DeadlineExceeded, Raised, Returned
from searchrl.calls.pinned import Pinned
from searchrl.calls.pool import CallQueue


def connect() -> sqlite3.Connection:
    return sqlite3.connect(":memory:")  # refuses every thread but the one that makes it


def test_a_connection_of_sqlite_is_made_asked_and_closed_in_its_own_thread() -> None:
    ones = [Pinned(connect, "env") for _ in range(8)]
    queue = CallQueue(60)
    for _ in range(3):
        calls = [one.call(queue, lambda db: db.execute("select 7").fetchone()) for one in ones]
        queue.wait_for_all()
        assert [call.result for call in calls] == [Returned((7,))] * 8
    for one in ones:
        one.ask(lambda db: db.close(), timeout_s=60)


def test_without_a_limit_it_is_asked_in_its_thread_all_the_same() -> None:
    one = Pinned(threading.get_ident, "env")
    assert one.ask(lambda made: made == threading.get_ident()) is True
    assert one.ask(lambda made: made) != threading.get_ident()


def test_those_that_wait_do_so_at_the_same_time() -> None:
    barrier = threading.Barrier(12)
    queue = CallQueue(60)
    for one in (ones := [Pinned(lambda: barrier, "env") for _ in range(12)]):
        one.call(queue, lambda together: together.wait(30))
    queue.wait_for_all()
    assert not barrier.broken and len(ones) == 12


def test_where_many_share_a_thread_one_that_hangs_takes_its_neighbours_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "MAX_TOGETHER", 2)
    monkeypatch.setattr(pinned, "_homes", {})
    release = threading.Event()
    ones = [Pinned(threading.get_ident, f"env {n}") for n in range(4)]
    threads = [one.ask(lambda made: made) for one in ones]
    assert len(set(threads)) == 2
    queue = CallQueue(0.1)
    calls = [ones[0].call(queue, lambda made: release.wait(30))]
    calls += [one.call(queue, lambda made: made) for one in ones[1:]]
    queue.wait_for_all()
    for thread, call in zip(threads, calls, strict=True):
        if thread != threads[0]:
            assert call.result == Returned(thread)
            continue
        assert isinstance(call.result, Raised) and isinstance(call.result.error, DeadlineExceeded)
        assert call.result.error.owner == "env 0"
    # Nobody is given the thread that hangs, and who lives there is told so at once.
    assert Pinned(threading.get_ident, "new").ask(lambda made: made) != threads[0]
    neighbour = threads.index(threads[0], 1)
    with pytest.raises(DeadlineExceeded, match="env 0"):
        ones[neighbour].ask(lambda made: made)
    release.set()


def test_a_call_that_nobody_waits_for_any_more_holds_up_no_neighbour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After Ctrl-C those in the thread of a call that hangs waited for it for good."""
    monkeypatch.setattr(pool, "MAX_TOGETHER", 1)
    monkeypatch.setattr(pinned, "_homes", {})
    began, release = threading.Event(), threading.Event()
    one, neighbour = (Pinned(threading.get_ident, name) for name in ("one", "neighbour"))
    queue = CallQueue(60)
    one.call(queue, lambda made: (began.set(), release.wait(30)))
    assert began.wait(30) and neighbour.home.lives
    queue.close()
    assert not neighbour.home.lives
    with pytest.raises(DeadlineExceeded, match="one"):
        neighbour.ask(lambda made: made)
    release.set()
