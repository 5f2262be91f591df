"""The intake of a server: who is let in, and how much of a body is read.

Owns the limits that come before any parsing: bytes of a body, bytes of all bodies under way, the
time a body may take, the key, and that no page of another site asks. As an ASGI layer it lies
around everything, MCP included.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from searchrl_retrieval.http.wire import BadRequest, Limits

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

OPEN_PATH = "/health"
"""Asked by machines that watch over servers; it needs no key."""


class Intake:
    """Reads the body of a request whole, within the limits, before the application sees it.

    Args:
        app: what answers.
        limits: what is taken.
        key: what a client must know; None: nothing.
    """

    def __init__(self, app: App, limits: Limits, key: str | None = None) -> None:
        self.app = app
        self.limits = limits
        self._key = None if key is None else (key if " " in key else f"Bearer {key}").encode()
        self._pending_bytes = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request (ASGI)."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        reading = _Reading(self._find_fault(scope))
        try:
            if not await self._read_in_time(reading, receive):
                return
            if reading.fault is not None:
                await _refuse(send, reading.fault)
            else:
                await self.app(scope, _replay(b"".join(reading.chunks), receive), send)
        finally:  # also if the server ends while the body comes
            self._pending_bytes -= reading.held

    def _find_fault(self, scope: Message) -> BadRequest | None:
        """What is wrong with a request before its body is read."""
        headers = dict(scope["headers"])
        origin, host = headers.get(b"origin"), headers.get(b"host", b"")
        if origin is not None and origin not in (b"http://" + host, b"https://" + host):
            return BadRequest(403, "a page of another site may not ask this server")
        if self._key is not None and scope["path"] != OPEN_PATH:
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, self._key):
                return BadRequest(401, "this server wants a key: Authorization: Bearer KEY")
        length = headers.get(b"content-length", b"")
        is_too_large = length.isdigit() and int(length) > self.limits.body_bytes
        return self._too_large() if is_too_large else None

    async def _read_in_time(self, reading: _Reading, receive: Receive) -> bool:
        """Read a body within the time it may take; False if the client is gone."""
        try:
            async with asyncio.timeout(self.limits.body_s):
                return await self._read(reading, receive)
        except TimeoutError:
            text = f"the body took longer than {self.limits.body_s:g} s"
            reading.fault = BadRequest(408, text)
            return True

    async def _read(self, reading: _Reading, receive: Receive) -> bool:
        """Read a body to its end; False if the client is gone.

        Of a request that is refused the rest is read, too, and thrown away: a client that is cut
        off while it sends never sees the answer.
        """
        is_more = True
        while is_more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return False
            is_more = message.get("more_body", False)
            if reading.fault is not None:
                continue
            chunk = message.get("body", b"")
            reading.chunks.append(chunk)
            reading.held += len(chunk)
            self._pending_bytes += len(chunk)
            if reading.held > self.limits.body_bytes:
                reading.fault = self._too_large()
            elif self._pending_bytes > self.limits.pending_bytes:
                reading.fault = BadRequest(503, "too many requests at once; ask again")
            if reading.fault is not None:
                self._pending_bytes -= reading.held
                reading.held = 0
                reading.chunks.clear()
        return True

    def _too_large(self) -> BadRequest:
        return BadRequest(413, f"the body is too large; at most {self.limits.body_bytes:,} bytes")


@dataclass(slots=True)
class _Reading:
    """A body as far as it was read, and why it is refused."""

    fault: BadRequest | None
    chunks: list[bytes] = field(default_factory=list)
    held: int = 0


def _replay(body: bytes, receive: Receive) -> Receive:
    """What the application receives: the body at once, then what comes."""
    is_read = False

    async def replay() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _refuse(send: Send, refused: BadRequest) -> None:
    headers = [(b"content-type", b"application/json")]
    if refused.status == 503:
        headers.append((b"retry-after", b"1"))
    if refused.status == 408:  # the rest of the body is not read
        headers.append((b"connection", b"close"))
    body = json.dumps({"detail": str(refused)}).encode()
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
