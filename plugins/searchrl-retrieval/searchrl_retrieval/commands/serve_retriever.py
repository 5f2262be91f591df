"""`searchrl serve-retriever`: any registered retriever as a server, for Search-R1 clients and MCP.

Owns the flags and what is printed. What is served is `http.app`.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from searchrl import ConfigError
from searchrl.api_client import HttpServer, read_key
from searchrl_retrieval.commands.choice import (
    DEFAULT,
    Corpus,
    open_choice,
    search_flags,
    working,
)
from searchrl_retrieval.extras import need
from searchrl_retrieval.http.wire import Limits

_DEFAULTS = Limits()


@click.command("serve-retriever")
@search_flags
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=8000, show_default=True, help="0: a free one."
)
@click.option(
    "--topk", type=click.IntRange(min=1), default=_DEFAULTS.topk, show_default=True,
    help="Passages for a request that does not say how many.",
)  # fmt: skip
@click.option(
    "--max-k", type=click.IntRange(min=1), default=_DEFAULTS.max_k, show_default=True,
    help="Passages that a request may want.",
)  # fmt: skip
@click.option(
    "--timeout-s", type=click.FloatRange(min=0.001), default=_DEFAULTS.search_s, show_default=True,
    help="Seconds until a search counts as failed.",
)  # fmt: skip
@click.option("--key-env", metavar="NAME", help="Ask clients for the key in this variable.")
@click.option("--mcp/--no-mcp", default=None, help="Speak MCP, too. Default: if it is installed.")
def serve_retriever(
    index: str | None,
    retriever: str | None,
    sets: tuple[str, ...],
    plugins: tuple[str, ...],
    host: str,
    port: int,
    topk: int,
    max_k: int,
    timeout_s: float,
    key_env: str | None,
    mcp: bool | None,
    **named: Any,
) -> None:
    """Serve a retriever over HTTP, as Search-R1's server does.

    POST /retrieve answers {"queries": [...], "topk": 3, "return_scores": true}. GET /health says
    what is served. /mcp is the tool `search` for programs that speak MCP. Only this machine is
    answered unless --host says otherwise. SIGTERM and Ctrl-C end it when the requests under way are
    answered.

    \b
    Examples:
      searchrl serve-retriever --corpus handbook/
      searchrl serve-retriever --index indexes/wiki --port 8001
    """
    need("serve-retriever", "server", "fastapi", "uvicorn")
    if mcp:
        need("serve-retriever --mcp", "mcp", "mcp")
    has_mcp = find_spec("mcp") is not None if mcp is None else mcp
    from searchrl_retrieval.http import app

    key = read_key(key_env) if key_env else None
    if key_env and key is None:
        raise ConfigError(f"--key-env {key_env}: this environment variable is not set")
    if topk > max_k:
        raise ConfigError(f"--topk {topk} is more than --max-k {max_k}; lower it, or raise that")
    limits = Limits(topk, max_k, search_s=timeout_s)
    http = HttpServer(host, port, key=key)  # a port that is taken is said before an index is built
    try:
        if not http.is_local:
            who = "whoever knows the key" if key else "anybody; --key-env NAME asks for a key"
            text = f"{host} can be reached from other machines, unencrypted, and searched by {who}"
            click.echo(f"warning: {text}", err=True)
        with working():
            made, count, is_front = open_choice(retriever, sets, plugins, index, Corpus(**named))
        name = retriever or (f"index {Path(index).name}" if index is not None else DEFAULT)
        what = app.Serving(name, made, count, limits, is_front)
        # From now on who asks waits for the answer: the socket listens.
        size = "" if count is None else f" over {count:,} passages"
        click.echo(f"serving {name}{size} at {http.address}/retrieve")
        with_mcp = f"MCP: {http.address}/mcp" if has_mcp else "no MCP (the extra mcp brings it)"
        click.echo(f"health: {http.address}/health; {with_mcp}; Ctrl-C ends it", err=True)
        http.make(app.make_app(what, has_mcp=has_mcp)).run([http.socket])
    finally:
        http.socket.close()
