"""Running a retrieval server: its socket, its signals, its end.

Owns the address that is bound, the warning where other machines can reach it, and the end at
SIGTERM or Ctrl-C: requests that were begun are answered, new ones are not taken. Needs uvicorn (the
extra `server`).
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from searchrl import ConfigError
from searchrl_retrieval.http.intake import App

END_S = 10
"""Seconds that requests under way get to finish at the end."""

MAX_CONNECTIONS = 2048
"""More are told 503: each of them takes memory."""

IDLE_S = 10
"""Seconds until a connection that sends no whole headers is closed: it would keep others out."""


def is_local(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:  # a name
        return False


def warn_of(host: str, *, has_key: bool) -> str:
    """What to say of an address that other machines can reach; "" for a local one."""
    if is_local(host):
        return ""
    who = "whoever knows the key" if has_key else "whoever reaches it, for it asks for no key"
    return (
        f"{host} can be reached from other machines, and what is sent is not encrypted: {who} can "
        "search the corpus" + ("" if has_key else "; --key-env NAME asks for one")
    )


def bind(host: str, port: int) -> socket.socket:
    """A socket at an address; `port` 0 takes a free one.

    Raises:
        ConfigError: if it cannot be had: another program is there, say.
    """
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, proto)
    except OSError as error:
        raise ConfigError(f"--host {host}: {error.strerror or error}") from error
    try:
        # A server that was just ended must not keep the next one from its port.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise ConfigError(
            f"{host}:{port} cannot be used ({error.strerror or error}); end the program that uses "
            "it, or name another port with --port (0: any free one)"
        ) from error
    return bound


def show_address(bound: socket.socket) -> str:
    """The address of a socket as a client writes it: `http://127.0.0.1:8000`."""
    host, port = bound.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Protocol(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it, which waits for the headers of a request for ever."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for headers."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(IDLE_S, transport.close)

    def data_received(self, data: bytes) -> None:
        """Begin to wait for the next headers with their first byte, and end when they are whole."""
        super().data_received(data)
        is_waiting = self.conn.their_state is h11.IDLE
        if self._timer is None and is_waiting:
            self._timer = self.loop.call_later(IDLE_S, self.transport.close)
        elif self._timer is not None and not is_waiting:
            self._timer.cancel()
            self._timer = None


def configure(app: App) -> uvicorn.Config:
    """How uvicorn runs a server."""
    return uvicorn.Config(
        app,
        http=_Protocol,
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        backlog=MAX_CONNECTIONS,
        timeout_graceful_shutdown=END_S,
        timeout_keep_alive=IDLE_S,
    )


def serve(app: App, bound: socket.socket, *, on_start: Callable[[], None]) -> None:
    """Answer requests until a signal ends it; the signal then goes on as it would have.

    `on_start` is called when requests are taken.
    """
    bound.listen(MAX_CONNECTIONS)  # from now on who asks waits for the answer
    on_start()
    uvicorn.Server(configure(app)).run(sockets=[bound])
