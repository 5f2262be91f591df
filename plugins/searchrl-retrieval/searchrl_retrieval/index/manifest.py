"""The manifest of an index folder, `manifest.json`: what it is of, and its files.

It is replaced in one go, so a folder has the old index or the new one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, FiniteFloat, TypeAdapter, ValidationError

from searchrl import DamagedError, Manifest, SearchRLError

FORMAT = 4
"""The layout of index folders and the words of `bm25s`; another one is refused as outdated."""

NAME = "manifest.json"

CHANGING = "chroma"
"""A folder whose program changes its files when it opens them; they have no checksums."""


class IndexFault(SearchRLError):
    """An index cannot be used: missing, half-written, damaged or outdated; says what to do."""


@dataclass(frozen=True, slots=True)
class IndexManifest:
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
    files: Mapping[str, Any]
    created: str
    took_s: FiniteFloat

    @property
    def num_bytes(self) -> int:
        """Bytes of all files."""
        return sum(entry["bytes"] for entry in self.files.values())


def write_manifest(folder: Path, made: IndexManifest) -> None:
    """Replace the manifest of the folder."""
    facts = {"format": FORMAT, **asdict(made)}
    Manifest(facts, facts.pop("files")).write(folder / NAME)


def read_manifest(folder: Path, way_on: str = "Build it again") -> IndexManifest:
    """Read the manifest of a folder.

    Raises `DamagedError` if it is not what was written, `IndexFault` if it is of another format.
    """
    read = Manifest.read(folder / NAME, way_on)
    facts = read.facts | {"files": read.files}
    if (written := facts.pop("format", None)) != FORMAT:
        raise IndexFault(
            f"index '{folder}' is outdated: it is in format {written}, and this version reads "
            f"{FORMAT}. {way_on}"
        )
    try:
        return TypeAdapter(IndexManifest).validate_json(json.dumps(facts), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        fault = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise DamagedError.of(folder / NAME, fault, way_on) from error
