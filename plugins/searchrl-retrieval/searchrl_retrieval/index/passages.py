"""Passages on disk: a corpus of any size as one SQLite file.

Texts are kept as bytes, because a text may hold what UTF-8 cannot (half of a surrogate pair).
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from searchrl import ConfigError, DataError, show_value
from searchrl.contracts import Passage

_TABLE = "CREATE TABLE passages (place INTEGER PRIMARY KEY, id UNIQUE, title, text)"
_ROW = "SELECT id, title, text FROM passages"


class PassageStore:
    """The passages of a file that `write_passages` made, in their order. Scores are 0.

    Safe to use from several threads.
    """

    def __init__(self, path: Path) -> None:
        # Nobody writes to it any more: no locks, and the disk may be one that cannot be written.
        address = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        self._connection = sqlite3.connect(address, uri=True, check_same_thread=False)
        self._count: int = self._ask("SELECT coalesce(max(place) + 1, 0) FROM passages")[0]

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: int) -> Passage:
        """The passage at a place, from 0."""
        return _read(self._ask(f"{_ROW} WHERE place = ?", place))

    def __iter__(self) -> Iterator[Passage]:
        return map(_read, self._connection.execute(f"{_ROW} ORDER BY place"))

    def find(self, identity: str) -> int | None:
        """The place of the passage with an id; None if there is none."""
        row = self._ask("SELECT place FROM passages WHERE id = ?", _encode(identity))
        return None if row is None else int(row[0])

    def _ask(self, query: str, *values: object) -> Any:
        try:
            return self._connection.execute(query, values).fetchone()
        except sqlite3.DatabaseError as error:
            raise DataError(f"the passages of an index are damaged: {error}") from error


class Stored:
    """A retriever with the passages of an index (`searchrl.contracts.StoredRetriever`)."""

    passages: PassageStore

    def stored(self, ids: Sequence[str]) -> list[Passage | None]:
        """The passages of ids, None for each that is not there."""
        if not len(self.passages):
            raise ConfigError(
                "there is nothing to search: name an index with --set retriever.index=DIR, or a "
                "corpus with --set env.corpus=PATH"
            )
        places = [self.passages.find(name) for name in ids]
        return [None if place is None else self.passages[place] for place in places]


def write_passages(path: Path, passages: Iterable[Passage]) -> str:
    """Write passages into a new file; returns their fingerprint.

    `passages` may be an iterator over more than fits into memory.
    """
    digest = hashlib.sha256()
    last: tuple[int, tuple[bytes, bytes, bytes]] = (0, (b"", b"", b""))

    def rows() -> Iterator[tuple[int, bytes, bytes, bytes]]:
        nonlocal last
        for place, passage in enumerate(passages):
            last = place, _write(passage)
            _add(digest, last[1])
            yield place, *last[1]

    path.unlink(missing_ok=True)
    try:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA synchronous = OFF")  # a build waits for the disk at its end
            connection.execute(_TABLE)
            try:
                connection.executemany("INSERT INTO passages VALUES (?, ?, ?, ?)", rows())
            except sqlite3.IntegrityError:
                place, (name, _, _) = last
                query = "SELECT place FROM passages WHERE id = ?"
                (first,) = connection.execute(query, (name,)).fetchone()
                raise DataError(
                    f"the passages {first + 1} and {place + 1} of the corpus have the same id "
                    f"{show_value(_decode(name))}; each needs its own"
                ) from None
    except sqlite3.OperationalError as error:
        raise OSError(f"'{path}': {error}") from error
    return digest.hexdigest()


def fingerprint_passages(passages: Iterable[Passage]) -> str:
    """SHA-256 of a corpus: of ids, titles and texts in their order, not of scores."""
    digest = hashlib.sha256()
    for passage in passages:
        _add(digest, _write(passage))
    return digest.hexdigest()


def find_best(scores: NDArray[Any], k: int) -> list[int]:
    """The places of the `k` highest scores above 0, best first; equals in corpus order."""
    places = np.flatnonzero(scores > 0)
    if len(places) > k:
        least = np.partition(scores[places], -k)[-k]
        places = places[scores[places] >= least]
    order = np.argsort(-scores[places], kind="stable")[:k]
    best: list[int] = places[order].tolist()
    return best


def _add(digest: Any, parts: tuple[bytes, bytes, bytes]) -> None:
    for part in parts:
        digest.update(b"%d:" % len(part) + part)


def _write(passage: Passage) -> tuple[bytes, bytes, bytes]:
    return _encode(passage.id), _encode(passage.title), _encode(passage.text)


def _read(row: tuple[bytes, bytes, bytes]) -> Passage:
    identity, title, text = map(_decode, row)
    return Passage(id=identity, text=text, title=title)


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
