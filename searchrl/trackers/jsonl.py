"""The `jsonl` tracker: one JSON line per step, in a file of the run folder.

For tools that follow a file. The run itself writes `metrics.jsonl`; this file has another name.
After a resume, steps that are done again replace their old lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from searchrl.errors import RunFolderError
from searchrl.files import replace_file
from searchrl.trackers.rows import encode_row, read_rows
from searchrl.trust.folders import place_inside


class JsonlTracker:
    """Appends `{"step", "phase", "metrics"}` lines.

    Args:
        run_dir: the run folder.
        path: the file in it.

    Raises `ConfigError` if the path is outside of the run folder, `RunFolderError` if the file
    cannot be written, or holds anything but rows.
    """

    def __init__(self, run_dir: str | Path, path: str = "tracker.jsonl") -> None:
        self.path = place_inside(Path(run_dir), path, "tracker jsonl: path")
        if self.path.name in ("metrics.jsonl", "alarms.jsonl"):
            raise RunFolderError(f"the run itself writes '{self.path}'; name another path")
        self._earlier = list(read_rows(self.path)) if self.path.is_file() else None
        self._write(b"")

    def log(self, step: int, metrics: Mapping[str, Mapping[str, float]], phase: str) -> None:
        """Append one line and flush it; `RunFolderError` if the file cannot be written."""
        row = {"step": step, "phase": phase, "metrics": {k: dict(v) for k, v in metrics.items()}}
        if self._earlier is not None:  # from here on, the steps of an earlier process come again
            kept = [old for old in self._earlier if _place(old) < _place(row)]
            self._earlier = None
            replace_file(self.path, b"".join(map(encode_row, kept)))
        self._write(encode_row(row))

    def close(self) -> None:
        """Nothing is left open."""

    def _write(self, data: bytes) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write(data)
        except OSError as error:
            raise RunFolderError(
                f"tracker jsonl cannot write '{self.path}': {error.strerror or error}"
            ) from error


def _place(row: Mapping[str, Any]) -> tuple[int, bool]:
    """Sorts lines as a run logs them: within a step, training comes before evaluation."""
    return int(row.get("step", 0)), row.get("phase") != "train"
