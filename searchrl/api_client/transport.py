"""The wire under the `openai` client, with limits of time and size.

It sends no header of the machine or the environment and follows no redirect, which would carry the
key elsewhere. Tries, `Retry-After` and connections are the library's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import closing, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import httpx2
from openai import OpenAIError

from searchrl.errors import EndpointFailure, SearchRLError

# Headers of the library that are sent, and those of an answer that it reads.
_OUT = ("accept-encoding", "connection", "content-length", "content-type", "host")
_IN = ("retry-after", "retry-after-ms", "x-should-retry")


class Ended(OpenAIError):
    """Nothing more is tried. The library passes its own errors on at once, and retries others."""

    def __init__(self, error: SearchRLError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(slots=True)
class Asking:
    """A request under way, with all its tries; `before(is_retry)` is called before each."""

    ends_at: float
    before: Callable[[bool], None]
    late: str
    num_tries: int = 0


ASKING: ContextVar[Asking] = ContextVar("asking")
"""The request of this thread."""


class Wire(httpx2.Client):
    """Sends one try after the other, whatever request it is of."""

    def __init__(self, key_header: str, max_bytes: int, concurrency: int) -> None:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=concurrency)
        super().__init__(limits=limits)
        self._headers_sent = {"accept": "application/json", "user-agent": "searchrl"}
        if key_header:
            self._headers_sent["authorization"] = key_header
        self._max_bytes = max_bytes

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request; `Ended` if the answer is too late, too long, or `before` refuses."""
        asking = ASKING.get()
        left_s = asking.ends_at - time.monotonic()
        if left_s <= 0:
            raise Ended(EndpointFailure(asking.late))
        try:
            asking.before(asking.num_tries > 0)
        except SearchRLError as error:
            raise Ended(error) from None
        asking.num_tries += 1
        sent = {name: request.headers[name] for name in _OUT if name in request.headers}
        request.headers = httpx2.Headers(sent | self._headers_sent)
        request.extensions = {"timeout": httpx2.Timeout(left_s).as_dict()}
        content = bytearray()
        try:
            with closing(super().send(request, stream=True, follow_redirects=False)) as answer:
                for piece in answer.iter_bytes():
                    content += piece
                    if len(content) > self._max_bytes:
                        text = f"{request.url} sent more than {self._max_bytes:,} bytes"
                        raise Ended(EndpointFailure(f"{text}, which is no answer"))
                    # The limit of the library is one of silence.
                    if time.monotonic() > asking.ends_at:
                        raise Ended(EndpointFailure(asking.late))
        except httpx2.TimeoutException:
            raise Ended(EndpointFailure(asking.late)) from None
        headers = {name: answer.headers[name] for name in _IN if name in answer.headers}
        is_error = answer.status_code == 200 and _is_error(content)
        with suppress(ValueError):  # where it asks to wait for longer than there is time
            if float(headers.get("retry-after", "")) > asking.ends_at - time.monotonic():
                headers["x-should-retry"] = "false"
        return httpx2.Response(
            503 if is_error else answer.status_code,  # by which the library asks again
            headers=headers,
            content=bytes(content),
            request=request,
            extensions={"status": answer.status_code},
        )


def _is_error(content: bytearray) -> bool:
    """True if an answer, or its first choice, is an error."""
    body: Any = None
    with suppress(ValueError, RecursionError):
        body = json.loads(content) if b'"error"' in content else None
    if not isinstance(body, dict):
        return False
    match body.get("choices"):
        case [{"error": error}, *_] if error:
            return True
        case [{"finish_reason": "error"}, *_]:
            return True
    return bool(body.get("error")) and not any(isinstance(v, list) and v for v in body.values())
