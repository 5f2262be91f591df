"""The manifest of an index folder, `manifest.json`, with checksums of itself and of the files.

It is replaced in one go, so a folder has the old index or the new one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, FiniteFloat, TypeAdapter, ValidationError

from searchrl import SearchRLError, file_fault, replace_file

FORMAT = 3
"""The layout of index folders and the words of `bm25s`; another one is refused as outdated."""

NAME = "manifest.json"

CHANGING = "chroma"
"""A folder whose program changes its files when it opens them; they have no checksums."""


class IndexFault(SearchRLError):
    """An index cannot be used: missing, half-written, damaged or outdated; says what to do."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """An index folder in a few words: its retriever (`kind`), and the settings behind its files.

    `fingerprint` and `count` are those of the corpus, `sources` the flags that name it, such as
    `--corpus /data/corpus.jsonl`, for the command that builds the index again. `data` is the folder
    with the files, `files` their sizes and SHA-256. `took_s` is of the last build, if resumed.
    """

    kind: str
    settings: Mapping[str, Any]
    fingerprint: str
    count: int
    sources: tuple[str, ...]
    data: Annotated[str, Field(pattern=r"^data-[0-9a-f]+$")]
    files: Mapping[str, tuple[int, str]]
    created: str
    took_s: FiniteFloat

    @property
    def num_bytes(self) -> int:
        """Bytes of all files."""
        return sum(size for size, _ in self.files.values())


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest of the folder."""
    facts: dict[str, Any] = {"format": FORMAT, **asdict(manifest)}
    sealed = json.dumps(facts | {"sha256": _seal(facts)}, indent=1, ensure_ascii=False)
    replace_file(folder / NAME, sealed.encode() + b"\n")


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a folder; `FileNotFoundError` if there is none."""
    try:
        facts = json.loads((folder / NAME).read_bytes())
        written, seal = facts.pop("format"), facts.pop("sha256")
        if written != FORMAT:
            raise IndexFault(
                f"is outdated: it is in format {written}, and this version reads {FORMAT}"
            )
        if seal != _seal({"format": written, **facts}):
            raise ValueError("its checksum is wrong")
        return TypeAdapter(Manifest).validate_json(json.dumps(facts), strict=True)
    except FileNotFoundError:
        raise
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise IndexFault(f"is damaged: {NAME}: {place}: {first['msg']}") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise IndexFault(f"is damaged: {NAME} cannot be read ({error})") from error


def list_files(folder: Path) -> dict[str, tuple[int, str]]:
    """Size and SHA-256 of every file below a folder, but for those that change."""
    files = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_file() and CHANGING not in name.parts:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            files[name.as_posix()] = path.stat().st_size, digest
    return files


def find_fault(folder: Path, manifest: Manifest, *, is_deep: bool = False) -> str:
    """The first file that is not as it was written, or "". `is_deep`: every byte is read."""
    for name, (size, digest) in manifest.files.items():
        if fault := file_fault(folder / manifest.data / name, size, digest, deep=is_deep):
            return f"is damaged: {manifest.data}/{name}: {fault}"
    return ""


def _seal(facts: Mapping[str, Any]) -> str:
    plain = json.dumps(facts, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(plain.encode()).hexdigest()
