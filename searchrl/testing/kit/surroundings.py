"""Other surroundings: what a pure function must not notice, and must leave as they are.

Owns the change of clock and current folder for the time of a check, and that connections are
refused and files left behind are seen. Process-wide, so nothing else should run meanwhile.
"""

from __future__ import annotations

import contextlib
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

_CLOCK_S = 1.0e9


@contextmanager
def away() -> Iterator[list[str]]:
    """Stand in an empty folder, without network; the list is of the files left there, at the end.

    A plugin that asks a server gets a ConnectionRefusedError.
    """
    files: list[str] = []

    def refuse(*args: Any, **named: Any) -> NoReturn:
        address = next((one for one in args if isinstance(one, tuple)), args)
        asked = ":".join(map(str, address[:2]))
        raise ConnectionRefusedError(f"no connection to {asked}: a check is without network")

    with contextlib.ExitStack() as stack:
        found = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        for name in ("connect", "connect_ex", "sendto"):
            real = getattr(socket.socket, name)

            def reach(to: socket.socket, *args: Any, real: Any = real) -> Any:
                # A service of its own on this machine is no network.
                is_local = to.family == getattr(socket, "AF_UNIX", None)
                return real(to, *args) if is_local else refuse(*args)

            stack.enter_context(mock.patch.object(socket.socket, name, reach))
        stack.enter_context(mock.patch("socket.getaddrinfo", refuse))
        stack.enter_context(contextlib.chdir(found))
        yield files
        left = (path for path in sorted(Path(found).rglob("*")) if path.is_file())
        files += [path.relative_to(found).as_posix() for path in left]


@contextmanager
def elsewhen() -> Iterator[list[str]]:
    """As `away`, at another time."""
    with (
        mock.patch("time.time", lambda: _CLOCK_S),
        mock.patch("time.time_ns", lambda: int(_CLOCK_S * 1e9)),
        away() as files,
    ):
        yield files
