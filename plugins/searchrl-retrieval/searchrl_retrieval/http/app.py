"""The application of a retrieval server: `/retrieve`, `/health`, and MCP at `/mcp`.

Owns the routes and what goes back when something fails. What bodies mean is `wire`, who is let in
is `intake`, what is searched together is `batching`. Needs FastAPI (the extra `server`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.middleware.trustedhost import TrustedHostMiddleware

from searchrl import RetrieverFailure
from searchrl.contracts import Retriever
from searchrl_retrieval.http.batching import Batcher, Found
from searchrl_retrieval.http.intake import App, Intake
from searchrl_retrieval.http.wire import BadRequest, Limits, read_request, write_answer

LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1", "[::1]", "0.0.0.0")
"""What a client on this machine may call it. A page that was led here (DNS rebinding) does not."""

_EXAMPLE = {"queries": ["Who wrote Hamlet?"], "topk": 3, "return_scores": True}


@dataclass(frozen=True, slots=True)
class Serving:
    """What is served: a name to show, what searches, and how many passages it has if that is known.

    `key` is what clients must know; None: nothing. `is_local`: only this machine is answered.
    """

    name: str
    retriever: Retriever
    num_passages: int | None = None
    limits: Limits = field(default_factory=Limits)
    key: str | None = None
    is_local: bool = True


class Search:
    """Searches within the time limit, and counts; what all routes share."""

    def __init__(self, serving: Serving) -> None:
        self.limits = serving.limits
        self.batcher = Batcher(serving.retriever)
        self.num_requests = 0
        self.num_failed = 0

    async def __call__(self, queries: Sequence[str], k: int) -> Found:
        """The passages of each query.

        Raises:
            RetrieverFailure: if the retriever failed.
            TimeoutError: if it did not answer in time.
        """
        self.num_requests += 1
        try:
            async with asyncio.timeout(self.limits.search_s):
                return await self.batcher.search(queries, k)
        except (RetrieverFailure, TimeoutError):
            self.num_failed += 1
            raise


def make_app(serving: Serving, *, has_mcp: bool = False) -> App:
    """The ASGI application of a server; with `has_mcp` it speaks MCP, too (the extra `mcp`)."""
    search = Search(serving)
    began_s = time.monotonic()
    tools = None
    if has_mcp:
        from searchrl_retrieval.http.mcp_tool import Tools

        tools = Tools(search, serving)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        running = asyncio.create_task(search.batcher.run())
        try:
            async with contextlib.AsyncExitStack() as stack:
                if tools is not None:
                    await stack.enter_async_context(tools.running())
                yield
        finally:
            running.cancel()

    app = FastAPI(title=f"Retrieval server: {serving.name}", lifespan=lifespan)

    async def retrieve(request: Request) -> Response:
        """Passages for queries. `{"query": text}` is answered in the form of BrowseComp-Plus."""
        try:
            asked = read_request(await request.body(), serving.limits)
            found = await search(asked.queries, asked.k)
            answer = write_answer(asked, found, serving.limits)
        except BadRequest as error:
            return JSONResponse({"detail": str(error)}, error.status)
        except RetrieverFailure as error:
            return JSONResponse({"detail": f"retriever {serving.name}: {error}"}, 500)
        except TimeoutError:
            text = f"the search took longer than {serving.limits.search_s:g} s"
            return JSONResponse({"detail": text}, 504)
        return Response(answer, media_type="application/json")

    async def health() -> JSONResponse:
        """Whether the server answers, what it serves, and its limits."""
        is_stuck = search.batcher.busy_s > serving.limits.search_s
        facts: dict[str, Any] = {
            "status": "stuck" if is_stuck else "ok",
            "retriever": serving.name,
            "passages": serving.num_passages,
            "requests": search.num_requests,
            "failed": search.num_failed,
            "waiting": search.batcher.num_waiting,
            "calls": search.batcher.num_calls,
            "up_s": round(time.monotonic() - began_s, 1),
            "limits": asdict(serving.limits),
        }
        return JSONResponse(facts, 503 if is_stuck else 200)

    body = {"content": {"application/json": {"example": _EXAMPLE}}, "required": True}
    app.post("/retrieve", openapi_extra={"requestBody": body})(retrieve)
    app.get("/health")(health)
    if tools is not None:
        app.router.routes.append(tools.route)
    if serving.is_local:
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(LOCAL_HOSTS))
    return Intake(app, serving.limits, serving.key)
