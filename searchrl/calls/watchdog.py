"""The watchdog: ends the process when foreign code holds Python's lock for good, and says where.

`re.match(r"(\\w+\\s?)+XX", "a" * 60)` computes for years and lets no other thread run, so nothing
can give it up, not even Ctrl-C. `faulthandler` has a thread that needs no lock: unless it is put
off in time, it writes where every thread stands. That text goes to a small process beside this one,
(`watchdog_process`), which waits whether this one comes back to life, says which plugin, file and
line it is, and kills it.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import functools
import json
import mmap
import os
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from searchrl.calls import watchdog_process
from searchrl.calls.watchdog_process import END, MARK, SIGNAL

MIN_LIMIT_S, MAX_LIMIT_S = 1.0, 1e6
"""A shorter limit counts as the first: a busy machine may keep a thread waiting so long."""

_BEATS = 8
"""Signs of life within a limit."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Code that is watched."""

    limit_s: float
    names: Mapping[str, str] = field(default_factory=dict)
    """Files of plugins, and who is named for each."""
    report: str = ""
    """A file that gets what was found, as JSON, instead of the terminal."""


@contextlib.contextmanager
def watching(
    limit_s: float | None, names: Mapping[str, str] | None = None, report: str = ""
) -> Iterator[None]:
    """End the process if, in here, no thread could run for longer than `limit_s` seconds.

    Args:
        limit_s: None: do not watch.
        names: whom to name for code in a file: `{"/path/games.py": "plugin games"}`.
        report: write what was found to this file, and nothing to the terminal.
    """
    if limit_s is None:
        yield
        return
    watch = Watch(min(max(limit_s, MIN_LIMIT_S), MAX_LIMIT_S), dict(names or {}), report)
    _dog.add(watch)
    try:
        yield
    finally:
        _dog.remove(watch)


@contextlib.contextmanager
def advising(text: str) -> Iterator[None]:
    """If the process is ended in here, also say this: how to go on."""
    before, _dog.advice = _dog.advice, text
    try:
        yield
    finally:
        _dog.advice = before


def introduce() -> None:
    """Say which thread of the system this thread is, so that the one that computes is found."""
    _dog.introduce(threading.get_ident(), threading.get_native_id())


class _Dog:
    """This side: signs of life, as long as something is watched or was a moment ago.

    Most watches are short and many, so one that begins costs next to nothing: what changes with it
    (whether anything is watched, and the limit) stands in memory that both sides share.
    """

    def __init__(self) -> None:
        self.advice = ""
        self._lock = threading.RLock()
        self._changed = threading.Event()
        self._watches: list[Watch] = []
        self._names: dict[str, str] = {}
        self._is_used = False
        """Whether anything was watched since the last sign of life."""
        self._armed_s: float | None = None
        """When faulthandler writes, counted from the last sign of life; None: it does not."""
        self._other: subprocess.Popen[bytes] | None = None
        self._limit: mmap.mmap | None = None
        self._pid = 0

    def add(self, watch: Watch) -> None:
        with self._lock:
            self._watches.append(watch)
            self._ensure_running()
            self._share()
            self._is_used = True
            if not watch.names.items() <= self._names.items() or watch.report:
                self._names |= watch.names
                self._tell({"names": self._names, "report": watch.report})
            if self._armed_s is None or watch.limit_s < self._armed_s:
                self._beat()
                self._changed.set()

    def remove(self, watch: Watch) -> None:
        with self._lock:
            self._watches.remove(watch)
            self._share()

    def introduce(self, ident: int, number: int) -> None:
        with self._lock:
            if self._armed_s is not None:
                self._tell({"thread": [hex(ident), number]})

    def _share(self) -> None:
        """Write down the shortest limit of all that is watched; 0: nothing is."""
        assert self._limit is not None
        shortest = min((watch.limit_s for watch in self._watches), default=0.0)
        self._limit[:] = struct.pack("d", shortest)

    def _ensure_running(self) -> None:
        """Start the other side and the thread that sends signs of life; again after a fork."""
        if self._other is not None and self._pid == os.getpid() and self._other.poll() is None:
            return
        self._pid, self._armed_s, self._names = os.getpid(), None, {}
        handle, path = tempfile.mkstemp(prefix="searchrl-watchdog-")
        with os.fdopen(handle, "w+b") as file:
            file.write(struct.pack("d", 0.0))
            file.flush()
            self._limit = mmap.mmap(file.fileno(), 0)
        self._other = subprocess.Popen(
            [sys.executable, "-I", "-S", watchdog_process.__file__, str(self._pid), path],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
        if SIGNAL:
            assert self._other.stdin is not None
            faulthandler.register(SIGNAL, file=self._other.stdin.fileno(), all_threads=False)
        threading.Thread(target=self._run, name="searchrl-watchdog", daemon=True).start()
        atexit.register(self._end, self._other)

    def _run(self) -> None:
        other = self._other
        while True:
            armed_s = self._armed_s
            self._changed.wait(None if armed_s is None else armed_s / _BEATS)
            self._changed.clear()
            with self._lock:
                if self._other is not other:
                    return
                if self._is_used:
                    self._is_used = bool(self._watches)
                    self._beat()
                elif self._armed_s is not None:
                    faulthandler.cancel_dump_traceback_later()
                    self._armed_s = None

    def _beat(self) -> None:
        """Put faulthandler off and give a sign of life."""
        limits = [watch.limit_s for watch in self._watches]
        self._armed_s = min(limits) if limits else self._armed_s
        assert self._armed_s is not None and self._other is not None
        assert self._other.stdin is not None
        faulthandler.dump_traceback_later(self._armed_s, file=self._other.stdin.fileno())
        threads = {hex(one.ident or 0): one.native_id for one in threading.enumerate()}
        self._tell({"threads": threads, "advice": self.advice})

    def before_fork(self) -> None:
        """Let no other thread be in here, and none of faulthandler's: a child would wait for it."""
        self._lock.acquire()
        if self._armed_s is not None:
            faulthandler.cancel_dump_traceback_later()

    def after_fork(self, *, in_child: bool) -> None:
        """Go on in the parent; a child has no other side until it watches something itself."""
        if in_child:
            self._other = self._armed_s = None
            self._changed = threading.Event()  # another thread may have been in the old one
        elif self._armed_s is not None:
            self._beat()
        self._lock.release()

    def _tell(self, facts: Mapping[str, Any]) -> None:
        self._write(f"{MARK}{json.dumps(facts)}\n")

    def _write(self, line: str) -> None:
        assert self._other is not None and self._other.stdin is not None
        # The other side may have been killed; then nobody watches, and that is no reason to fail.
        with contextlib.suppress(OSError):
            os.write(self._other.stdin.fileno(), line.encode())

    def _end(self, other: subprocess.Popen[bytes]) -> None:
        if self._pid != os.getpid() or self._other is not other:
            return  # a forked child: the other side is its parent's
        assert other.stdin is not None
        with self._lock:
            faulthandler.cancel_dump_traceback_later()
            if SIGNAL:
                faulthandler.unregister(SIGNAL)
            # Said, because the pipe has no end as long as a forked child lives.
            self._write(END)
            self._other = self._armed_s = None
        self._changed.set()
        with contextlib.suppress(OSError):
            other.stdin.close()
        other.wait()


_dog = _Dog()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_dog.before_fork,
        after_in_parent=functools.partial(_dog.after_fork, in_child=False),
        after_in_child=functools.partial(_dog.after_fork, in_child=True),
    )
