"""The flags of commands that search, and the retriever, corpus and output that they ask for.

Retrievers of all plugins are found by name. `--json` keeps standard output to itself.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from searchrl import (
    ConfigError,
    Registry,
    load_plugins,
    make_retriever_factory,
    parse_sets,
    suggest,
    suggest_path,
)
from searchrl.contracts import Passage, Retriever, StoredRetriever
from searchrl.data import Problems, iter_corpus
from searchrl.retrieval import listening
from searchrl_retrieval.chunking.code import read_code_folder
from searchrl_retrieval.chunking.prose import chunk_passages
from searchrl_retrieval.index.folder import open_index

DEFAULT = "bm25s"
"""The retriever where none is named and no index says which."""

F = TypeVar("F", bound=Callable[..., Any])

SET = click.option(
    "--set", "sets", multiple=True, metavar="K=V",
    help="A setting of the retriever, such as retriever.title_weight=3; may be repeated.",
)  # fmt: skip
PLUGIN = click.option(
    "--plugin", "plugins", multiple=True, metavar="FILE",
    help="A plugin file or module; may be repeated.",
)  # fmt: skip
JSON = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object on stdout and nothing else."
)

_CORPUS = click.option(
    "--corpus", "corpora", multiple=True, metavar="PATH",
    help="A corpus file or a folder of texts; may be repeated.",
)  # fmt: skip
_CODE = click.option(
    "--code", "code", multiple=True, metavar="PATH",
    help="Source code, in chunks: functions, classes, methods, imports, docstrings.",
)  # fmt: skip
_MAX_CHARS = click.option(
    "--max-chars", type=int, metavar="N", help="Cut longer passages of --corpus between sentences."
)


def corpus_flags(command: F) -> F:
    """Add `--corpus`, `--code` and `--max-chars`: the fields of `Corpus`."""
    return _CORPUS(_CODE(_MAX_CHARS(command)))


def search_flags(command: F) -> F:
    """Add `--index`, those of `corpus_flags`, `--retriever`, `--set` and `--plugin`."""
    which = click.option(
        "--retriever", metavar="NAME", help="Which one; that of the index, or bm25s."
    )
    index = click.option("--index", metavar="DIR", help="An index folder; says its retriever.")
    return reduce(lambda made, flag: flag(made), (PLUGIN, SET, which, corpus_flags, index), command)


class Corpus(NamedTuple):
    """The flags of `corpus_flags`."""

    corpora: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    max_chars: int | None = None

    @property
    def is_named(self) -> bool:
        """True if there is any."""
        return bool(self.corpora or self.code)

    def flags(self) -> tuple[str, ...]:
        """The flags again, with absolute paths."""
        named = [("--corpus", path) for path in self.corpora] + [("--code", p) for p in self.code]
        words = [
            word for flag, path in named for word in (flag, str(Path(path).expanduser().absolute()))
        ]
        return (*words, *(() if self.max_chars is None else ("--max-chars", str(self.max_chars))))

    def read(self) -> Sequence[Passage]:
        """The passages of `stream`, with their places checked."""
        return tuple(self.stream({}))

    def stream(self, places: dict[str, str] | None = None) -> Iterator[Passage]:
        """Yield the passages of corpus files, folders of texts and source code, in this order.

        What cannot be used is a `DataError` behind the last one, so a corpus may be larger than the
        memory. `places`: as for `iter_corpus`.
        """
        if not self.is_named:
            raise ConfigError("there is no corpus: give --corpus PATH, or --code PATH")
        problems = Problems()
        texts = chain.from_iterable(
            iter_corpus(Path(p).expanduser(), problems, places) for p in self.corpora
        )
        yield from texts if self.max_chars is None else chunk_passages(texts, self.max_chars)
        for path in (Path(one).expanduser() for one in self.code):
            if path.exists():
                yield from read_code_folder(path, problems)
            else:
                text = f"no such file or folder of source code.{suggest_path(path)}"
                problems.add(path, 0, text)
        problems.ensure_none()
        for note in problems.notes:
            click.echo(f"note: {note}", err=True)


@dataclass(frozen=True, slots=True)
class Choice:
    """A retriever by name, with settings that are checked."""

    registry: Registry
    name: str
    settings: Mapping[str, Any]

    def make(self, passages: Sequence[Passage]) -> Retriever:
        """Make it."""
        return make_retriever_factory(self.registry, self.name, self.settings)(passages)


def read_choice(name: str, sets: Sequence[str], plugins: Sequence[str] = ()) -> Choice:
    """The retriever of `--retriever`, `--set` and `--plugin`."""
    registry = load_registry(plugins)
    given = parse_sets(sets)
    settings = given.pop("retriever", {})
    if given or not isinstance(settings, Mapping):
        raise ConfigError(
            f"cannot use --set {' '.join(sets)} here: expected --set retriever.KEY=VALUE."
            + suggest(next(iter(given), ""), ["retriever"])
        )
    registry.get("retriever", name).load()
    return Choice(registry, name, settings)


def open_choice(
    name: str | None,
    sets: Sequence[str],
    plugins: Sequence[str],
    index: str | None,
    corpus: Corpus,
) -> tuple[Retriever, int | None, bool]:
    """The retriever of a command: of an index folder, of a corpus, of both, or of a server.

    An index says which retriever and which settings it is of; `sets` may add those of a search.
    Returns the number of passages, too (None for those of a server), and True if many calls at
    once are safe and gain time, because others do the work.
    """
    made = None if index is None else open_index(Path(index).expanduser()).manifest
    choice = read_choice(name or (made.kind if made else DEFAULT), sets, plugins)
    passages = corpus.read() if corpus.is_named else ()
    if made is not None:
        kept = made.settings if choice.name == made.kind else {}
        settings = {**kept, **choice.settings, "index": index}
        return replace(choice, settings=settings).make(passages), made.count, False
    if corpus.is_named:
        return choice.make(passages), len(passages), False
    if choice.settings:
        factory = make_retriever_factory(choice.registry, choice.name, choice.settings)
        made_alone = factory(())
        if isinstance(made_alone, StoredRetriever):
            made_alone.stored([])  # says so if it has no passages of its own
            return made_alone, None, factory.is_concurrent
    raise ConfigError("nothing to search: give --index DIR or --corpus PATH")


def load_registry(plugins: Sequence[str] = ()) -> Registry:
    """Load the installed plugins, those named before the command and `plugins`.

    An installed one that cannot be loaded is named on standard error.
    """
    before = click.get_current_context().find_root().params.get("plugin") or ()
    registry = load_plugins([*before, *plugins], must_load=True)
    for failure in registry.failures:
        click.echo(f"not loaded: {failure}", err=True)
    return registry


@contextmanager
def working(*, is_json: bool = False) -> Iterator[Callable[[Any], None]]:
    """Yield a printer of JSON, and show long work on one line of a terminal, on stderr.

    With `is_json`, everything else that is printed meanwhile goes to stderr.
    """
    stream, is_shown = sys.stdout, sys.stderr.isatty()

    def print_json(value: Any) -> None:
        click.echo(json.dumps(value, ensure_ascii=False), file=stream)

    output = redirect_stdout(sys.stderr if is_json else stream)
    with output, listening(_show if is_shown else None):
        try:
            yield print_json
        finally:  # what went wrong is said on a line of its own
            if is_shown:
                click.echo("\r\033[K", nl=False, err=True)


def _show(doing: str, done: int, total: int) -> None:
    of = f" of {total:,} ({done / total:.0%})" if total else ""
    click.echo(f"\r\033[K{doing}: {done:,}{of}", nl=False, err=True)
