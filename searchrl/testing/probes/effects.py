"""Effects on the outside: files written and connections opened while some code ran.

Owns a watch on the whole process through Python's audit events, so that it sees what a library
does on a plugin's behalf too; extensions that call the system themselves go unseen. Nothing is
prevented but connections, which are refused. Imports write `__pycache__`, which does not count.
The criteria of rewards and trackers use it.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from searchrl.testing.probes.places import Place, frames_here, place_of


@dataclass(frozen=True, slots=True)
class Effect:
    """One thing done to the outside: `kind` is `write` or `connect`, `target` a path or address."""

    kind: str
    target: str
    place: Place

    def __str__(self) -> str:
        verb = "opens a connection to" if self.kind == "connect" else "writes"
        return f"{verb} {self.target}"


_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC

# Audit event -> which of its arguments are paths that it creates, changes or removes.
_PATHS = {
    **dict.fromkeys(("os.mkdir", "os.remove", "os.rmdir", "os.truncate", "sqlite3.connect"), (0,)),
    **dict.fromkeys(("os.link", "os.symlink"), (1,)),
    "os.rename": (0, 1),
}


class _Watch:
    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self._others = set(threading.enumerate()) - {threading.current_thread()}

    def concerns_this_thread(self) -> bool:
        # What other threads of the program do meanwhile is not the plugin's; its own threads are.
        # Objects, not ids: a new thread may get the id of one that has ended.
        return threading.current_thread() not in self._others

    def see(self, event: str, args: tuple[Any, ...]) -> None:
        for kind, targets in (("write", _written(event, args)), ("connect", _asked(event, args))):
            for target in targets:
                self.effects.append(Effect(kind, target, place_of(frames_here(3))))


_watches: list[_Watch] = []
_is_installed = False


@contextmanager
def watch_effects() -> Iterator[list[Effect]]:
    """Yield a list that receives every `Effect` of this thread, and of those begun meanwhile."""
    global _is_installed
    if not _is_installed:
        # An audit hook cannot be taken out again; without a watch it does nothing.
        sys.addaudithook(_hook)
        _is_installed = True
    watch = _Watch()
    _watches.append(watch)
    try:
        yield watch.effects
    finally:
        _watches.remove(watch)


def _hook(event: str, args: tuple[Any, ...]) -> None:
    watches = [watch for watch in tuple(_watches) if watch.concerns_this_thread()]
    for watch in watches:
        watch.see(event, args)
    if watches and (asked := _asked(event, args)):
        raise ConnectionRefusedError(f"no connection to {asked[0]}: a check is without network")


def _written(event: str, args: tuple[Any, ...]) -> list[str]:
    if event == "open":
        is_written = isinstance(args[2], int) and bool(args[2] & _WRITING)
        paths = args[:1] if is_written else ()
    else:
        paths = tuple(args[i] for i in _PATHS.get(event, ()))
    named = [os.fsdecode(p) for p in paths if isinstance(p, str | bytes | os.PathLike)]
    return [
        os.path.abspath(path)
        for path in named
        if path not in (os.devnull, ":memory:") and "__pycache__" not in path
    ]


def _asked(event: str, args: tuple[Any, ...]) -> list[str]:
    if event == "socket.getaddrinfo":
        return [f"{args[0]}:{args[1]}"]
    if event not in ("socket.connect", "socket.sendto"):
        return []
    is_local = getattr(args[0], "family", None) == getattr(socket, "AF_UNIX", object())
    return [] if is_local else [":".join(map(str, args[1][:2]))]
