"""Runs inside vLLM: every request needs the key, and the server ends with the run that started it.

vLLM's own key does not guard the routes that change weights. The folder of this file is put on the
path of vLLM's Python, which has no SearchRL; so it holds one file, of the standard library only.
"""

import os
import secrets
import signal
import sys
import threading
from typing import Any


class Guard:
    """An ASGI middleware: 401 without `Authorization: Bearer KEY`."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.wanted = f"Bearer {os.environ['SEARCHRL_VLLM_KEY']}".encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on if it has the key."""
        given = dict(scope.get("headers", ())).get(b"authorization", b"")
        is_let_in = secrets.compare_digest(given, self.wanted)
        if scope["type"] == "lifespan" or is_let_in:
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"send the key of SEARCHRL_VLLM_KEY"})


def _end_with_the_run() -> None:
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


if os.environ.get("SEARCHRL_VLLM_ENDS_WITH_STDIN"):
    threading.Thread(target=_end_with_the_run, daemon=True).start()
