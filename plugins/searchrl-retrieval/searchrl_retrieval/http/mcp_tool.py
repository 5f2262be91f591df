"""MCP over HTTP: the tool `search`, for any program that lets a language model call tools.

Owns what the tool is called with and what it gives back. The protocol is that of the official
`mcp` package (the extra `mcp`): streamable HTTP, without sessions, answers as JSON.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import Field
from starlette.routing import BaseRoute

from searchrl.contracts import Passage
from searchrl_retrieval.http.wire import Asked, BadRequest, Limits

PATH = "/mcp"


def make_tools(
    search: Callable[[Asked], Awaitable[list[list[Passage]]]], name: str, limits: Limits
) -> tuple[BaseRoute, AbstractAsyncContextManager[None]]:
    """The route of MCP, and the context in which it can be answered, once per server.

    `search(asked)` is what searches, `name` what is served.
    """
    server: MCPServer[object] = MCPServer(
        "searchrl",
        instructions=f"`search` finds passages of a text collection ({name}).",
        log_level="WARNING",
    )

    async def find(
        query: Annotated[str, Field(description="what is looked for, in plain words")],
        k: Annotated[int, Field(description="how many passages are wanted")] = limits.topk,
    ) -> dict[str, list[dict[str, Any]]]:
        """Search the text collection; returns the passages that fit the query best."""
        try:
            (found,) = await search(Asked((query,), k))
        except BadRequest as error:
            raise ToolError(str(error)) from error
        rows = [
            {"docid": one.id, "title": one.title, "text": one.text, "score": one.score}
            for one in found
        ]
        return {"results": rows}

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
    return made.routes[0], server.session_manager.run()
