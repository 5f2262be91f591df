"""What commands that search have in common: the retriever that is meant, its corpus, its passages.

Owns the flags `--retriever`, `--set`, `--plugin`, `--corpus`, `--code` and `--index`, and the way
from them to passages and to a retriever. Retrievers of all plugins are found by name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from searchrl import (
    ConfigError,
    Registry,
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
from searchrl_retrieval.commands.surroundings import load_registry
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
    """`--corpus`, `--code` and `--max-chars`: the fields of `Corpus`."""
    return _CORPUS(_CODE(_MAX_CHARS(command)))


def search_flags(command: F) -> F:
    """What is searched, and with what: `open_choice`, and the fields of `Corpus`."""
    for flag in (
        PLUGIN,
        SET,
        click.option("--retriever", metavar="NAME", help="Which one; that of the index, or bm25s."),
        corpus_flags,
        click.option("--index", metavar="DIR", help="An index folder; says its retriever."),
    ):
        command = flag(command)
    return command


class Corpus(NamedTuple):
    """What the flags of `corpus_flags` say."""

    corpora: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    max_chars: int | None = None

    @property
    def is_named(self) -> bool:
        """Whether there is any."""
        return bool(self.corpora or self.code)

    def flags(self) -> tuple[str, ...]:
        """The flags again, with absolute paths."""
        named = [("--corpus", path) for path in self.corpora] + [("--code", p) for p in self.code]
        words = [
            word for flag, path in named for word in (flag, str(Path(path).expanduser().absolute()))
        ]
        return (*words, *(() if self.max_chars is None else ("--max-chars", str(self.max_chars))))

    def read(self) -> Sequence[Passage]:
        """The passages of corpus files, folders of texts and source code, in this order.

        Raises:
            ConfigError: there is neither, or `max_chars` is too small.
            DataError: something cannot be used; names all of it.
        """
        return tuple(self.stream({}))

    def stream(self, places: dict[str, str] | None = None) -> Iterator[Passage]:
        """The same passages, one after another; what cannot be used is said behind the last one.

        So a corpus may be larger than the memory. `places`: as for `iter_corpus`.
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
        """Make it. Raises what its factory raises."""
        return make_retriever_factory(self.registry, self.name, self.settings)(passages)


def read_choice(name: str, sets: Sequence[str], plugins: Sequence[str] = ()) -> Choice:
    """The retriever of `--retriever`, `--set` and `--plugin`.

    `--plugin` may stand before the command, too.

    Raises:
        ConfigError: a setting is no `retriever.KEY=VALUE`.
        UnknownNameError: there is no such retriever.
    """
    registry = load_registry(plugins)
    said = parse_sets(sets)
    settings = said.pop("retriever", {})
    if said or not isinstance(settings, Mapping):
        raise ConfigError(
            f"cannot use --set {' '.join(sets)} here: expected --set retriever.KEY=VALUE."
            + suggest(next(iter(said), ""), ["retriever"])
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
    The number is that of the passages, None for those of a server; the last says whether many
    calls at once are safe and gain time, because others do the work.

    Raises:
        ConfigError: there is neither an index nor a corpus.
        IndexFault: the index cannot be used.
    """
    made = None if index is None else open_index(Path(index).expanduser()).manifest
    choice = read_choice(name or (made.kind if made else DEFAULT), sets, plugins)
    passages = corpus.read() if corpus.is_named else ()
    if made is not None:
        own = made.settings if choice.name == made.kind else {}
        settings = {**own, **choice.settings, "index": index}
        return replace(choice, settings=settings).make(passages), made.count, False
    if corpus.is_named:
        return choice.make(passages), len(passages), False
    if choice.settings:
        made_alone = choice.make(())
        if isinstance(made_alone, StoredRetriever):
            made_alone.stored([])  # says so if it has no passages of its own
            return made_alone, None, choice.registry.get("retriever", choice.name).is_concurrent
    raise ConfigError("nothing to search: give --index DIR or --corpus PATH")


@contextmanager
def showing_progress() -> Iterator[None]:
    """A context in which long work is shown on one line of a terminal, on stderr."""
    if not sys.stderr.isatty():
        yield
        return
    try:
        with listening(_show):
            yield
    finally:  # what went wrong is said on a line of its own
        click.echo("\r\033[K", nl=False, err=True)


def _show(doing: str, done: int, total: int) -> None:
    of = f" of {total:,} ({done / total:.0%})" if total else ""
    click.echo(f"\r\033[K{doing}: {done:,}{of}", nl=False, err=True)
