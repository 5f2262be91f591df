"""Limits of time and size for requests of strangers to a server of ours.

Left alone, uvicorn waits for ever, and counts who never finishes a header as one that it works for.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import uvicorn

MAX_HEADER_BYTES = 16 * 2**10
HEADER_S, BODY_S = 10.0, 60.0
"""Seconds until a header, and the body behind it, must be there."""


def make_http_server(app: Any, *, max_connections: int, **settings: Any) -> uvicorn.Server:
    """A uvicorn server of an application; `settings` are others of `uvicorn.Config`.

    Who has sent a whole request, and `max_connections` have, is told 503.
    """
    import h11
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

    limits = {h11.IDLE: HEADER_S, h11.SEND_BODY: BODY_S}
    unfinished: set[object] = set()

    class Protocol(H11Protocol):
        """One connection."""

        _state: object = None
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._watch(self.conn.their_state)

        def data_received(self, data: bytes) -> None:
            self.limit_concurrency = max_connections + len(unfinished)
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

    config = uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        access_log=False,
        server_header=False,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        limit_concurrency=max_connections,
        **settings,
    )
    return uvicorn.Server(config)
