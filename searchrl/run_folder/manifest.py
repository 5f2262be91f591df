"""The manifest of a folder: facts, and size and SHA-256 of its files, in one JSON file.

It holds the SHA-256 of its own content under `sha256`, and is replaced in one go. That of a run is
`provenance.json`, that of a checkpoint `state.json`, that of a policy `checksums.json`.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import NonNegativeInt, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from searchrl.core.encoding import encode_text, make_encodable
from searchrl.errors import DamagedError
from searchrl.files import replace_file

CHECKSUMS, STATE = "checksums.json", "state.json"
RESTORE = "Restore it from a copy"
CHANGED = "its content is not what was written"

_FILES, _SEAL = "files", "sha256"
_UNLISTED = frozenset({"README.md", CHECKSUMS, STATE})
"""Manifests, and what no program reads and people may edit."""


class Entry(TypedDict):
    """Size and SHA-256 of a file as it was written."""

    bytes: NonNegativeInt
    sha256: str


_ENTRIES = TypeAdapter(dict[str, Entry])


@dataclass(frozen=True, slots=True)
class Manifest:
    """Facts of a folder, as JSON, and its files by their names in it."""

    facts: dict[str, Any]
    files: dict[str, Entry]

    @classmethod
    def of(
        cls, folder: Path, facts: Mapping[str, Any], unlisted: Collection[str] = _UNLISTED
    ) -> Manifest:
        """List all files that are in a folder now, those below it too.

        Files and folders with a name in `unlisted` are left out.
        """
        files = {
            name: make_entry(path)
            for name, path in _inside(folder).items()
            if path.is_file() and not set(unlisted).intersection(Path(name).parts)
        }
        return cls(dict(facts), files)

    @classmethod
    def read(cls, path: Path, way_on: str = RESTORE) -> Manifest:
        """Read a manifest; `DamagedError` that ends with `way_on` if it is not as written."""
        if not (fault := find_fault(path)):
            try:
                facts = json.loads(path.read_bytes().decode("utf-8"))
                seal = facts.pop(_SEAL, None)
                if seal == _seal_of(facts):
                    return cls(facts, _ENTRIES.validate_python(facts.pop(_FILES, {}), strict=True))
                fault = "it has no checksum" if seal is None else CHANGED
            except ValidationError:
                fault = "it does not list files"
            except (ValueError, TypeError, AttributeError, RecursionError):
                fault = "it is no JSON object"
        raise DamagedError.of(path, fault, way_on)

    def write(self, path: Path) -> None:
        """Write or replace a manifest; ValueError for a number that is not finite."""
        text = json.dumps({**self.facts, _FILES: self.files}, ensure_ascii=False, allow_nan=False)
        plain = json.loads(make_encodable(text))  # as it will be read back: the seal is of that
        replace_file(path, encode_json({**plain, _SEAL: _seal_of(plain)}))

    def verify(
        self, folder: Path, below: str = "", *, deep: bool = True, way_on: str = RESTORE
    ) -> None:
        """Compare the files whose names begin with `below`; without `deep` only their sizes.

        Raises `DamagedError` for the first that is not as it was written.
        """
        # A name is looked up, never followed: it may lead out of the folder.
        there = _inside(folder)
        for name, entry in self.files.items():
            if name.startswith(below):
                fault = "it is missing"
                if name in there:
                    fault = find_fault(there[name], entry, deep=deep)
                if fault:
                    raise DamagedError.of(folder / name, fault, way_on)


def find_fault(
    path: Path, entry: Entry | None = None, *, deep: bool = True, may_grow: bool = False
) -> str:
    """Say what is wrong with a file; "" for nothing. Without an entry, it must not be empty.

    It is never opened if it is no ordinary file: reading a pipe would hang. Without `deep` only the
    size is compared. A file that `may_grow` begins with what was written, and may be empty.
    """
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):
            is_folder = stat.S_ISDIR(info.st_mode)
            return "a folder is in its place" if is_folder else "it is no ordinary file"
        size, known = info.st_size, entry["bytes"] if entry else None
        if not size and known != 0 and not may_grow:
            return "it is empty"
        if known is not None and (size < known or (size > known and not may_grow)):
            return f"it has {size:,} bytes and was written with {known:,}"
        with path.open("rb") as file:  # whether it may be read
            if entry and deep:
                # Of what may grow, the beginning.
                digest = (
                    hashlib.sha256(file.read(known))
                    if may_grow
                    else hashlib.file_digest(file, "sha256")
                )
                return "" if digest.hexdigest() == entry["sha256"] else CHANGED
    except FileNotFoundError:
        return "it is missing"
    except OSError as error:
        return f"it cannot be read ({error.strerror or error})"
    return ""


def make_entry(path: Path) -> Entry:
    """The entry of a file as it is now."""
    return {"bytes": path.stat().st_size, "sha256": hash_file(path)}


def hash_file(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def encode_json(value: Mapping[str, Any]) -> bytes:
    """A JSON file for people to read, too; ValueError for a number that is not finite."""
    return encode_text(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def _seal_of(facts: Mapping[str, Any]) -> str:
    plain = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(plain.encode()).hexdigest()


def _inside(folder: Path) -> dict[str, Path]:
    return {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
