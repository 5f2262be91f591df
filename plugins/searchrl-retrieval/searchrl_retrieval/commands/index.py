"""`searchrl index build|info|add`: indexes that are made ahead, looked at, and extended."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any

import click

from searchrl import ConfigError
from searchrl.retrieval import tracked
from searchrl_retrieval.commands.choice import (
    DEFAULT,
    JSON,
    PLUGIN,
    SET,
    Choice,
    Corpus,
    corpus_flags,
    read_choice,
    working,
)
from searchrl_retrieval.index.build import build_index
from searchrl_retrieval.index.folder import Index, IndexKind, open_index
from searchrl_retrieval.index.manifest import IndexFault
from searchrl_retrieval.index.places import IndexFactory, cache_folder


@click.group()
def index() -> None:
    """Build an index of a corpus, look at one, or add passages to it.

    An index is a folder. Name it where you search: --set retriever.index=DIR.
    """


@index.command()
@corpus_flags
@click.option("--out", required=True, metavar="DIR", help="The folder of the index.")
@click.option("--retriever", default=DEFAULT, show_default=True, metavar="NAME", help="Which one.")
@SET
@PLUGIN
@JSON
def build(
    out: str,
    retriever: str,
    sets: tuple[str, ...],
    plugins: tuple[str, ...],
    as_json: bool,
    **named: Any,
) -> None:
    """Build the index of a corpus in a folder, and replace the one that is there.

    An old index is there until the new one is whole. A build that was stopped goes on where it was
    when the same command is given again.

    \b
    Examples:
      searchrl index build --corpus corpus.jsonl --out indexes/mine
      searchrl index build --corpus corpus.jsonl --out indexes/mine --set retriever.title_weight=3
      searchrl index build --code src --out indexes/src --set retriever.language=none
    """
    kind = _make_kind(read_choice(retriever, sets, plugins))
    corpus = Corpus(**named)
    with working(is_json=as_json) as print_json:
        built = build_index(
            kind,
            tracked(corpus.stream(), "storing passages"),
            Path(out).expanduser(),
            sources=corpus.flags(),
        )
    _show(built, print_json if as_json else None)
    if not as_json:
        click.echo(f"Next:  searchrl retrieve QUERY --index {shlex.quote(out)}")


@index.command()
@click.argument("folder", metavar="DIR")
@corpus_flags
@JSON
def add(folder: str, as_json: bool, **named: Any) -> None:
    """Add the passages of a corpus to an index.

    Their ids must be new. Until it is done, the index answers as before.

    \b
    Example:
      searchrl index add indexes/mine --corpus more.jsonl
    """
    old = open_index(Path(folder).expanduser())
    kind = _make_kind(replace(read_choice(old.manifest.kind, ()), settings=old.manifest.settings))
    with working(is_json=as_json) as print_json:
        corpus = Corpus(**named)
        new = corpus.read()
        built = build_index(
            kind,
            tracked(chain(old.passages, new), "storing passages", len(old.passages) + len(new)),
            old.folder,
            sources=(*old.manifest.sources, *corpus.flags()),
            previous=old,
        )
    _show(built, print_json if as_json else None)


@index.command()
@click.argument("folder", required=False, metavar="[DIR]")
@click.option("--verify", is_flag=True, help="Read every byte and compare the checksums.")
@JSON
def info(folder: str | None, verify: bool, as_json: bool) -> None:
    """Say what an index is of, and whether it can be used.

    Without DIR: the indexes that were kept because a run needed them, and where they are.

    \b
    Examples:
      searchrl index info indexes/mine --verify
      searchrl index info
    """
    with working(is_json=as_json) as print_json:
        if folder is not None:
            _show(
                open_index(Path(folder).expanduser(), is_deep=verify),
                print_json if as_json else None,
            )
            return
        cache = cache_folder()
        rows: list[dict[str, Any]] = []
        for path in sorted(cache.iterdir()) if cache.is_dir() else []:
            try:
                one = open_index(path, is_deep=verify)
                rows.append({**_facts(one), "folder": path.name, "summary": _summary(one)})
            except IndexFault as error:
                rows.append({"folder": path.name, "summary": str(error), "fault": str(error)})
        if as_json:
            print_json({"folder": str(cache), "indexes": rows})
            return
    for row in rows:
        click.echo(f"{row['folder']}  {row['summary']}")
    click.echo(f"{len(rows)} kept in {cache}; delete what you do not need")


def _make_kind(choice: Choice) -> IndexKind:
    """The kind of an index to build; the ranges of settings are those of the retriever."""
    entry = choice.registry.get("retriever", choice.name)
    factory = entry.load()
    if not isinstance(factory, IndexFactory):
        raise ConfigError(f"retriever '{choice.name}' keeps no index, so none can be built")
    if "index" in choice.settings:
        raise ConfigError("retriever.index is where an index is searched; here it is --out")
    return factory.kind(**entry.ensure_settings(choice.settings))


def _show(one: Index, print_json: Callable[[Any], None] | None) -> None:
    if print_json is not None:
        print_json(_facts(one))
        return
    made = one.manifest
    click.echo(f"{one.folder}: {_summary(one)}")
    for key, value in made.settings.items():
        click.echo(f"  {key}: {json.dumps(value, ensure_ascii=False)}")
    click.echo(f"  corpus: {made.fingerprint[:16]} {' '.join(made.sources)}".rstrip())


def _summary(one: Index) -> str:
    made = one.manifest
    size = f"{made.num_bytes / (1 << 20):,.1f} MiB"
    return f"{made.kind}, {made.count:,} passages, {size}, {made.created}, {made.took_s:,.1f} s"


def _facts(one: Index) -> dict[str, Any]:
    """The manifest but for its files, and how many bytes they have."""
    facts = {key: value for key, value in asdict(one.manifest).items() if key != "files"}
    return {"folder": str(one.folder), **facts, "bytes": one.manifest.num_bytes}
