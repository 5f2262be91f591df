"""The retriever `recorded`: asks another one once, and answers from a file ever after.

Owns what the file keeps, and the counts of a run with their limit. Each row says what was asked
(engine, settings, corpus, query, k), when, and what was found. Other settings have other rows.
"""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from pydantic import Field

from searchrl.cache import JsonCache
from searchrl.contracts import StoredRetriever
from searchrl.contracts.retrieving import NamedFactory
from searchrl.contracts.settings import FilePath
from searchrl.core.episode import Passage
from searchrl.errors import BudgetSpent, ConfigError, RetrieverFailure

Counts = Mapping[str, Mapping[str, float]]
"""By file: `calls`, searches that were `saved` or `missed`, and the `cost` of the calls."""

_NUM_LOCKS = 64
_HOW = {"batch_size", "concurrency", "key_env", "max_retries", "timeout_s"}
"""Settings that change how an engine is asked, and not what it finds."""


class _Recording:
    """A file that the retrievers of a run share, and the counts of the run so far."""

    def __init__(self, path: Path) -> None:
        self.cache = JsonCache(path, advice="name another one: --set retriever.file=FILE")
        weakref.finalize(self, self.cache.close)
        self.locks = [threading.Lock() for _ in range(_NUM_LOCKS)]
        self.counts: dict[str, float] = dict.fromkeys(("calls", "saved", "missed", "cost"), 0)
        self._lock = threading.Lock()

    def count(self, name: str, number: float, limit: int | None = None) -> None:
        """Add to a count; BudgetSpent, and nothing is added, if it would be more than `limit`."""
        with self._lock:
            if limit is not None and self.counts[name] + number > limit:
                raise BudgetSpent(
                    f"the budget of the retriever, max_calls = {limit}, is used up: {number} more "
                    f"after {self.counts[name]}; raise it with --set retriever.max_calls=…"
                )
            self.counts[name] += number


_recordings: dict[Path, _Recording] = {}


def begin_counting() -> None:
    """Count the searches of a run or an evaluation from 0."""
    _recordings.clear()


def count_searches(earlier: Counts) -> Counts:
    """The counts of this run by file; `earlier` are those of processes that it goes on from."""
    counts = {file: dict(figures) for file, figures in earlier.items()}
    for path, recording in _recordings.items():
        before = counts.setdefault(str(path), {})
        for name, number in recording.counts.items():
            before[name] = round(before.get(name, 0) + number, 6)
    return counts


def describe_searches(counts: Counts) -> Iterator[str]:
    """One sentence for each file."""
    for file, figures in counts.items():
        told = ", ".join(f"{number:,} {name}" for name, number in figures.items())
        yield f"searches recorded in '{file}': {told}"


class RecordedRetriever:
    """Another retriever, each of whose answers is kept. Threads that ask the same ask once.

    Args:
        passages: the corpus, for `inner`.
        inner: the retriever that is asked.
        file: SQLite file of the answers; several processes may share it.
        replay: ask nobody. A search that the file does not hold is a failure.
        price: cost of a thousand calls, in any currency. Each query that is asked is a call.
        max_calls: most calls of a process, by all its retrievers with this file.

    Raises:
        ConfigError: there is nothing to replay.
    """

    def __init__(
        self,
        passages: Sequence[Passage],
        *,
        inner: NamedFactory,
        file: FilePath,
        replay: bool = False,
        price: Annotated[float, Field(ge=0)] = 0.0,
        max_calls: Annotated[int, Field(ge=0)] | None = None,
    ) -> None:
        self._path = path = Path(file).expanduser().absolute()
        if replay and not path.is_file():
            raise ConfigError(
                f"retriever recorded: '{path}' is not there; record it with retriever.replay=false"
            )
        self._price, self._max_calls = price, max_calls
        self._inner = None if replay else inner(passages)
        self._recording = _recordings.get(path) or _recordings.setdefault(path, _Recording(path))
        corpus = hashlib.sha256()
        for one in passages:
            corpus.update(repr((one.id, one.title, one.text)).encode())
        self._engine = {
            "engine": inner.name,
            "settings": {name: one for name, one in inner.settings.items() if name not in _HOW},
            "corpus": corpus.hexdigest() if passages else None,
        }
        if isinstance(self._inner, StoredRetriever):
            self.stored = self._inner.stored
        elif replay and not passages:
            self.stored = lambda ids: None  # the file cannot tell

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return what was found for each query when it was first asked.

        Raises:
            BudgetSpent: the queries that the file lacks would be more than `max_calls`.
            RetrieverFailure: in replay, if the file lacks a query.
        """
        asked = {query: self._engine | {"query": query, "k": k} for query in queries}
        keys = {query: JsonCache.key("search", one) for query, one in asked.items()}
        cache = self._recording.cache
        with ExitStack() as stack:
            # In one order, so that no two threads wait for each other.
            for number in sorted({int(key[:8], 16) % _NUM_LOCKS for key in keys.values()}):
                stack.enter_context(self._recording.locks[number])
            rows = {query: cache.get(key) for query, key in keys.items()}
            new = [query for query, row in rows.items() if row is None]
            for query, passages in zip(new, self._ask(new, k), strict=True):
                found = [asdict(one) | {"score": float(one.score)} for one in passages]
                date = datetime.now(UTC).isoformat(timespec="seconds")
                row = {"asked": asked[query], "date": date, "found": found}
                # Another process may have kept an answer meanwhile: that one holds for both.
                rows[query] = cache.add(keys[query], row)
            self._recording.count("saved", len(rows) - len(new))
        return [[Passage(**one) for one in rows[query]["found"]] for query in queries]

    def _ask(self, queries: Sequence[str], k: int) -> Sequence[Sequence[Passage]]:
        if not queries:
            return []
        if self._inner is None:
            self._recording.count("missed", len(queries))
            raise RetrieverFailure(
                f"retriever recorded: '{self._path}' has no answer to {queries[0]!r} (k = {k}, "
                f"{self._engine}), and replay asks nobody; record it with retriever.replay=false"
            )
        self._recording.count("calls", len(queries), self._max_calls)
        self._recording.count("cost", len(queries) * self._price / 1000)
        return self._inner.search(queries, k)
