"""`searchrl serve-retriever`: any registered retriever as a server, for Search-R1 clients and MCP.

Owns the flags and what is printed. What is served is `http.app`, how it runs and ends is
`http.serving`. Registered as the command `serve-retriever`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from searchrl import ConfigError
from searchrl.api_client import read_key
from searchrl.contracts import Passage
from searchrl_retrieval.commands.choice import DEFAULT, PLUGIN, SET, open_choice, showing_progress
from searchrl_retrieval.commands.corpora import Corpus, corpus_flags
from searchrl_retrieval.extras import need
from searchrl_retrieval.http.wire import Limits

_MIB = 1 << 20
_DEFAULTS = Limits()
_ABOVE_ZERO = click.IntRange(min=1)


@click.command("serve-retriever")
@click.option("--index", metavar="DIR", help="An index folder; says which retriever it is of.")
@corpus_flags
@click.option("--retriever", metavar="NAME", help="Which one; that of the index, or bm25s.")
@SET
@PLUGIN
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=8000, show_default=True, help="0: a free one."
)
@click.option(
    "--topk", type=_ABOVE_ZERO, default=_DEFAULTS.topk, show_default=True,
    help="Passages for a request that does not say how many.",
)  # fmt: skip
@click.option(
    "--max-k", type=_ABOVE_ZERO, default=_DEFAULTS.max_k, show_default=True,
    help="Passages that a request may want.",
)  # fmt: skip
@click.option(
    "--max-batch", type=_ABOVE_ZERO, default=_DEFAULTS.queries, show_default=True,
    help="Queries of one request.",
)  # fmt: skip
@click.option(
    "--max-query-chars", type=_ABOVE_ZERO, default=_DEFAULTS.query_chars, show_default=True,
    help="Characters of one query.",
)  # fmt: skip
@click.option(
    "--max-body-mib", type=_ABOVE_ZERO, default=_DEFAULTS.body_bytes // _MIB, show_default=True,
    help="MiB of one request.",
)  # fmt: skip
@click.option(
    "--timeout-s", type=click.FloatRange(min=0, min_open=True), default=_DEFAULTS.search_s,
    show_default=True, help="Seconds until a search that has not ended counts as failed.",
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
    key_env: str | None,
    mcp: bool | None,
    corpora: tuple[str, ...],
    code: tuple[str, ...],
    max_chars: int | None,
    **numbers: Any,
) -> None:
    """Serve a retriever over HTTP, as Search-R1's server does.

    POST /retrieve answers {"queries": [...], "topk": 3, "return_scores": true}, and
    {"query": "..."} in the form of BrowseComp-Plus. GET /health says whether it works. /mcp is the
    tool `search` for programs that speak MCP. Only this machine is answered unless --host says
    otherwise. SIGTERM and Ctrl-C end it when the requests under way are answered.

    \b
    Examples:
      searchrl serve-retriever --corpus handbook/
      searchrl serve-retriever --index indexes/wiki --port 8001
    """
    need("serve-retriever", "server", "fastapi", "uvicorn")
    if mcp:
        need("serve-retriever --mcp", "mcp", "mcp")
    has_mcp = find_spec("mcp") is not None if mcp is None else mcp
    from searchrl_retrieval.http import serving
    from searchrl_retrieval.http.app import Serving, make_app

    key = read_key(key_env) if key_env else None
    if key_env and key is None:
        raise ConfigError(f"--key-env {key_env}: this environment variable is not set")
    limits = _read_limits(**numbers)
    corpus = Corpus(corpora, code, max_chars)
    num_passages: list[int] = []

    def read_corpus() -> Sequence[Passage]:
        passages = corpus.read()
        num_passages.append(len(passages))
        return passages

    bound = serving.bind(host, port)  # a port that is taken is said before an index is built
    try:
        if warning := serving.warn_of(host, has_key=key is not None):
            click.echo(f"warning: {warning}", err=True)
        with showing_progress():
            made = open_choice(
                retriever, sets, plugins, index, read_corpus if corpus.is_named else None
            )
        name = retriever or (f"index {Path(index).name}" if index is not None else DEFAULT)
        what = Serving(name, made, sum(num_passages) or None, limits, key, serving.is_local(host))
        address = serving.show_address(bound)
        serving.serve(
            make_app(what, has_mcp=has_mcp), bound, on_start=_teller(what, address, has_mcp)
        )
    finally:
        bound.close()


def _read_limits(
    topk: int, max_k: int, max_batch: int, max_query_chars: int, max_body_mib: int, timeout_s: float
) -> Limits:
    if topk > max_k:
        raise ConfigError(f"--topk {topk} is more than --max-k {max_k}; lower it, or raise that")
    return Limits(
        topk,
        max_k,
        max_batch,
        max_query_chars,
        passages=max(_DEFAULTS.passages, max_batch * topk, max_k),
        body_bytes=max_body_mib * _MIB,
        pending_bytes=max(_DEFAULTS.pending_bytes, 2 * max_body_mib * _MIB),
        search_s=timeout_s,
    )


def _teller(what: Any, address: str, has_mcp: bool) -> Callable[[], None]:
    size = "" if what.num_passages is None else f" over {what.num_passages:,} passages"
    mcp = (
        f"MCP: {address}/mcp"
        if has_mcp
        else "no MCP (pip install 'searchrl-retrieval[mcp]', or --mcp)"
    )

    def tell() -> None:
        click.echo(f"serving {what.name}{size} at {address}/retrieve")
        click.echo(f"health: {address}/health; {mcp}; Ctrl-C ends it", err=True)

    return tell
