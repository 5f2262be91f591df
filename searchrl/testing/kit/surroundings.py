"""Other surroundings of the process, which a pure function does not notice or change."""

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
    """Stand in an empty folder, without network; at the end the list has the files left there."""
    files: list[str] = []
    connect = socket.socket.connect

    def refuse(*args: Any, **named: Any) -> NoReturn:
        raise ConnectionRefusedError(f"no connection to {args[0]}: a check is without network")

    def reach(to: socket.socket, address: Any) -> None:
        # A service of its own on this machine is no network.
        is_local = to.family == getattr(socket, "AF_UNIX", None)
        connect(to, address) if is_local else refuse(address)

    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        mock.patch.object(socket.socket, "connect", reach),
        mock.patch("socket.getaddrinfo", refuse),
        contextlib.chdir(folder),
    ):
        yield files
        left = (path for path in sorted(Path(folder).rglob("*")) if path.is_file())
        files += [path.relative_to(folder).as_posix() for path in left]


@contextmanager
def elsewhen() -> Iterator[list[str]]:
    """As `away`, at another time."""
    with (
        mock.patch("time.time", lambda: _CLOCK_S),
        mock.patch("time.time_ns", lambda: int(_CLOCK_S * 1e9)),
        away() as files,
    ):
        yield files
