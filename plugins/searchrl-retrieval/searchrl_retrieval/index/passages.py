"""Passages on disk: a corpus of any size as one memory-mapped sequence of `Passage`.

Owns the folder of a corpus (`records.bin`, `offsets.bin`, `ids.bin`, `passages.json`), the
fingerprint of a corpus, and the way from an id to its passage. Records are mapped, not read:
processes that open the same folder share its pages, and a `Passage` is made when it is asked for.
Knows no index and no file format of data sets.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, overload

from searchrl import DataError, show_value
from searchrl.contracts import Passage

FORMAT = 1
"""The layout of the files; a folder of another one is refused."""

_RECORDS, _OFFSETS, _IDS, _FACTS = "records.bin", "offsets.bin", "ids.bin", "passages.json"
_HEAD = struct.Struct("<II")
"""A record: bytes of the id, bytes of the title, then id, title and text in UTF-8."""
_NUMBER = struct.calcsize("Q")
_BLOCK = 1 << 20


class PassageStore(Sequence[Passage]):
    """The passages of a folder that `write_passages` made, in their order; see `open_passages`.

    Attributes:
        path: the folder.
        fingerprint: SHA-256 of all records, as `fingerprint_passages` computes it. Two stores with
            the same one are equal.
    """

    def __init__(self, path: Path, count: int, fingerprint: str) -> None:
        self.path = path
        self.fingerprint = fingerprint
        self._count = count
        self._records = _map(path / _RECORDS)
        self._offsets = memoryview(_map(path / _OFFSETS)).cast("Q")
        self._order = memoryview(_map(path / _IDS)).cast("Q") if count else self._offsets[:0]

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> Passage: ...
    @overload
    def __getitem__(self, place: slice) -> list[Passage]: ...
    def __getitem__(self, place: int | slice) -> Passage | list[Passage]:
        """The passage at a place; a slice gives a list. Scores are 0."""
        if isinstance(place, slice):
            return [self[at] for at in range(*place.indices(self._count))]
        at = place + self._count if place < 0 else place
        if not 0 <= at < self._count:
            raise IndexError(f"no passage {place} among {self._count}")
        return decode_record(self._records[self._offsets[at] : self._offsets[at + 1]])

    def __iter__(self) -> Iterator[Passage]:
        return (self[at] for at in range(self._count))

    def __contains__(self, passage: object) -> bool:
        at = self.find(passage.id) if isinstance(passage, Passage) else None
        return at is not None and self[at] == passage

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PassageStore):
            return NotImplemented
        return self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process maps the same files.
        return open_passages, (self.path,)

    def __repr__(self) -> str:
        return f"PassageStore({str(self.path)!r}, {self._count} passages)"

    @property
    def num_bytes(self) -> int:
        """Bytes of all records on disk."""
        return self._offsets[self._count] if self._count else 0

    def id_at(self, place: int) -> str:
        """The id of a passage, without its text."""
        return self._id_bytes(place).decode("utf-8", "surrogatepass")

    def find(self, identity: str) -> int | None:
        """Where the passage with an id stands; None if there is none."""
        wanted = _encode(identity)
        low, high = 0, self._count
        while low < high:
            middle = (low + high) // 2
            found = self._id_bytes(self._order[middle])
            if found == wanted:
                return self._order[middle]
            low, high = (middle + 1, high) if found < wanted else (low, middle)
        return None

    def _id_bytes(self, place: int) -> bytes:
        start = self._offsets[place]
        size, _ = _HEAD.unpack_from(self._records, start)
        begin = start + _HEAD.size
        found: bytes = self._records[begin : begin + size]
        return found


def write_passages(folder: Path, passages: Iterable[Passage]) -> PassageStore:
    """Write passages into a new folder, one after another, and open it.

    `passages` may be an iterator over more than fits into memory; only their ids are held. The
    folder counts as a corpus when its last file is there, so a killed process leaves none.

    Raises:
        DataError: two passages have the same id.
        OSError: the folder exists, or cannot be written.
    """
    folder.mkdir(parents=True)
    digest = hashlib.sha256()
    offsets = array("Q", [0])
    ids: list[bytes] = []
    with open(folder / _RECORDS, "wb", buffering=_BLOCK) as file:
        for passage in passages:
            record = encode_record(passage)
            digest.update(record)
            file.write(record)
            offsets.append(offsets[-1] + len(record))
            ids.append(_encode(passage.id))
        _sync(file)
    order = array("Q", sorted(range(len(ids)), key=ids.__getitem__))
    for before, after in pairwise(order):
        if ids[before] == ids[after]:
            name = show_value(ids[after].decode("utf-8", "surrogatepass"))
            raise DataError(
                f"the passages {before + 1} and {after + 1} of the corpus have the same id {name}; "
                "each needs its own"
            )
    for name, numbers in ((_OFFSETS, offsets), (_IDS, order)):
        with open(folder / name, "wb") as file:
            numbers.tofile(file)
            _sync(file)
    facts = {
        "format": FORMAT,
        "byteorder": sys.byteorder,
        "count": len(ids),
        "bytes": offsets[-1],
        "fingerprint": digest.hexdigest(),
    }
    new = folder / f"{_FACTS}.new"
    new.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    os.replace(new, folder / _FACTS)
    return open_passages(folder)


def has_passages(folder: Path) -> bool:
    """Whether a folder is that of a corpus."""
    return os.path.isfile(folder / _FACTS)


def open_passages(folder: Path) -> PassageStore:
    """Open the passages of a folder; takes the same time whatever their number.

    Raises:
        DataError: the folder holds no passages, or its files are not what was written.
    """
    try:
        facts = json.loads((folder / _FACTS).read_text("utf-8"))
        count, fingerprint = int(facts["count"]), str(facts["fingerprint"])
        if facts["format"] != FORMAT or facts["byteorder"] != sys.byteorder:
            raise DataError(
                f"'{folder}' holds passages in format {facts['format']} ({facts['byteorder']}-"
                f"endian); this version reads {FORMAT} ({sys.byteorder}-endian). Write them again"
            )
        sizes = {
            _RECORDS: int(facts["bytes"]),
            _OFFSETS: (count + 1) * _NUMBER,
            _IDS: count * _NUMBER,
        }
        for name, size in sizes.items():
            if (found := (folder / name).stat().st_size) != size:
                raise DataError(
                    f"'{folder / name}' has {found:,} bytes and should have {size:,}: it is "
                    "damaged. Write the corpus again"
                )
    except FileNotFoundError as error:
        raise DataError(
            f"'{folder}' holds no complete corpus: '{error.filename}' is missing. Write it again"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise DataError(f"'{folder / _FACTS}' is damaged: {error}. Write it again") from error
    return PassageStore(folder, count, fingerprint)


def fingerprint_passages(passages: Iterable[Passage]) -> str:
    """SHA-256 of a corpus: of ids, titles and texts in their order, not of scores.

    A store knows its own; of other sequences every passage is read.
    """
    if isinstance(passages, PassageStore):
        return passages.fingerprint
    digest = hashlib.sha256()
    for passage in passages:
        digest.update(encode_record(passage))
    return digest.hexdigest()


def encode_record(passage: Passage) -> bytes:
    """The bytes of a passage on disk, without its score."""
    identity, title = _encode(passage.id), _encode(passage.title)
    head = _HEAD.pack(len(identity), len(title))
    return b"".join((head, identity, title, _encode(passage.text)))


def decode_record(record: bytes) -> Passage:
    """The passage that `encode_record` wrote."""
    size, title_size = _HEAD.unpack_from(record)
    title_at = _HEAD.size + size
    text_at = title_at + title_size
    identity, title, text = (
        part.decode("utf-8", "surrogatepass")
        for part in (record[_HEAD.size : title_at], record[title_at:text_at], record[text_at:])
    )
    return Passage(id=identity, text=text, title=title)


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _map(path: Path) -> Any:
    """A file as bytes that are read when they are looked at; an empty file as no bytes."""
    with open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return b""
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _sync(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
