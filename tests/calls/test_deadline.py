"""Calls with a deadline: values, errors, hangs, reuse, forks and the exit of the interpreter."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator

import pytest

from searchrl.calls import pool
from searchrl.calls.deadline import (
    DeadlineExceeded,
    Raised,
    Returned,
    Turn,
    call_together,
    call_with_deadline,
    inside,
)
from searchrl.errors import SearchRLError


def hang_here(release: threading.Event) -> str:
    release.wait(30)
    return "too late"


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """What calls hang on: until it is set, or the test is over."""
    event = threading.Event()
    yield event
    event.set()


def test_returns_the_value_and_passes_arguments() -> None:
    assert call_with_deadline(divmod, 7, 3, timeout_s=5, owner="x") == (2, 1)


def test_without_a_limit_the_call_stays_in_its_thread() -> None:
    ident = call_with_deadline(threading.get_ident, timeout_s=None, owner="x")
    assert ident == threading.get_ident()


def test_what_the_call_raises_is_raised_with_its_traceback() -> None:
    def broken() -> None:
        raise ValueError("inside")

    with pytest.raises(ValueError, match="inside") as caught:
        call_with_deadline(broken, timeout_s=5, owner="x")
    assert "in broken" in "".join(traceback.format_exception(caught.value))


def test_a_system_exit_of_the_call_reaches_the_caller() -> None:
    with pytest.raises(SystemExit):
        call_with_deadline(sys.exit, 3, timeout_s=5, owner="x")


def test_a_hang_is_reported_in_time_with_owner_and_place(release: threading.Event) -> None:
    start = time.monotonic()
    with pytest.raises(DeadlineExceeded, match=r"env 'slow' did not return within 0\.05 s") as late:
        call_with_deadline(hang_here, release, timeout_s=0.05, owner="env 'slow'")
    assert time.monotonic() - start < 5 and isinstance(late.value, SearchRLError)
    assert "in hang_here" in late.value.where and "release.wait(30)" in late.value.where
    assert (late.value.owner, late.value.timeout_s) == ("env 'slow'", 0.05)


def test_a_late_result_is_never_given_to_the_next_caller(release: threading.Event) -> None:
    with pytest.raises(DeadlineExceeded):
        call_with_deadline(hang_here, release, timeout_s=0.02, owner="x")
    release.set()
    for number in range(20):
        assert call_with_deadline(abs, -number, timeout_s=5, owner="x") == number


def test_threads_are_reused_and_an_abandoned_one_ends_when_its_call_returns(
    release: threading.Event,
) -> None:
    first = call_with_deadline(threading.get_ident, timeout_s=5, owner="x")
    assert {call_with_deadline(threading.get_ident, timeout_s=5, owner="x") for _ in range(9)} == {
        first
    }
    hung: list[threading.Thread] = []

    def hang() -> None:
        hung.append(threading.current_thread())
        release.wait(30)

    with pytest.raises(DeadlineExceeded):
        call_with_deadline(hang, timeout_s=0.1, owner="x")
    assert call_with_deadline(threading.get_ident, timeout_s=5, owner="x") != hung[0].ident
    release.set()
    hung[0].join(5)
    assert not hung[0].is_alive()


def test_calls_nest_and_run_side_by_side() -> None:
    def outer(number: int) -> int:
        return call_with_deadline(abs, number, timeout_s=5, owner="inner")

    results: dict[int, int] = {}

    def work(number: int) -> None:
        for _ in range(50):
            results[number] = call_with_deadline(outer, -number, timeout_s=10, owner="outer")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: n for n in range(1, 9)}


def test_context_variables_of_the_caller_are_visible() -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("set")
    assert call_with_deadline(variable.get, timeout_s=5, owner="x") == "set"


def test_an_idle_thread_keeps_nothing_of_the_last_call_alive() -> None:
    import gc
    import weakref

    class Big:
        pass

    big = Big()
    watch = weakref.ref(big)
    call_with_deadline(lambda thing: None, big, timeout_s=5, owner="x")
    del big
    time.sleep(0.05)
    gc.collect()
    assert watch() is None


class TestTurns:
    def test_whoever_waits_for_a_turn_is_given_up_with_the_one_before_and_no_sooner(self):
        turn, release = Turn(), threading.Event()

        def take(seconds: float) -> str:
            with turn:
                release.wait(seconds)
                return "done"

        calls = [(functools.partial(take, 0.3), "x")] * 4
        assert call_together(calls, timeout_s=0.9) == [Returned("done")] * 4
        outcomes = call_together([(functools.partial(take, 30), "hangs")] * 3, timeout_s=0.5)
        for outcome in outcomes:
            assert isinstance(outcome, Raised)
            assert str(outcome.error) == "hangs did not return within 0.5 s"
            assert isinstance(outcome.error, DeadlineExceeded)
            assert "release.wait(seconds)" in outcome.error.where
        # As long as it hangs nobody waits for it, with or without a time limit.
        started = time.monotonic()
        with pytest.raises(DeadlineExceeded, match="hangs did not return"):
            take(0)
        assert time.monotonic() - started < 5
        release.set()
        for _ in range(200):
            with contextlib.suppress(DeadlineExceeded):
                assert take(0) == "done"
                break
            time.sleep(0.05)
        else:
            pytest.fail("it returned, and its turn has ended")


class TestBatches:
    """`call_together`: one time-out for all that hang, and no surprise for all that do not."""

    def test_a_batch_of_hangs_costs_about_one_time_out(self, release: threading.Event) -> None:
        asked = [(lambda: hang_here(release), f"env {n}") for n in range(60)]
        start = time.monotonic()
        outcomes = call_together(asked, timeout_s=0.4)
        took = time.monotonic() - start
        assert 0.4 <= took < 2  # one after another: 24 s
        for number, outcome in enumerate(outcomes):
            assert isinstance(outcome, Raised) and isinstance(outcome.error, DeadlineExceeded)
            assert outcome.error.owner == f"env {number}"
            assert "in hang_here" in outcome.error.where

    def test_outcomes_stand_in_the_order_of_the_calls(self, release: threading.Event) -> None:
        def call(number: int) -> int:
            if number % 3 == 0:
                release.wait(30)
            if number % 3 == 1:
                raise ValueError(number)
            return number

        asked = [(functools.partial(call, n), str(n)) for n in range(9)]
        outcomes = call_together(asked, timeout_s=0.2)
        for number, outcome in enumerate(outcomes):
            if number % 3 == 2:
                assert outcome == Returned(number)
                continue
            assert isinstance(outcome, Raised)
            expected = DeadlineExceeded if number % 3 == 0 else ValueError
            assert isinstance(outcome.error, expected)

    def test_calls_that_wait_do_so_at_the_same_time(self) -> None:
        """16 calls of just under a quarter of a second once took 3.84 s."""
        start = time.monotonic()
        outcomes = call_together([(lambda: time.sleep(0.24), "x")] * 16, timeout_s=60)
        assert outcomes == [Returned(None)] * 16
        assert time.monotonic() - start < 1.5

    def test_an_owner_that_is_called_alone_has_one_call_at_a_time(self) -> None:
        now, most = [0], [0]

        def call() -> None:
            now[0] += 1
            most[0] = max(most[0], now[0])
            time.sleep(0.02)
            now[0] -= 1

        asked = [(call, "judge")] * 6 + [(lambda: time.sleep(0.05), "x")] * 20
        start = time.monotonic()
        outcomes = call_together(asked, timeout_s=60, alone={"judge"})
        assert outcomes == [Returned(None)] * 26 and most == [1]
        assert time.monotonic() - start < 1.0  # the others went on beside it

    def test_after_a_hang_an_owner_that_is_called_alone_is_not_called_again(
        self, release: threading.Event
    ) -> None:
        """One time limit is lost, not one per call."""
        start = time.monotonic()
        asked = [(lambda: hang_here(release), "judge")] * 8 + [(lambda: "well", "x")]
        first, *others, last = call_together(asked, timeout_s=0.3, alone={"judge"})
        assert time.monotonic() - start < 2
        assert isinstance(first, Raised) and isinstance(first.error, DeadlineExceeded)
        for other in others:
            assert isinstance(other, Raised)
            assert "one call at a time, and an earlier one hangs" in str(other.error)
        assert last == Returned("well")

    def test_code_inside_of_a_call_is_named_if_it_hangs(self, release: threading.Event) -> None:
        def call() -> None:
            with inside("retriever 'r'"), inside("its index"):
                pass
            with inside("retriever 'r'"):
                hang_here(release)

        (late,) = call_together([(call, "env 'e'")], timeout_s=0.1)
        assert isinstance(late, Raised) and isinstance(late.error, DeadlineExceeded)
        assert late.error.owner == "retriever 'r'"

    def test_no_more_run_side_by_side_than_the_bound(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pool, "MAX_TOGETHER", 3)
        lock, now, most = threading.Lock(), 0, 0

        def call() -> None:
            nonlocal now, most
            with lock:
                now += 1
                most = max(most, now)
            time.sleep(0.05)
            with lock:
                now -= 1

        outcomes = call_together([(call, "x")] * 12, timeout_s=10)
        assert outcomes == [Returned(None)] * 12 and most == 3

    def test_threads_that_hang_are_bounded_and_free_again_when_they_return(
        self, monkeypatch: pytest.MonkeyPatch, release: threading.Event
    ) -> None:
        monkeypatch.setattr(pool, "MAX_HANGING", 2)
        monkeypatch.setattr(pool, "_abandoned", [])
        call_together([(lambda: hang_here(release), "x")] * 2, timeout_s=0.02)
        with pytest.raises(
            SearchRLError, match="env 'y' was not called: 2 earlier calls still hang"
        ):
            call_with_deadline(abs, -1, timeout_s=5, owner="env 'y'")
        hung = list(pool._abandoned)
        release.set()
        for thread in hung:
            thread.join(5)
        assert call_with_deadline(abs, -1, timeout_s=5, owner="env 'y'") == 1

    def test_without_a_limit_ctrl_c_is_not_taken_for_a_failure(self) -> None:
        def interrupted() -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            call_together([(interrupted, "x")], timeout_s=None)
        (exits,) = call_together([(sys.exit, "x")], timeout_s=None)
        assert isinstance(exits, Raised) and isinstance(exits.error, SystemExit)


class TestQueue:
    """`CallQueue`: calls beside a caller that does other work."""

    def test_calls_begin_while_the_caller_does_other_work(self) -> None:
        """Nobody waits for them, and still a call that waits holds up no other."""
        began = [threading.Event() for _ in range(5)]
        free = threading.Event()

        def call(number: int) -> int:
            began[number].set()
            free.wait(30)
            return number

        queue = pool.CallQueue(60)
        added = [queue.add(functools.partial(call, n), "x") for n in range(5)]
        assert all(event.wait(10) for event in began) and not added[0].is_over
        free.set()
        queue.wait_for_all()
        assert [call.result for call in added] == [Returned(n) for n in range(5)]
        queue.close()

    def test_the_first_that_is_over_can_be_waited_for(self, release: threading.Event) -> None:
        queue = pool.CallQueue(60)
        slow, quick = queue.add(lambda: hang_here(release), "x"), queue.add(lambda: 7, "y")
        queue.wait_for_one([slow, quick])
        assert quick.result == Returned(7) and not slow.is_over
        queue.close()

    def test_a_closed_queue_makes_no_call_that_has_not_begun(
        self, monkeypatch: pytest.MonkeyPatch, release: threading.Event
    ) -> None:
        monkeypatch.setattr(pool, "MAX_TOGETHER", 1)
        made: list[str] = []
        queue = pool.CallQueue(60)
        queue.add(lambda: hang_here(release), "x")
        queue.add(lambda: made.append("second"), "x")
        queue.close()
        release.set()
        time.sleep(0.05)
        assert made == []

    def test_without_a_limit_calls_overlap_all_the_same(self) -> None:
        queue = pool.CallQueue(None)
        start = time.monotonic()
        added = [queue.add(lambda: time.sleep(0.2), "x") for _ in range(10)]
        queue.wait_for_all()
        assert all(call.is_over for call in added) and time.monotonic() - start < 1.2


FORK = """
import os
from searchrl.calls.deadline import call_with_deadline as call
call(abs, -1, timeout_s=5, owner="parent")
pid = os.fork()
if pid == 0:
    os._exit(0 if call(abs, -7, timeout_s=5, owner="child") == 7 else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
HANG = """
import time
from searchrl.calls.deadline import DeadlineExceeded, call_with_deadline
try:
    call_with_deadline(time.sleep, 600, timeout_s=0.05, owner="x")
except DeadlineExceeded:
    raise SystemExit(0)
raise SystemExit(1)
"""
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


@pytest.mark.parametrize(
    "script", [pytest.param(FORK, marks=needs_fork), HANG], ids=["fork", "exit"]
)
def test_threads_neither_hold_up_a_forked_child_nor_the_exit(script: str) -> None:
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 0


@pytest.mark.parametrize("has_lock", [True, False])
def test_ctrl_c_in_a_wait_is_no_other_error(
    has_lock: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it waits, Python gives the lock away; Ctrl-C may come before it is had again."""
    queue = pool.CallQueue(5.0)
    done = threading.Event()
    queue.add(done.wait, "a plugin")

    def wait(pause_s: float | None) -> None:
        if not has_lock:
            queue._lock.release()
        raise KeyboardInterrupt

    monkeypatch.setattr(queue._finished, "wait", wait)
    with pytest.raises(KeyboardInterrupt):
        queue.wait_for_all()
    queue.close()
    done.set()
