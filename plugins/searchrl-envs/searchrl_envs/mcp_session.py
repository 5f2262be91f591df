"""Sessions with MCP servers, all in one background thread. Needs the library: imported late."""

import atexit
import json
import logging
import shlex
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from functools import cache, partial
from tempfile import TemporaryDirectory, TemporaryFile
from threading import Lock
from typing import Any

from anyio.from_thread import BlockingPortal, BlockingPortalProvider
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.types import CONNECTION_CLOSED, REQUEST_TIMEOUT

from searchrl import ConfigError, EnvironmentFailure

_LOOP = BlockingPortalProvider()
"""The thread of all sessions; it runs while there are some."""


class Session:
    """A session with a server, by its address or the command that starts it; begins when asked."""

    def __init__(self, server: str, timeout_s: float) -> None:
        self.server, self.timeout_s = server, timeout_s
        self._lock, self._stack = Lock(), ExitStack()
        self._client: Client | None = None

    def list_tools(self) -> dict[str, dict[str, Any]]:
        """The tools by name, as the protocol `tool-call` lists them; ConfigError: no session."""
        client, loop = self._open()
        try:
            pages = [loop.call(client.list_tools)]
            while cursor := pages[-1].next_cursor:
                pages.append(loop.call(partial(client.list_tools, cursor=cursor)))
        except (MCPError, ValueError) as error:
            raise ConfigError(f"env mcp:{self.server}: it lists no tools: {error}") from error
        keys = ("name", "description", "parameters")
        tools = [one for page in pages for one in page.tools]
        rows = [(one.name, one.description or "", one.input_schema) for one in tools]
        return {row[0]: dict(zip(keys, row, strict=True)) for row in rows}

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """The result of a tool as text, or `error: …`. EnvironmentFailure: the server is gone.

        Without a result in time the session ends, for the server may hang; the next call begins
        another one.
        """
        client, loop = self._open()
        try:
            result = loop.call(client.call_tool, name, dict(arguments), self.timeout_s)
        except MCPError as error:
            if error.code not in (REQUEST_TIMEOUT, CONNECTION_CLOSED):
                return f"error: {error}"
            if client is self._client:  # else another thread has ended it
                self.close()
            if error.code == REQUEST_TIMEOUT:
                return f"error: no result within {self.timeout_s:g} s; the session begins anew"
            text = f"env mcp:{self.server}: the server ended in a call of {name}: {error}"
            raise EnvironmentFailure(text) from error
        parts = [one.text if one.type == "text" else f"[{one.type}]" for one in result.content]
        if not parts and result.structured_content is not None:
            parts = [json.dumps(result.structured_content, ensure_ascii=False)]
        text = "\n".join(parts) or "[empty]"
        return f"error: {text}" if result.is_error else text

    def close(self) -> None:
        """End the session, and the server if it was started for it."""
        self._client = None
        atexit.unregister(self.close)
        with suppress(Exception):  # the end of a server that failed may fail, too
            self._stack.pop_all().close()

    def _open(self) -> tuple[Client, BlockingPortal]:
        with self._lock, _LOOP as loop:
            self._client = self._client or self._begin(loop)
            return self._client, loop

    def _begin(self, loop: BlockingPortal) -> Client:
        for logger in ("client", "mcp"):  # of the library, which would write on the terminal
            logging.getLogger(logger).setLevel(logging.CRITICAL)
        atexit.register(self.close)
        log = self._stack.enter_context(TemporaryFile("w+", errors="replace"))  # noqa: SIM115
        try:
            transport: Any = self.server
            if not transport.startswith(("http://", "https://")):
                folder = self._stack.enter_context(TemporaryDirectory(prefix="searchrl-mcp-"))
                command, *args = shlex.split(self.server.replace("{scratch}", folder)) or [""]
                started = StdioServerParameters(command=command, args=args)
                transport = stdio_client(started, errlog=log)
            client = Client(transport, read_timeout_seconds=self.timeout_s)
            self._stack.enter_context(_LOOP)
            return self._stack.enter_context(loop.wrap_async_context_manager(client))
        except Exception as error:  # of the system, the library or the server
            while isinstance(error, ExceptionGroup):
                error = error.exceptions[0]
            log.seek(0)
            written = " ".join(log.read().split("\n")[-4:]).strip()
            self.close()
            told = f"{type(error).__name__}: {error}" + f"; it wrote: {written}" * bool(written)
            raise ConfigError(f"env mcp:{self.server}: no session can begin: {told}") from error


open_shared = cache(Session)
"""The session that all environments of this process share."""
