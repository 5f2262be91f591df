"""The server that agents talk to, in one thread of this process and for this machine only.

Owns the routes, who is let in, and the socket. What bodies mean is `wire`; what is answered is up
to the `Session` that a key belongs to.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, NamedTuple

import anyio.to_thread
import uvicorn
from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from searchrl.api_client import HttpServer
from searchrl_agents import wire
from searchrl_agents.session import Session
from searchrl_agents.talk import Refused

MAX_BODY_BYTES = 8 * 2**20
MAX_WAITING = 4096
"""Most requests that wait for an answer, each in a thread; more stand in line."""


class _Asked(NamedTuple):
    rollout: Session
    body: bytes
    key: str
    is_again: bool


async def _admit(request: Request) -> _Asked:
    """Admit who knows the key of a rollout."""
    headers = request.headers
    scheme, _, token = headers.get("authorization", "").partition(" ")
    rollout = request.app.state.find(token.strip()) if scheme.lower() == "bearer" else None
    if rollout is None:
        text = "no rollout under way has this key, and a key is valid for one rollout only; send "
        raise Refused(text + "'Authorization: Bearer KEY' with its own", 401, "invalid_api_key")
    body, size = bytearray(), 0
    # A body that is too large is read to its end, or the client would not see the answer.
    async for chunk in request.stream():
        size += len(chunk)
        if size <= MAX_BODY_BYTES:
            body += chunk
    if size > MAX_BODY_BYTES:
        raise Refused(f"send at most {MAX_BODY_BYTES:,} bytes, not {size:,}", 413, "too_large")
    named = headers.get("idempotency-key")
    key = named or hashlib.sha256(body).hexdigest()
    is_again = bool(named) or headers.get("x-stainless-retry-count", "0") != "0"
    return _Asked(rollout, bytes(body), key, is_again)


Asked = Annotated[_Asked, Depends(_admit)]


def _ask(method: Callable[..., Any], *args: Any) -> Any:
    try:
        return method(*args)
    except Refused:
        raise
    except (Exception, SystemExit) as error:  # a plugin's sys.exit() must not end the server
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise Refused(text, 500, "rollout_failed") from error


def _chat(asked: Asked) -> Response:
    chat = wire.read_body(wire.Chat, asked.body)
    replies = _ask(
        asked.rollout.chat, chat.to_request(asked.rollout.temperature, asked.key, asked.is_again)
    )
    if chat.stream:
        return Response(wire.write_events(chat, replies), media_type="text/event-stream")
    return JSONResponse(wire.write_completion(chat, replies))


def _list_models(asked: Asked) -> Response:
    model = {"id": wire.MODEL, "object": "model", "created": 0, "owned_by": "searchrl"}
    return JSONResponse({"object": "list", "data": [model]})


def _use_tool(name: str, asked: Asked) -> Response:
    arguments = wire.read_body(dict[str, Any], asked.body)
    return JSONResponse({"result": _ask(asked.rollout.tool, name, arguments)})


def _take_answer(asked: Asked) -> Response:
    _ask(asked.rollout.answer, wire.read_body(wire.Answer, asked.body).answer)
    return JSONResponse({"ok": True})


def _take_reward(asked: Asked) -> Response:
    _ask(asked.rollout.reward, wire.read_body(wire.Reward, asked.body).reward)
    return JSONResponse({"ok": True})


ROUTES: dict[str, Callable[..., Response]] = {
    "POST /v1/chat/completions": _chat,
    "GET /v1/models": _list_models,
    "POST /v1/searchrl/tools/{name}": _use_tool,
    "POST /v1/searchrl/answer": _take_answer,
    "POST /v1/searchrl/reward": _take_reward,
}


async def _refuse(_: Request, error: Any) -> Response:
    if isinstance(error, HTTPException):  # of FastAPI: a path or a method that no route has
        text = f"there is no such route; there are {', '.join(ROUTES)}"
        error = Refused(text, error.status_code, "unknown_route")
    said = {
        "message": str(error),
        "type": "server_error" if error.status >= 500 else "invalid_request_error",
        "param": error.param if isinstance(error, wire.BadField) else None,
        "code": error.code,
    }
    return JSONResponse({"error": said}, error.status)


@contextlib.asynccontextmanager
async def _allow_waiting(_: FastAPI) -> AsyncIterator[None]:
    anyio.to_thread.current_default_thread_limiter().total_tokens = MAX_WAITING
    yield


class AgentServer:
    """Answers agents from a thread of its own, between `start` and `close`.

    Args:
        find: returns the rollout of a bearer token; None: it is over or unknown.
    """

    address = ""
    """Address from `start` on, as `http://127.0.0.1:4711`; OPENAI_BASE_URL is this and `/v1`."""

    def __init__(self, find: Callable[[str], Session | None]) -> None:
        self._find = find
        self._running: tuple[uvicorn.Server, threading.Thread] | None = None

    def start(self) -> None:
        """Listen at a free port of 127.0.0.1."""
        # From here on clients wait for the answer, even if the thread is not ready.
        http = HttpServer("127.0.0.1", 0, max_connections=2 * MAX_WAITING)
        self.address = http.address
        app = FastAPI(lifespan=_allow_waiting, openapi_url=None, redirect_slashes=False)
        for kind in (Refused, HTTPException):
            app.add_exception_handler(kind, _refuse)
        app.state.find = self._find
        for route, answer in ROUTES.items():
            method, path = route.split()
            app.add_api_route(path, answer, methods=[method], response_model=None)
        server = http.make(
            app,
            log_config=None,
            log_level="critical",
            # Longer than clients keep an idle connection, or it closes as a request arrives.
            timeout_keep_alive=600,
            timeout_graceful_shutdown=5,
        )
        thread = threading.Thread(
            target=server.run, args=([http.socket],), name="agents", daemon=True
        )
        thread.start()
        self._running = server, thread

    def close(self) -> None:
        """Stop listening, and wait for requests under way, 5 seconds at most.

        End the rollouts first. The thread of a request that still waits ends with its answer.
        """
        if self._running is not None:
            server, thread = self._running
            server.should_exit = True
            thread.join()
            self._running = None
