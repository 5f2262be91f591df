"""MCP over HTTP: the tool `search`, for any program that lets a language model call tools.

Owns what the tool is called with and what it gives back. The protocol is that of the official
`mcp` package (the extra `mcp`): streamable HTTP, without sessions, answers as JSON. It searches as
`/retrieve` does, in the same batches and within the same limits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Annotated

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import BaseModel, Field
from starlette.routing import BaseRoute

from searchrl import RetrieverFailure
from searchrl_retrieval.http.batching import Found
from searchrl_retrieval.http.wire import Asked, BadRequest, ensure_within

if TYPE_CHECKING:
    from searchrl_retrieval.http.app import Serving

PATH = "/mcp"


class Result(BaseModel):
    """One passage that was found."""

    docid: str
    title: str
    text: str
    score: float


class Results(BaseModel):
    """What was found, best first."""

    results: list[Result]


class Tools:
    """The MCP server of a retrieval server: its route, and what must run beside it.

    `search(queries, k)` is what searches.
    """

    def __init__(
        self, search: Callable[[Sequence[str], int], Awaitable[Found]], serving: Serving
    ) -> None:
        limits = serving.limits
        server: MCPServer[object] = MCPServer(
            "searchrl",
            instructions=f"`search` finds passages of a text collection ({serving.name}).",
            log_level="WARNING",
        )

        async def find(
            query: Annotated[str, Field(description="what is looked for, in plain words")],
            k: Annotated[int, Field(description="how many passages are wanted")] = limits.topk,
        ) -> Results:
            """Search the text collection; returns the passages that fit the query best."""
            try:
                ensure_within(Asked((query,), k), limits)
                (found,) = await search([query], k)
            except (BadRequest, RetrieverFailure) as error:
                raise ToolError(str(error)) from error
            except TimeoutError as error:
                raise ToolError(f"the search took longer than {limits.search_s:g} s") from error
            return Results(
                results=[
                    Result(docid=one.id, title=one.title, text=one.text, score=one.score)
                    for one in found
                ]
            )

        server.add_tool(find, name="search")
        # Hosts and origins are looked at for all routes.
        unguarded = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        made = server.streamable_http_app(
            streamable_http_path=PATH,
            json_response=True,
            stateless_http=True,
            max_request_body_size=limits.body_bytes,
            transport_security=unguarded,
        )
        self.route: BaseRoute = made.routes[0]
        self._server = server

    def running(self) -> AbstractAsyncContextManager[None]:
        """The context in which requests can be answered; once per server."""
        context: AbstractAsyncContextManager[None] = self._server.session_manager.run()
        return context
