"""Rows on disk: one JSON object per line, as the run folder and the `jsonl` tracker write them.

Owns how a row becomes a line, how lines are read after a kill, and how a whole file is replaced.
What the rows mean is the business of the callers: `run_folder` and `trackers/jsonl`.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def encode_row(row: Mapping[str, Any]) -> str:
    """One line of JSON with its line break.

    Raises ValueError if a number is not finite: JSON has no word for it.
    """
    return json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Rows of a JSONL file, gzip or not; a torn last line (a killed writer) is left out."""
    if not path.is_file():
        return
    opener: Any = gzip.open if path.suffix == ".gz" else open
    # Bytes: a line may be torn in the middle of a character.
    with opener(path, "rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return
            yield json.loads(line)


def replace_file(path: Path, data: bytes) -> None:
    """Write beside and rename: readers see the old file or the new one, never a part."""
    beside = path.with_name(path.name + ".partial")
    beside.write_bytes(data)
    beside.replace(path)
