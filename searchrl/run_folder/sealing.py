"""Checksums, by which it is seen that a file is no longer what the run wrote.

A sealed JSON file holds the SHA-256 of its own content under `sha256`. `checksums.json` of a folder
of weights holds size and SHA-256 of every file in it and is sealed itself.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from searchrl.core.encoding import encode_text
from searchrl.errors import DamagedError

SEAL = "sha256"
"""The key under which a sealed file holds the checksum of its other keys."""

CHECKSUMS = "checksums.json"

STATE = "state.json"
"""A file of a checkpoint, sealed by itself, because it is replaced when the rest is not."""
RESTORE = "Restore it from a copy"
CHANGED = "its content is not what was written"
UNREAD = frozenset({"README.md"})
"""Files that no program reads and that people may edit."""


def encode_sealed(value: Mapping[str, Any]) -> bytes:
    """A JSON file of `value` with its seal; ValueError for a number that is not finite."""
    # As it will be read back, so that the seal is of that.
    plain = json.loads(encode_text(json.dumps(value, ensure_ascii=False, allow_nan=False)))
    whole = {**plain, SEAL: _seal_of(plain)}
    return encode_text(json.dumps(whole, indent=2, ensure_ascii=False) + "\n")


def read_sealed(path: Path, way_on: str = RESTORE) -> dict[str, Any]:
    """Read a JSON object with a seal, which is left out; `DamagedError` for everything else."""
    data = read_whole(path, way_on)
    try:
        value = json.loads(data.decode("utf-8"))
        if not isinstance(value, dict):
            raise DamagedError.of(path, f"it holds {type(value).__name__}, not an object", way_on)
        seal = value.pop(SEAL, None)
        if seal != _seal_of(value):
            fault = "it has no checksum" if seal is None else CHANGED
            raise DamagedError.of(path, fault, way_on)
    except (ValueError, RecursionError) as error:
        raise DamagedError.of(path, "it is not JSON", way_on) from error
    return value


def _seal_of(value: Mapping[str, Any]) -> str:
    plain = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(plain.encode()).hexdigest()


def read_whole(path: Path, way_on: str = RESTORE) -> bytes:
    """The bytes of a file that is not empty; `DamagedError` if it cannot be read."""
    if fault := file_fault(path):
        raise DamagedError.of(path, fault, way_on)
    return path.read_bytes()


def file_fault(
    path: Path, num_bytes: int | None = None, sha256: str | None = None, *, deep: bool = False
) -> str:
    """Say what is wrong with a file; "" for nothing. Any size but 0 is right without `num_bytes`.

    It is never opened if it is no ordinary file: reading a pipe would hang. `deep` reads it and
    compares the checksum; by default the size alone is compared.
    """
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):
            is_folder = stat.S_ISDIR(info.st_mode)
            return "a folder is in its place" if is_folder else "it is no ordinary file"
        if not info.st_size and num_bytes != 0:
            return "it is empty"
        if num_bytes is not None and info.st_size != num_bytes:
            return f"it has {info.st_size:,} bytes and was written with {num_bytes:,}"
        if deep and sha256 is not None and hash_file(path) != sha256:
            return CHANGED
        with path.open("rb"):
            pass  # whether it may be read
    except FileNotFoundError:
        return "it is missing"
    except OSError as error:
        return f"it cannot be read ({error.strerror or error})"
    return ""


def hash_file(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_checksums(folder: Path) -> None:
    """Write `checksums.json` for all files that are in a folder now, those below it too."""
    files = {
        name: {"bytes": path.stat().st_size, "sha256": hash_file(path)}
        for name, path in _inside(folder).items()
        if path.is_file() and path.name not in UNREAD | {CHECKSUMS, STATE}
    }
    (folder / CHECKSUMS).write_bytes(encode_sealed({"files": files}))


def verify_folder(
    folder: Path, below: str = "", *, deep: bool = True, way_on: str = RESTORE
) -> list[str]:
    """Compare a folder with its `checksums.json`; returns the names that it lists.

    Looks only at names that begin with `below`; without `deep` only at sizes. Raises `DamagedError`
    for the first file that is not what was written, or for `checksums.json`.
    """
    files = read_sealed(folder / CHECKSUMS, way_on).get("files")
    try:
        listed = {str(n): (int(f["bytes"]), str(f["sha256"])) for n, f in files.items()}  # type: ignore[union-attr]
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise DamagedError.of(folder / CHECKSUMS, "it does not list files", way_on) from error
    # A name is looked up, never followed: it may lead out of the folder.
    chosen, there = [name for name in listed if name.startswith(below)], _inside(folder)
    for name in chosen:
        fault = "it is missing"
        if name in there:
            fault = file_fault(there[name], *listed[name], deep=deep)
        if fault:
            shown = name if name.isprintable() else CHECKSUMS
            raise DamagedError.of(folder / shown, fault, way_on)
    return chosen


def _inside(folder: Path) -> dict[str, Path]:
    return {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
