"""Rows on disk: one JSON object per line, also after a kill or damage."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from searchrl.core.encoding import encode_text
from searchrl.errors import DamagedError

MAX_ROW_BYTES = 32 * 2**20
"""Longest row that is read: a rollout of 350,000 tokens."""


def encode_row(row: Mapping[str, Any]) -> bytes:
    """One line of JSON with its line break; ValueError for a number that is not finite."""
    return encode_text(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Rows of a JSONL file, if it is there; a torn last line (a killed writer) is left out.

    Raises `DamagedError` for a line that is no JSON object.
    """
    if not path.is_file():
        return
    with path.open("rb") as file:
        for row in parse_rows(file, may_be_torn=True):
            if isinstance(row, str):
                raise DamagedError.of(path, row, "Restore it from a copy, or delete it")
            yield row


def parse_rows(file: BufferedIOBase, *, may_be_torn: bool) -> Iterator[dict[str, Any] | str]:
    """The JSON objects in lines; in place of a line that is none, a text that says what it is.

    With `may_be_torn`, a last line without its end is left out.
    """
    lines = iter(lambda: file.readline(MAX_ROW_BYTES), b"")
    for number, line in enumerate(lines, start=1):
        if len(line) == MAX_ROW_BYTES:
            yield f"line {number} has {MAX_ROW_BYTES:,} bytes or more, as no row has"
            return
        if not line.endswith(b"\n"):
            if not may_be_torn:
                yield f"line {number} is cut off"
            return
        try:
            row = json.loads(line, parse_constant=_refuse)
        except (ValueError, RecursionError):
            row = None
        yield row if isinstance(row, dict) else f"line {number} is no JSON object"


def _refuse(word: str) -> None:
    """JSON has no word for a number that is not finite, though Python's reader takes it."""
    raise ValueError(f"{word} is no JSON")
