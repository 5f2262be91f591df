"""What commands that search have in common: the retriever that is meant, its corpus, its passages.

Owns the flags `--retriever`, `--set`, `--plugin`, `--corpus` and `--index`, and the way from them
to a retriever. Retrievers of all plugins are found by name. Called by the commands of this package.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from searchrl import ConfigError, Registry, make_retriever_factory, parse_sets, suggest
from searchrl.contracts import Passage, Retriever, StoredRetriever
from searchrl.retrieval import listening
from searchrl_retrieval.commands.surroundings import load_registry
from searchrl_retrieval.index.folder import open_index

DEFAULT = "bm25s"
"""The retriever where none is named and no index says which."""

Command = TypeVar("Command", bound=Callable[..., Any])

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
    passages: Callable[[], Sequence[Passage]] | None,
) -> Retriever:
    """The retriever of a command: of an index folder, of a corpus, of both, or of a server.

    An index says which retriever and which settings it is of; `sets` may add those of a search.

    Raises:
        ConfigError: there is neither an index nor a corpus.
        IndexFault: the index cannot be used.
    """
    if index is None:
        choice = read_choice(name or DEFAULT, sets, plugins)
        if passages is not None:
            return choice.make(passages())
        if choice.settings:
            remote = choice.make(())
            if isinstance(remote, StoredRetriever) and remote.stored([]) is None:
                return remote  # its passages are elsewhere, such as those of `http`
        raise ConfigError("nothing to search: give --index DIR or --corpus PATH")
    folder = Path(os.path.expanduser(index))
    made = open_index(folder).manifest
    choice = read_choice(name or made.kind, sets, plugins)
    settings = {**choice.settings, "index": str(folder)}
    if choice.name == made.kind:
        settings = {**made.settings, **settings}
    found = Choice(choice.registry, choice.name, settings)
    return found.make(passages() if passages is not None else ())


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
