"""Calls with a deadline: values, errors, hangs, reuse, queues, homes, forks and the exit."""

import functools
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator

import pytest

from searchrl import tool_calls
from searchrl.tool_calls import (
    CallLock,
    CallQueue,
    DeadlineExceeded,
    Pinned,
    Raised,
    Returned,
    call_together,
    call_with_deadline,
    inside,
)


def hang_here(release: threading.Event) -> str:
    release.wait(30)
    return "too late"


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """What calls hang on: until it is set, or the test is over."""
    event = threading.Event()
    yield event
    event.set()


class TestOneCall:
    def test_what_the_call_raises_is_raised_with_its_traceback(self) -> None:
        def broken() -> None:
            raise ValueError("inside")

        with pytest.raises(ValueError, match="inside") as caught:
            call_with_deadline(broken, timeout_s=5, owner="x")
        assert "in broken" in "".join(traceback.format_exception(caught.value))
        with pytest.raises(SystemExit):
            call_with_deadline(sys.exit, 3, timeout_s=5, owner="x")

    def test_a_hang_is_reported_in_time_with_owner_and_place(
        self, release: threading.Event
    ) -> None:
        start = time.monotonic()
        with pytest.raises(DeadlineExceeded) as late:
            call_with_deadline(hang_here, release, timeout_s=0.05, owner="env 'slow'")
        assert time.monotonic() - start < 5
        assert "in hang_here" in late.value.where and "release.wait(30)" in late.value.where
        assert (late.value.owner, late.value.timeout_s) == ("env 'slow'", 0.05)

    def test_threads_are_reused_but_not_one_whose_call_was_given_up(
        self, release: threading.Event
    ) -> None:
        def ask() -> threading.Thread:
            return call_with_deadline(threading.current_thread, timeout_s=5, owner="x")

        assert len({ask() for _ in range(10)}) == 1
        hung: list[threading.Thread] = []

        def hang() -> None:
            hung.append(threading.current_thread())
            release.wait(30)

        with pytest.raises(DeadlineExceeded):
            call_with_deadline(hang, timeout_s=0.1, owner="x")
        assert ask() is not hung[0]
        release.set()
        hung[0].join(5)
        assert not hung[0].is_alive() and call_with_deadline(abs, -7, timeout_s=5, owner="x") == 7

    def test_calls_nest_and_run_side_by_side(self) -> None:
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

    def test_the_limit_of_a_call_stands_still_while_it_waits_for_others(self) -> None:
        def outer() -> str:
            call_with_deadline(time.sleep, 0.5, timeout_s=5, owner="inner")
            return "done"

        assert call_with_deadline(outer, timeout_s=0.2, owner="outer") == "done"


class TestTurns:
    def test_time_in_the_queue_does_not_count(self) -> None:
        turn, now, most = CallLock(), [0], [0]

        def take() -> str:
            with turn:
                now[0] += 1
                most[0] = max(most[0], now[0])
                time.sleep(0.2)
                now[0] -= 1
                return "done"

        outcomes = call_together([(take, "x")] * 5, timeout_s=0.5)
        assert outcomes == [Returned("done")] * 5 and most == [1]

    def test_whoever_waits_is_given_up_with_the_one_before(self, release: threading.Event) -> None:
        turn = CallLock()

        def take() -> None:
            with turn:
                release.wait(30)

        outcomes = call_together([(take, "hangs")] * 3, timeout_s=0.3)
        for outcome in outcomes:
            assert isinstance(outcome, Raised) and isinstance(outcome.error, DeadlineExceeded)
            assert "release.wait(30)" in outcome.error.where
        # One error raised by all would collect their tracebacks: hundreds took minutes to tell.
        assert len({id(outcome.error) for outcome in outcomes if isinstance(outcome, Raised)}) == 3
        # As long as it hangs nobody waits for it, with or without a time limit.
        started = time.monotonic()
        with pytest.raises(DeadlineExceeded, match="hangs did not return"):
            take()
        assert time.monotonic() - started < 5


class TestBatches:
    """`call_together`: one time-out for all that hang, and no surprise for all that do not."""

    def test_outcomes_stand_in_order_and_hangs_cost_one_time_out(
        self, release: threading.Event
    ) -> None:
        def call(number: int) -> int:
            if number % 3 == 0:
                hang_here(release)
            if number % 3 == 1:
                raise ValueError(number)
            return number

        start = time.monotonic()
        asked = [(functools.partial(call, n), str(n)) for n in range(60)]
        outcomes = call_together(asked, timeout_s=0.4)
        assert 0.4 <= time.monotonic() - start < 2  # one after another: 8 s
        for number, outcome in enumerate(outcomes):
            if number % 3 == 2:
                assert outcome == Returned(number)
                continue
            assert isinstance(outcome, Raised)
            if number % 3 == 0:
                assert isinstance(outcome.error, DeadlineExceeded)
                assert outcome.error.owner == str(number)
            else:
                assert isinstance(outcome.error, ValueError)

    def test_code_inside_of_a_call_is_named_if_it_hangs(self, release: threading.Event) -> None:
        def call() -> None:
            with inside("retriever 'r'"), inside("its index"):
                pass
            with inside("retriever 'r'"):
                hang_here(release)

        (late,) = call_together([(call, "env 'e'")], timeout_s=0.1)
        assert isinstance(late, Raised) and isinstance(late.error, DeadlineExceeded)
        assert late.error.owner == "retriever 'r'"

    def test_no_more_run_side_by_side_than_the_bound_also_after_hangs(
        self, monkeypatch: pytest.MonkeyPatch, release: threading.Event
    ) -> None:
        monkeypatch.setattr(tool_calls, "MAX_TOGETHER", 3)
        lock, now, most = threading.Lock(), 0, 0

        def call() -> None:
            nonlocal now, most
            with lock:
                now += 1
                most = max(most, now)
            time.sleep(0.05)
            with lock:
                now -= 1

        asked = [(lambda: hang_here(release), "x")] * 3 + [(call, "x")] * 12
        outcomes = call_together(asked, timeout_s=1)
        assert outcomes[3:] == [Returned(None)] * 12 and most == 3


class TestQueue:
    def test_a_closed_queue_makes_no_call_that_has_not_begun(
        self, monkeypatch: pytest.MonkeyPatch, release: threading.Event
    ) -> None:
        monkeypatch.setattr(tool_calls, "MAX_TOGETHER", 1)
        made: list[str] = []
        queue = CallQueue(60)
        queue.add(lambda: hang_here(release), "x")
        queue.add(lambda: made.append("second"), "x")
        queue.close()
        release.set()
        time.sleep(0.05)
        assert made == []


class TestHomes:
    def test_one_that_hangs_is_not_asked_again_and_a_thread_that_is_free_is_taken(
        self, release: threading.Event
    ) -> None:
        one = Pinned(threading.get_ident, "env 0")
        with pytest.raises(DeadlineExceeded, match="env 0"):
            one.ask(lambda made: release.wait(30), timeout_s=0.1)
        with pytest.raises(DeadlineExceeded, match="env 0"):
            one.ask(lambda made: made)
        threads = [Pinned(threading.get_ident, "new").ask(lambda made: made) for _ in range(3)]
        assert len(set(threads)) == 1 and threads[0] != one.home.ident


FORK = """
import os
from searchrl.tool_calls import call_with_deadline as call, watch
watch()
call(abs, -1, timeout_s=5, owner="parent")
pid = os.fork()
if pid == 0:
    raise SystemExit(0 if call(abs, -7, timeout_s=5, owner="child") == 7 else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
HANG = """
import time
from searchrl.tool_calls import DeadlineExceeded, call_with_deadline
try:
    call_with_deadline(time.sleep, 600, timeout_s=0.05, owner="x")
except DeadlineExceeded:
    raise SystemExit(0)
raise SystemExit(1)
"""
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


@pytest.mark.parametrize(
    ("script", "says"),
    [
        pytest.param(FORK, "", marks=needs_fork),
        (HANG, "threads lost to calls that never returned: 1\n"),
    ],
    ids=["fork", "exit"],
)
def test_threads_hold_up_no_forked_child_and_no_exit(script: str, says: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script],
        timeout=60,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == says
