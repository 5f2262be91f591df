"""`searchrl retrieve`: the results of a retriever, without any agent."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

import click

from searchrl import ConfigError
from searchrl_retrieval.commands.choice import (
    JSON,
    Corpus,
    open_choice,
    search_flags,
    working,
)

_TEXT = 300
"""Characters of a passage that are shown."""


@click.command()
@click.argument("queries", nargs=-1, metavar="QUERY…")
@search_flags
@click.option("-k", "k", default=5, show_default=True, help="Passages per query.")
@JSON
def retrieve(
    queries: tuple[str, ...],
    index: str | None,
    retriever: str | None,
    k: int,
    sets: tuple[str, ...],
    plugins: tuple[str, ...],
    as_json: bool,
    **named: Any,
) -> None:
    """Search a corpus or an index, and print what is found.

    Without QUERY, queries are read from standard input, one per line.

    \b
    Examples:
      searchrl retrieve "who founded the library?" --corpus handbook/
      searchrl retrieve "who founded the library?" --index indexes/mine -k 10 --json
    """
    if k < 1:
        raise ConfigError(f"-k must be at least 1, got {k}.")
    corpus = Corpus(**named)
    wanted = list(queries) or [line.strip() for line in sys.stdin if line.strip()]
    with working(is_json=as_json) as print_json:
        made, *_ = open_choice(retriever, sets, plugins, index, corpus)
        results = made.search(wanted, k)
        if as_json:
            rows = [[asdict(passage) for passage in passages] for passages in results]
            pairs = zip(wanted, rows, strict=True)
            print_json({"results": [{"query": query, "passages": row} for query, row in pairs]})
            return
    for query, passages in zip(wanted, results, strict=True):
        if len(wanted) > 1:
            click.echo(f"\n{query}")
        if not passages:
            click.echo("nothing found: no passage matches the query")
        for rank, passage in enumerate(passages, 1):
            text = " ".join(passage.text.split())
            shown = text if len(text) <= _TEXT else f"{text[: _TEXT - 1]}…"
            head = f"{passage.title} " if passage.title else ""
            click.echo(f"{rank}. {head}[{passage.id}] {passage.score:.3f}\n   {shown}")
