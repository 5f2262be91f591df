"""Servers of ours: who is let in, and limits of time and size for requests of strangers.

Left alone, uvicorn waits for ever, and counts who never finishes a header as one that it works for.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from searchrl.errors import ConfigError

if TYPE_CHECKING:
    import uvicorn

MAX_HEADER_BYTES = 16 * 2**10
HEADER_S, BODY_S = 10.0, 60.0
"""Seconds until a header, and the body behind it, must be there."""

LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
OPEN_PATH = "/health"  # it needs no key: machines that watch over servers ask for it


class HttpServer:
    """A socket at an address, where clients wait from now on, and the server of an application.

    Who connects while `max_connections` are open is told 503.

    Args:
        host: the address. A local one is answered under its own names only: a page that a browser
            was led to by DNS rebinding has another.
        port: 0 takes a free one.
        key: clients send `Authorization: Bearer KEY`, or all of it if it has two words; None: none.

    Raises:
        ConfigError: if the address cannot be had: another program is there, say.
    """

    def __init__(
        self, host: str, port: int, *, key: str | None = None, max_connections: int = 2048
    ) -> None:
        plain = host.strip("[]")
        family = socket.AF_INET6 if ":" in plain else socket.AF_INET
        try:
            at = (plain, port)
            self.socket = socket.create_server(at, family=family, backlog=max_connections)
        except OSError as error:
            raise ConfigError(
                f"--host {host} --port {port} cannot be used ({error.strerror or error}); end the "
                "program that uses it, or name another port with --port (0: any free one)"
            ) from error
        self.is_local = plain in LOCAL_HOSTS
        self._key, self._max_connections = key, max_connections
        shown, port = self.socket.getsockname()[:2]
        if shown in ("0.0.0.0", "::"):
            shown = socket.gethostname()
        self.address = f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"

    def make(self, app: Any, **settings: Any) -> uvicorn.Server:
        """The server of an application: `make(app).run([http.socket])` runs until a signal.

        `settings` are those of `uvicorn.Config`; `ws="auto"` lets websockets in.
        """
        import h11
        import uvicorn
        from uvicorn.protocols.http.h11_impl import H11Protocol

        limits = {h11.IDLE: HEADER_S, h11.SEND_BODY: BODY_S}
        unfinished: set[object] = set()
        most = self._max_connections

        class Protocol(H11Protocol):
            """One connection."""

            _state: object = None
            _timer: asyncio.TimerHandle | None = None

            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
                super().connection_made(transport)
                self._watch(self.conn.their_state)

            def data_received(self, data: bytes) -> None:
                self.limit_concurrency = most + len(unfinished)
                super().data_received(data)
                self._watch(self.conn.their_state)

            def connection_lost(self, exc: Exception | None) -> None:
                super().connection_lost(exc)
                self._watch(None)

            def _watch(self, state: object) -> None:
                """Set the limit of what has begun to arrive, if something else did before."""
                if state is self._state:
                    return
                self._state = state
                if self._timer is not None:
                    self._timer.cancel()
                unfinished.discard(self)
                if state in limits:
                    unfinished.add(self)
                    self._timer = self.loop.call_later(limits[state], self.transport.abort)

        async def guarded(scope: Any, receive: Any, send: Any) -> None:
            refusal = None if scope["type"] == "lifespan" else self._refuse(scope)
            if refusal is None:
                await app(scope, receive, send)
                return
            status, text = refusal
            start = "websocket.http.response" if scope["type"] == "websocket" else "http.response"
            headers = [(b"content-type", b"application/json")]
            await send({"type": f"{start}.start", "status": status, "headers": headers})
            await send({"type": f"{start}.body", "body": json.dumps({"detail": text}).encode()})

        usual = {"ws": "none", "lifespan": "on", "log_level": "warning"}
        config = uvicorn.Config(
            guarded,
            http=Protocol,
            access_log=False,
            server_header=False,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            limit_concurrency=most,
            **{**usual, "timeout_graceful_shutdown": 10, **settings},
        )
        return uvicorn.Server(config)

    def _refuse(self, scope: Mapping[str, Any]) -> tuple[int, str] | None:
        """Status and reason of a refusal: no page of another site, and nobody without the key."""
        headers = {name.decode("latin-1"): one.decode("latin-1") for name, one in scope["headers"]}
        host, origin = headers.get("host", ""), headers.get("origin")
        name = re.sub(r":\d+$", "", host).strip("[]")
        if self.is_local and name not in (*LOCAL_HOSTS, "0.0.0.0"):
            return 403, f"only programs on this machine may ask, at {self.address}"
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return 403, "a page of another site may not ask this server"
        if self._key is not None and scope["path"] != OPEN_PATH:
            wanted = self._key if " " in self._key else f"Bearer {self._key}"
            if not hmac.compare_digest(headers.get("authorization", "").encode(), wanted.encode()):
                return 401, "this server wants a key: Authorization: Bearer KEY"
        return None
