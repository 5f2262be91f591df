"""What an index folder says of itself: `manifest.json`.

Owns its format, its own checksum and the checksums of the files. The manifest is replaced in one
go, so a folder has the old index or the new one. Written by `build`, read by `folder`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import FiniteFloat, TypeAdapter, ValidationError

from searchrl import SearchRLError, file_fault, replace_file

FORMAT = 1
"""The layout of index folders; another one is refused as outdated."""

NAME = "manifest.json"

CACHE_VARIABLE = "SEARCHRL_INDEXES"
"""Environment variable: the folder for indexes that nobody named."""

BUILDING, STATE = "building", "build.json"
"""Where a build works inside the folder, and the file there that says what it is of."""


class IndexFault(SearchRLError):
    """An index cannot be used: missing, half-written, damaged or outdated; says what to do."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """An index folder in a few words.

    Attributes:
        kind, kind_version: the `IndexKind` that wrote the files.
        settings: its `built_with`.
        fingerprint, count: the corpus: `fingerprint_passages` and how many passages it has.
        sources: flags that name the corpus, such as `--corpus /data/corpus.jsonl`, for the command
            that builds the index again; empty if it came from elsewhere.
        data: name of the folder with the files, beside the manifest.
        files: size in bytes and SHA-256 of every file in it.
        versions: the packages that wrote it.
        created: date and time (UTC).
        took_s: seconds that the build took, the last one if it was resumed.
    """

    kind: str
    kind_version: int
    settings: Mapping[str, Any]
    fingerprint: str
    count: int
    sources: tuple[str, ...]
    data: str
    files: Mapping[str, tuple[int, str]]
    versions: Mapping[str, str]
    created: str
    took_s: FiniteFloat

    @property
    def num_bytes(self) -> int:
        """Bytes of all files."""
        return sum(size for size, _ in self.files.values())


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Make `manifest` that of the folder; there is no moment without one."""
    facts: dict[str, Any] = {"format": FORMAT, **asdict(manifest)}
    sealed = facts | {"sha256": _seal(facts)}
    write_json(folder / NAME, sealed)


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a folder.

    Raises:
        FileNotFoundError: there is none.
        IndexFault: it is damaged, or in another format.
    """
    path = folder / NAME
    try:
        facts = json.loads(path.read_bytes())
        written = facts.pop("format")
        seal = facts.pop("sha256")
        if written != FORMAT:
            raise IndexFault(
                f"is outdated: it is in format {written}, and this version reads {FORMAT}"
            )
        if seal != _seal({"format": written, **facts}):
            raise ValueError("its checksum is wrong")
        made = TypeAdapter(Manifest).validate_json(json.dumps(facts), strict=True)
        _ensure_inside(made)
        return made
    except FileNotFoundError:
        raise
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise IndexFault(f"is damaged: {NAME}: {place}: {first['msg']}") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise IndexFault(f"is damaged: {NAME} cannot be read ({error})") from error


def _ensure_inside(made: Manifest) -> None:
    """Raise ValueError if a path leads out of the folder.

    A folder may come from somebody else, whose checksum is right whatever they wrote.
    """
    if not re.fullmatch(r"data-[0-9a-f]+", made.data):
        raise ValueError(f"{made.data!r} is no folder of an index")
    for name in made.files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not name.isprintable():
            raise ValueError(f"{name!r} is no file of an index")


def list_files(folder: Path) -> dict[str, tuple[int, str]]:
    """Size and SHA-256 of every file below a folder."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            files[path.relative_to(folder).as_posix()] = path.stat().st_size, digest
    return files


def find_fault(folder: Path, manifest: Manifest, *, is_deep: bool = False) -> str:
    """Say which file is not what was written, or "". `is_deep`: every byte is read."""
    for name, (size, digest) in manifest.files.items():
        if fault := file_fault(folder / manifest.data / name, size, digest, deep=is_deep):
            return f"is damaged: {manifest.data}/{name}: {fault}"
    return ""


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Replace a JSON file in one go."""
    replace_file(path, json.dumps(value, indent=1, ensure_ascii=False).encode() + b"\n")


def _seal(facts: Mapping[str, Any]) -> str:
    plain = json.dumps(facts, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(plain.encode()).hexdigest()
