"""Writing a run folder: whole records, and going on after a kill or damage.

Owns `RunWriter`. `provenance.json` is sealed, and holds size and checksum of `config.yaml` and of
the files of rows; a kill between a row and its checksum leaves a row more, which is whole. Weights
are written by `engine.learning.checkpoint`. Callers: `train`, `sft`, and `eval`, `ask` and `play`
with `--run-dir`.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import Any

from searchrl.config import RunConfig
from searchrl.core.encoding import encode_text
from searchrl.errors import DamagedError
from searchrl.plugins.commits import find_commit
from searchrl.run_folder.checkpoints import clean_partial, set_aside, set_aside_newer
from searchrl.run_folder.place import ensure_free, guarding
from searchrl.run_folder.reader import (
    ALARMS,
    CONFIG,
    FINISHED,
    METRICS,
    PROVENANCE,
    SUMMARY,
    WRITTEN,
    Rows,
    Run,
)
from searchrl.run_folder.rollouts import (
    kind_of,
    remove_rollouts,
    rollout_files,
    step_of_file,
    write_rollouts,
)
from searchrl.run_folder.sealing import RESTORE, encode_sealed
from searchrl.run_folder.shapes import read_record
from searchrl.trackers.rows import encode_row, replace_file

_README = """# A SearchRL run

| file | what |
|---|---|
| `config.yaml` | the resolved configuration; `--config config.yaml` repeats the run |
| `provenance.json` | versions, commit, machine, duration, and each plugin with its hash |
| `metrics.jsonl` | one line per training step or evaluation; a metric is value, low, high, n |
| `alarms.jsonl` | what alarms said, if one sounded: since which step, why, what to try |
| `summary.json` | the evaluations before and after, and where everything is |
| `rollouts/` | every trajectory, evaluations too, as JSONL (gzip): ids, authors, scores, text |
| `checkpoints/` | what `--resume` needs; `policy/` in each is a Hugging Face folder |
| `checksums.json` | in `policy/` and in each checkpoint: size and SHA-256 of every file |
| `policy/` | the trained model or adapter in Hugging Face layout |
| `failures/` | tracebacks of episodes that failed, if any did |
| `.lock` | held by the process that works here; `.lock.json` says which |
"""

PACKAGES = ("searchrl", "torch", "transformers", "peft", "gymnasium", "rank-bm25", "numpy")


class RunWriter:
    """Creates and fills a run folder. A step is recorded whole or not at all."""

    def __init__(self, path: Path, spent_s: float = 0.0) -> None:
        self.path = path
        self._opened = time.monotonic() - spent_s
        self._earlier_s = 0.0
        self._record: dict[str, Any] | None = None
        """What is in provenance.json; None: there is none."""
        self._growing = {METRICS: _Growing(), ALARMS: _Growing()}

    @classmethod
    def create(cls, config: RunConfig, path: Path, spent_s: float = 0.0) -> RunWriter:
        """Make the new folder `path`, from `choose_folder`; the work began `spent_s` seconds ago.

        Raises `RunFolderError` if a run has begun there in the meantime, or it cannot be written.
        """
        ensure_free(path)
        with guarding(path):
            (path / "rollouts").mkdir(parents=True, exist_ok=True)
            (path / "checkpoints").mkdir(exist_ok=True)
            (path / "README.md").write_text(_README, "utf-8")
            (path / "config.yaml").write_text(config.to_yaml(), "utf-8")
        return cls(path, spent_s)

    @classmethod
    def reopen(
        cls,
        path: str | Path,
        step: int,
        *,
        evaluated: int | None = None,
        on_note: Callable[[str], None] = lambda text: None,
    ) -> RunWriter:
        """Continue a run after `step`: later records are dropped, because they will be made again.

        So are the evaluations during training after step `evaluated` (by default after `step`).
        What a kill left half-written is removed. Damaged records, and checkpoints after `step`, are
        renamed to `NAME.damaged` and `on_note` is told; the run goes on without them.
        """

        def is_kept(row: Mapping[str, Any]) -> bool:
            is_during = row["phase"] == "during" and evaluated is not None
            return bool(row["step"] <= (evaluated if is_during else step))

        writer = cls(Run.open(path).path)
        clean_partial(writer.path)
        for aside in set_aside_newer(writer.path, step):
            on_note(f"kept as '{aside}', for you to look at or to delete")
        with guarding(writer.path):
            writer._ensure_provenance(on_note)
            measured = Run(writer.path).read_metrics()
            writer._keep_rows(METRICS, is_kept, measured, on_note)
            writer._keep_rows(ALARMS, lambda row: True, Run(writer.path).read_alarms(), on_note)
            is_over = any(row["phase"] == "after" and is_kept(row) for row in measured.rows)
            for file in rollout_files(writer.path):
                phase = "during" if file.name.startswith("eval_during") else "train"
                is_old = is_kept({"phase": phase, "step": step_of_file(file) or 0})
                if not is_old or (file.name.startswith("eval_after") and not is_over):
                    set_aside(file) if file.is_dir() else remove_rollouts(file)
            if (writer.path / SUMMARY).is_dir():  # any other one is replaced at the end
                set_aside(writer.path / SUMMARY)
        return writer

    def _ensure_provenance(self, on_note: Callable[[str], None]) -> None:
        """Read `provenance.json`; set a damaged one aside."""
        try:
            self._record = read_record(self.path / PROVENANCE, RESTORE).value
            self._record.pop(FINISHED, None)
            self._earlier_s = float(self._record.get("duration_s") or 0.0)
        except DamagedError as error:
            is_there = os.path.lexists(self.path / PROVENANCE)
            kept = f" Kept as '{set_aside(self.path / PROVENANCE)}'." if is_there else ""
            on_note(
                f"{error}.{kept} A new one is written now; it cannot know whether {METRICS} is "
                "damaged, too"
            )

    @property
    def has_provenance(self) -> bool:
        """Whether there is one; a reopened run that lost it needs another."""
        return self._record is not None

    def _keep_rows(
        self,
        name: str,
        is_kept: Callable[[Mapping[str, Any]], bool],
        read: Rows,
        on_note: Callable[[str], None],
    ) -> None:
        """Rewrite a file of rows without those that will come again; a damaged one is kept, too."""
        path = self.path / name
        if read.fault:
            kept_as = f"Kept as '{set_aside(path)}'. " if os.path.lexists(path) else ""
            num_rows = len(read.rows)
            on_note(
                f"{read.fault}. {kept_as}The {num_rows} rows that can be read go on in a new file"
            )
        data = b"".join(encode_row(row) for row in read.rows if is_kept(row))
        self._growing[name] = _Growing.of(data)
        # First: the old file begins with these rows, so a kill in between damages nothing.
        self._update_provenance()
        if data or path.is_file():
            replace_file(path, data)

    def write_provenance(self, plugins: Iterable[Mapping[str, Any]], **facts: Any) -> None:
        """Record versions, machine, plugins and `facts` before step 0."""
        versions: dict[str, str | None] = {}
        for name in PACKAGES:
            try:
                versions[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                versions[name] = None
        spent = timedelta(seconds=time.monotonic() - self._opened)
        record = {
            "started": (datetime.now(UTC) - spent).isoformat(timespec="seconds"),
            "command": sys.argv,
            "python": platform.python_version(),
            "platform": platform.platform(),
            "versions": versions,
            "commit": {
                "searchrl": find_commit(Path(__file__).parent, "searchrl"),
                "folder": find_commit(Path.cwd()),
            },
            "process": {"host": platform.node(), "pid": os.getpid()},
            "duration_s": 0.0,
            "plugins": list(plugins),
            **facts,
        }
        config = self.path / CONFIG
        record[WRITTEN] = {
            CONFIG: _Growing.of(config.read_bytes() if config.is_file() else b"").facts,
            **{name: growing.facts for name, growing in self._growing.items()},
        }
        self._record = record
        self._write_json(PROVENANCE, record)

    def _update_provenance(self) -> None:
        """Bring provenance.json up to date: checksum of metrics.jsonl, duration, process.

        The duration is the time in which a process had the run open, those before a `--resume`
        included.
        """
        record = self._record
        if record is None:
            return
        seconds = self._earlier_s + time.monotonic() - self._opened
        record |= {
            "process": {"host": platform.node(), "pid": os.getpid()},
            "duration_s": round(seconds, 1),
        }
        if WRITTEN in record:  # older versions wrote none
            record[WRITTEN] |= {name: one.facts for name, one in self._growing.items()}
        self._write_json(PROVENANCE, record)

    def log(self, step: int, metrics: Mapping[str, Any], phase: str) -> None:
        """Append one line to metrics.jsonl and flush it to disk."""
        self._append(METRICS, {"step": step, "phase": phase, "metrics": metrics})

    def write_alarm(self, row: Mapping[str, Any]) -> None:
        """Append one line to alarms.jsonl and flush it to disk."""
        self._append(ALARMS, row)

    def keep_alarms(self, upto: int) -> None:
        """Drop what alarms said after a step: a resumed run asks them again."""
        with guarding(self.path):
            read = Run(self.path).read_alarms()
            self._keep_rows(ALARMS, lambda row: row["step"] <= upto, read, lambda text: None)

    def update_provenance(self, **facts: Any) -> None:
        """Record facts that became known, or changed, while the run goes on."""
        if self._record is not None and self._record != self._record | facts:
            self._record |= facts
            self._update_provenance()

    def write_rollouts(
        self, name: str, rows: Iterable[Mapping[str, Any]], *, compress: bool, keep: int = 0
    ) -> None:
        """Write one file of trajectories, `NAME_STEP` or `NAME`.

        `keep` > 0 removes all but the newest `keep` files of steps with the same NAME.
        """
        with guarding(self.path):
            (self.path / "rollouts").mkdir(exist_ok=True)
            write_rollouts(self.path / "rollouts", name, rows, compress=compress)
            if keep:
                files = [f for f in rollout_files(self.path) if step_of_file(f) is not None]
                for old in [f for f in files if kind_of(f.name) == kind_of(name)][:-keep]:
                    remove_rollouts(old)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write summary.json."""
        self._write_json(SUMMARY, summary)
        if self._record is not None:
            self._record[FINISHED] = datetime.now(UTC).isoformat(timespec="seconds")
        self._update_provenance()

    def write_failure(self, name: str, text: str) -> Path:
        """Save a traceback; returns its path."""
        self._replace(f"failures/{name}.txt", encode_text(text))
        return self.path / "failures" / f"{name}.txt"

    def _append(self, name: str, row: Mapping[str, Any]) -> None:
        line = encode_row(row)
        with guarding(self.path), (self.path / name).open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._growing[name].add(line)
        self._update_provenance()

    def _write_json(self, name: str, value: Mapping[str, Any]) -> None:
        self._replace(name, encode_sealed(value))

    def _replace(self, name: str, data: bytes) -> None:
        with guarding(self.path):
            (self.path / name).parent.mkdir(exist_ok=True)
            replace_file(self.path / name, data)


class SilentWriter(RunWriter):
    """Writes nothing: for all but one of the processes that train together."""

    @classmethod
    def reopen(
        cls,
        path: str | Path,
        step: int,
        *,
        evaluated: int | None = None,
        on_note: Callable[[str], None] = lambda text: None,
    ) -> SilentWriter:
        """Remember the folder."""
        return cls(Run.open(path).path)

    def write_rollouts(
        self, name: str, rows: Iterable[Mapping[str, Any]], *, compress: bool, keep: int = 0
    ) -> None:
        """Write nothing; `rows` are not even made."""

    def keep_alarms(self, upto: int) -> None:
        """Write nothing."""

    def _append(self, name: str, row: Mapping[str, Any]) -> None:
        """Write nothing."""

    def _replace(self, name: str, data: bytes) -> None:
        """Write nothing."""


class _Growing:
    """Size and checksum of a file that grows at its end."""

    def __init__(self) -> None:
        self._num_bytes = 0
        self._hash = hashlib.sha256()

    @classmethod
    def of(cls, data: bytes) -> _Growing:
        """Of a file that begins with these bytes."""
        growing = cls()
        growing.add(data)
        return growing

    def add(self, data: bytes) -> None:
        """Take in what was appended."""
        self._num_bytes += len(data)
        self._hash.update(data)

    @property
    def facts(self) -> dict[str, Any]:
        """As provenance.json holds them."""
        return {"bytes": self._num_bytes, "sha256": self._hash.hexdigest()}
