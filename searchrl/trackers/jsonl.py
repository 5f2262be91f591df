"""The `jsonl` tracker: one JSON line per step, in a file of the user's choice.

For tools that follow a file. The run folder's own `metrics.jsonl` is written by the run itself;
this one may lie anywhere. After a resume the steps that recur replace their old lines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from searchrl.errors import RunFolderError


class JsonlTracker:
    """Appends `{"step", "phase", "metrics"}` lines.

    Args:
        run_dir: the run folder.
        path: the file, relative to it.

    Raises:
        RunFolderError: if the file cannot be written.
    """

    def __init__(self, run_dir: str | Path, path: str = "tracker.jsonl") -> None:
        self.path = Path(run_dir) / path
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._earlier = self.path.read_text("utf-8").splitlines() if self.path.is_file() else []
            self._file = self.path.open("a", encoding="utf-8")
        except OSError as error:
            raise RunFolderError(
                f"tracker jsonl cannot write '{self.path}': {error.strerror or error}"
            ) from error

    def log(self, step: int, metrics: Mapping[str, Mapping[str, float]], phase: str) -> None:
        """Append one line and flush it."""
        if self._earlier:
            self._drop_from(step)
        row = {"step": step, "phase": phase, "metrics": {k: dict(v) for k, v in metrics.items()}}
        self._file.write(json.dumps(row, ensure_ascii=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _drop_from(self, step: int) -> None:
        """Forget what an earlier process logged at `step` and later: it is being done again."""
        kept = []
        for line in self._earlier:
            try:
                is_kept = json.loads(line)["step"] < step
            except (ValueError, KeyError, TypeError):
                is_kept = False  # a line torn by a kill
            if is_kept:
                kept.append(line + "\n")
        self._file.close()
        self._file = self.path.open("w", encoding="utf-8")
        self._file.writelines(kept)
        self._earlier = []
