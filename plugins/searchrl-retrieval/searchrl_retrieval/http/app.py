"""The application of a retrieval server: `/retrieve`, `/health`, and MCP at `/mcp`.

Owns the one handler behind Search-R1's form and MCP, and what goes back when something fails. What
bodies mean is `wire`. Needs FastAPI (the extra `server`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from searchrl.contracts import Passage, Retriever, find_passages_problem
from searchrl_retrieval.http import wire
from searchrl_retrieval.http.wire import Asked, BadRequest, Limits

FRONT_CALLS = 16
"""Calls of a front that are under way: the servers behind it work while it reads and writes."""


@dataclass(frozen=True, slots=True)
class Serving:
    """A service: a name to show, its retriever, and the number of its passages if it is known.

    `is_front`: others do the work, so `FRONT_CALLS` calls at once gain time.
    """

    name: str
    retriever: Retriever
    num_passages: int | None = None
    limits: Limits = field(default_factory=Limits)
    is_front: bool = False


class Handler:
    """Searches within the limits, and counts: what all routes share.

    The retriever gets one call at a time, that of a front several, from threads of their own.
    """

    def __init__(self, serving: Serving) -> None:
        self.serving = serving
        self.num_requests = 0
        self.num_failed = 0
        num_calls = FRONT_CALLS if serving.is_front else 1
        self._threads = ThreadPoolExecutor(num_calls, thread_name_prefix="retriever")

    async def search(self, asked: Asked) -> list[list[Passage]]:
        """The passages of each query.

        Raises:
            BadRequest: more was asked for than is given, or the search failed or took too long.
        """
        limits = self.serving.limits
        wire.ensure_within(asked, limits)
        self.num_requests += 1
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(limits.search_s):
                return await loop.run_in_executor(self._threads, self._search, asked)
        except TimeoutError as error:
            self.num_failed += 1
            text = f"the search took longer than {limits.search_s:g} s"
            raise BadRequest(504, text) from error
        except BadRequest:
            self.num_failed += 1
            raise

    def _search(self, asked: Asked) -> list[list[Passage]]:
        """Call the retriever, and check what it returns."""
        found: Any = None
        try:
            found = self.serving.retriever.search(list(asked.queries), asked.k)
        except (Exception, SystemExit) as error:  # a plugin's sys.exit() must not end the server
            text = f"retriever {self.serving.name}: {type(error).__name__}: {error}"
            raise BadRequest(500, text) from error
        wanted = len(asked.queries)
        problem = f"results that are not one list for each of {wanted} queries"
        if isinstance(found, Sequence) and len(found) == wanted:
            problem = next(filter(None, map(find_passages_problem, found)), "")
        if problem:
            raise BadRequest(500, f"the retriever {self.serving.name} returned {problem}")
        return [list(passages)[: asked.k] for passages in found]

    def describe(self) -> dict[str, Any]:
        """Return the state of the server and its limits."""
        return {
            "status": "ok",
            "retriever": self.serving.name,
            "passages": self.serving.num_passages,
            "requests": self.num_requests,
            "failed": self.num_failed,
            "limits": asdict(self.serving.limits),
        }


def make_app(serving: Serving, *, has_mcp: bool = False) -> FastAPI:
    """The application of a server; with `has_mcp` it speaks MCP, too (the extra `mcp`)."""
    handler = Handler(serving)
    lifespan = None
    if has_mcp:
        from searchrl_retrieval.http.mcp_tool import make_tools

        route, running = make_tools(handler.search, serving.name, serving.limits)

        @contextlib.asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncIterator[None]:
            async with running:
                yield

    app = FastAPI(title=f"Retrieval server: {serving.name}", lifespan=lifespan)

    async def retrieve(request: Request) -> Response:
        """Passages for queries, in the form of Search-R1."""
        try:
            asked = wire.read_request(await _read_body(request, serving.limits), serving.limits)
            answer = wire.write_answer(asked, await handler.search(asked))
        except BadRequest as error:
            return _refuse(error)
        return Response(answer, media_type="application/json")

    app.post("/retrieve")(retrieve)
    app.get("/health")(handler.describe)
    if has_mcp:
        app.router.routes.append(route)
    return app


async def _read_body(request: Request, limits: Limits) -> bytes:
    """The body of a request, within the limits.

    What is too large is read to its end and thrown away: a client that is cut off while it sends
    never sees the answer.
    """
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= limits.body_bytes:
            chunks.append(chunk)
    if size > limits.body_bytes:
        raise BadRequest(413, f"the body is too large; at most {limits.body_bytes:,} bytes")
    return b"".join(chunks)


def _refuse(error: BadRequest) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, error.status)
