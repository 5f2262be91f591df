"""The journal of a run: what was played and asked, a row each, on disk before it is used."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from searchrl import DamagedError


class Journal(dict[str, Any]):
    """Keys and values of a search so far. A last row that a kill has torn is removed."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "journal.jsonl"
        data = self._path.read_bytes() if self._path.is_file() else b""
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            os.truncate(self._path, len(whole))
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                row = json.loads(line)
                self[row["key"]] = row["value"]
            except (ValueError, TypeError, LookupError):
                raise DamagedError.of(
                    self._path, f"line {number} is no row", "Restore it"
                ) from None

    def put(self, rows: Mapping[str, Any]) -> None:
        """Append rows; they are on disk when this returns."""
        lines = (json.dumps({"key": key, "value": value}) + "\n" for key, value in rows.items())
        with self._path.open("ab") as file:
            file.write("".join(lines).encode())
            file.flush()
            os.fsync(file.fileno())
        self.update(rows)
