"""Contracts of retrievers: what searches a corpus, and what some of them can do besides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from searchrl.core.episode import Passage


@runtime_checkable
class Retriever(Protocol):
    """Searches a fixed corpus."""

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return at most k passages per query, best first. Batched; `[]` gives `[]`.

        A query without any indexed term gives no passage. Raises on failure; never returns an
        empty list in place of an error.
        """


@runtime_checkable
class RankingRetriever(Retriever, Protocol):
    """A retriever that can tell the rank of a passage, shown or not; optional."""

    def ranks(
        self, queries: Sequence[str], ids: Sequence[str]
    ) -> Sequence[Mapping[str, int | None]]:
        """Return, per query, the rank of each of these passages: from 1; None if not found.

        The passages that `search` returns have the ranks 1 to k.
        """


@runtime_checkable
class StoredRetriever(Retriever, Protocol):
    """A retriever with its own passages, such as an index folder or a server; optional.

    An environment without a corpus searches these; its factory then gets no passages.
    """

    def stored(self, ids: Sequence[str]) -> Sequence[Passage | None] | None:
        """Return the passages of these ids, None for each that it lacks; None: it cannot tell.

        Raises:
            ConfigError: it has no passages at all.
        """


RetrieverFactory = Callable[..., Retriever]
"""`factory(passages, **config) -> Retriever`; called once per corpus, a tuple."""


@dataclass(frozen=True, slots=True)
class NamedFactory:
    """The factory of a registered retriever: its name, its settings as they were written.

    `is_concurrent`: it, and all that it is made of, may be called by several threads at once.
    """

    factory: RetrieverFactory
    name: str
    settings: Mapping[str, Any]
    is_concurrent: bool

    def __call__(self, passages: Sequence[Passage]) -> Retriever:
        """Make the retriever of a corpus."""
        return self.factory(passages)
