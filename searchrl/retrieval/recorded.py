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
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field

from searchrl.api_client import JsonCache
from searchrl.contracts import StoredRetriever, Traffic
from searchrl.contracts.retrieving import NamedFactory, RankingRetriever
from searchrl.contracts.settings import FilePath
from searchrl.core.episode import Passage
from searchrl.errors import BudgetSpent, ConfigError, RetrieverFailure

_NUM_LOCKS = 64
_HOW = {"batch_size", "concurrency", "key_env", "max_retries", "timeout_s"}
"""Settings that change how an engine is asked, and not what it finds."""


class _Recording:
    """A file that the retrievers of a run share, and the searches of the run so far."""

    def __init__(self, path: Path) -> None:
        self.cache = JsonCache(path, advice="name another one: --set retriever.file=FILE")
        weakref.finalize(self, self.cache.close)
        self.locks = [threading.Lock() for _ in range(_NUM_LOCKS)]
        self.traffic = Traffic()
        self._lock = threading.Lock()

    def count(
        self, calls: int = 0, price: float = 0.0, limit: int | None = None, **more: int
    ) -> None:
        """Count searches; BudgetSpent, and nothing is counted, if these calls are too many."""
        with self._lock:
            old = self.traffic
            if limit is not None and old.calls + calls > limit:
                raise BudgetSpent(
                    f"the budget of the retriever, max_calls = {limit}, is used up: {old.calls} "
                    "spent; raise it with --set retriever.max_calls=…"
                )
            sums = {name: getattr(old, name) + number for name, number in more.items()}
            cost = (old.cost or 0.0) + calls * price / 1000
            self.traffic = replace(old, calls=old.calls + calls, cost=cost, **sums)


_recordings: dict[Path, _Recording] = {}

Counts = Mapping[str, Mapping[str, float]]
"""Counts by file: `calls`, searches that were `saved` or `missed`, and the `cost`."""


def begin_counting() -> None:
    """Count the searches of a new run from 0."""
    _recordings.clear()


def count_searches(earlier: Counts = MappingProxyType({})) -> Counts:
    """The searches of this run by file; `earlier` are those of processes that it went on from."""
    counts = {file: dict(figures) for file, figures in earlier.items()}
    for path, recording in _recordings.items():
        one, sums = recording.traffic, counts.setdefault(str(path), {})
        new = {
            "calls": one.calls,
            "saved": one.cached,
            "missed": one.failed,
            "cost": one.cost or 0.0,
        }
        sums |= {name: round(sums.get(name, 0) + number, 6) for name, number in new.items()}
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
        max_calls: most calls of a run, counted for all that share the file.

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
        path = Path(file).expanduser().absolute()
        if replay and not path.is_file():
            raise ConfigError(
                f"retriever recorded: '{path}' is not there; record it with retriever.replay=false"
            )
        self._path, self._price, self._max_calls = path, price, max_calls
        self._inner = None if replay else inner(passages)
        self._recording = _recordings.get(path) or _recordings.setdefault(path, _Recording(path))
        self._engine = {
            "engine": inner.name,
            "settings": {name: one for name, one in inner.settings.items() if name not in _HOW},
            "corpus": _fingerprint(passages),
        }
        if isinstance(self._inner, StoredRetriever):
            self.stored = self._inner.stored
        elif replay and not passages:
            self.stored = lambda ids: None  # the file cannot tell
        if replay or isinstance(self._inner, RankingRetriever):
            self.ranks = self._ranks

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return what was found for each query when it was first asked.

        Raises:
            BudgetSpent: the queries that the file lacks would be more than `max_calls`.
            RetrieverFailure: in replay, if the file lacks a query.
        """
        asked = {query: self._engine | {"query": query, "k": k} for query in queries}
        keys = {query: JsonCache.key("search", one) for query, one in asked.items()}
        recording = self._recording
        with ExitStack() as stack:
            # In one order, so that no two threads wait for each other.
            for number in sorted({int(key[:8], 16) % _NUM_LOCKS for key in keys.values()}):
                stack.enter_context(recording.locks[number])
            rows = {query: recording.cache.get(key) for query, key in keys.items()}
            new = [query for query, row in rows.items() if row is None]
            recording.count(cached=len(rows) - len(new))
            for query, passages in zip(new, self._ask(new, k), strict=True):
                found = [asdict(p) | {"score": float(p.score)} for p in passages]
                rows[query] = self._keep(keys[query], asked[query], found)
        return [[Passage(**one) for one in rows[query]["found"]] for query in queries]

    def _ask(self, queries: Sequence[str], k: int) -> Sequence[Sequence[Passage]]:
        if not queries:
            return []
        if self._inner is None:
            self._recording.count(failed=len(queries))
            raise RetrieverFailure(
                f"retriever recorded: '{self._path}' has no answer to {queries[0]!r} (k = {k}, "
                f"{self._engine}), and replay asks nobody; record it with retriever.replay=false"
            )
        self._recording.count(len(queries), self._price, self._max_calls)
        return self._inner.search(queries, k)

    def _keep(self, key: str, asked: Mapping[str, Any], found: Any) -> Any:
        """Keep a new row, unless another process was first; returns the row that is kept."""
        cache, now = self._recording.cache, datetime.now(UTC).isoformat(timespec="seconds")
        if (row := cache.get(key)) is None:
            row = {"asked": asked, "date": now, "found": found}
            cache.put(key, row)
        return row

    def _ranks(
        self, queries: Sequence[str], ids: Sequence[str]
    ) -> Sequence[Mapping[str, int | None]]:
        """See `RankingRetriever.ranks`; nothing in replay of one that does not tell."""
        rows = []
        for query in queries:
            asked = self._engine | {"query": query, "ids": list(ids)}
            key = JsonCache.key("ranks", asked)
            if (row := self._recording.cache.get(key)) is None:
                if not isinstance(self._inner, RankingRetriever):
                    return []
                row = self._keep(key, asked, dict(self._inner.ranks([query], ids)[0]))
            rows.append(row["found"])
        return rows


def _fingerprint(passages: Sequence[Passage]) -> str:
    """SHA-256 of a corpus; "" if there is none."""
    digest = hashlib.sha256()
    for one in passages:
        digest.update(repr((one.id, one.title, one.text)).encode())
    return digest.hexdigest() if passages else ""
