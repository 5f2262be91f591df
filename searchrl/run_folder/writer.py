"""Writing a run folder: whole records, and going on after a kill or damage.

`provenance.json` is the manifest, replaced after each row. A kill between a row and its checksum
leaves a row more, which is whole; a file of trajectories is listed with the next row.
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
from searchrl.files import replace_file
from searchrl.plugins.provenance import find_commit
from searchrl.run_folder.checkpoints import checkpoint_folders, clean_partial, set_aside, step_of
from searchrl.run_folder.manifest import Entry, Manifest, encode_json, make_entry
from searchrl.run_folder.place import ensure_free, guarding
from searchrl.run_folder.reader import (
    ALARMS,
    CONFIG,
    METRICS,
    PROVENANCE,
    SUMMARY,
    Rows,
    Run,
    read_provenance,
)
from searchrl.run_folder.rollouts import FOLDER, parse_name, rollout_files, write_rollouts
from searchrl.trackers.rows import encode_row

_README = """# A SearchRL run

`searchrl inspect` shows it. `config.yaml` is its resolved configuration, `--config config.yaml`
repeats it; `policy/` is what was trained, as a Hugging Face folder. The page "Data formats" of
SearchRL's documentation says what the other files are.
"""

_PACKAGES = ("searchrl", "torch", "transformers", "peft", "gymnasium", "rank-bm25", "numpy")


class RunWriter:
    """Creates and fills a run folder. A step is recorded whole or not at all.

    With `is_silent` nothing is written: for all but one of the processes that train together.
    """

    def __init__(self, path: Path, spent_s: float = 0.0, *, is_silent: bool = False) -> None:
        self.path = path
        self.is_silent = is_silent
        self._opened = time.monotonic() - spent_s
        self._facts: dict[str, Any] | None = None
        """Facts of provenance.json; None: there is none."""
        self._files: dict[str, Entry] = {}
        self._digests: dict[str, Any] = {}
        """SHA-256 of the files of rows, so far."""

    @classmethod
    def create(cls, config: RunConfig, path: Path, spent_s: float = 0.0) -> RunWriter:
        """Make the new folder `path`; the work began `spent_s` seconds ago.

        Raises `RunFolderError` if a run has begun there in the meantime, or it cannot be written.
        """
        ensure_free(path)
        with guarding(path):
            (path / "rollouts").mkdir(parents=True, exist_ok=True)
            (path / "checkpoints").mkdir(exist_ok=True)
            (path / "README.md").write_text(_README, "utf-8")
            (path / CONFIG).write_text(config.to_yaml(), "utf-8")
        return cls(path, spent_s)

    @classmethod
    def reopen(
        cls,
        path: str | Path,
        step: int,
        *,
        evaluated: int | None = None,
        on_note: Callable[[str], None] = lambda text: None,
        is_silent: bool = False,
    ) -> RunWriter:
        """Continue a run after `step`: later records are dropped, because they will be made again.

        So are the evaluations during training after step `evaluated` (by default after `step`), and
        half-written files. Damaged records, and checkpoints after `step`, are renamed to
        `NAME.damaged` and `on_note` is told; the run goes on without them.
        """

        def is_kept(row: Mapping[str, Any]) -> bool:
            is_during = row["phase"] == "during" and evaluated is not None
            return bool(row["step"] <= (evaluated if is_during else step))

        run = Run.open(path)
        writer = cls(run.path, is_silent=is_silent)
        if is_silent:
            return writer
        clean_partial(run.path)
        with guarding(run.path):
            for folder in checkpoint_folders(run.path):
                # A damaged one, or it would have been taken; something of it may be saved.
                if step_of(folder) > step:
                    on_note(f"kept as '{set_aside(folder)}', for you to look at or to delete")
            writer._read_provenance(on_note)
            measured = run.read_metrics()
            is_over = any(row["phase"] == "after" and is_kept(row) for row in measured.rows)

            def is_dropped(file: Path) -> bool:
                kind, at = parse_name(file.name)
                phase = "during" if kind.startswith("eval_during") else "train"
                is_old = is_kept({"phase": phase, "step": at or 0})
                return not is_old or (kind.startswith("eval_after") and not is_over)

            for name in [*writer._files]:
                if name.startswith(f"{FOLDER}/") and is_dropped(Path(name)):
                    del writer._files[name]
            writer.update_provenance()  # before they are removed: a kill leaves none that is missed
            for file in filter(is_dropped, rollout_files(run.path)):
                set_aside(file) if file.is_dir() else file.unlink()
            writer._keep_rows(METRICS, measured, is_kept, on_note)
            writer._keep_rows(ALARMS, run.read_alarms(), lambda row: True, on_note)
            if os.path.lexists(run.path / SUMMARY):  # a damaged one, or there is no going on
                set_aside(run.path / SUMMARY)
        return writer

    def _read_provenance(self, on_note: Callable[[str], None]) -> None:
        """Go on with `provenance.json`; set a damaged one aside."""
        path = self.path / PROVENANCE
        try:
            manifest = read_provenance(self.path)
            self._facts, self._files = manifest.facts, manifest.files
            self._files.pop(SUMMARY, None)
            self._opened -= float(self._facts.get("duration_s") or 0.0)
        except DamagedError as error:
            kept = f" Kept as '{set_aside(path)}'." if os.path.lexists(path) else ""
            on_note(
                f"{error}.{kept} A new one is written now; it cannot know whether {METRICS} is "
                "damaged, too"
            )

    @property
    def has_provenance(self) -> bool:
        """False for a reopened run that lost it, and needs another."""
        return self._facts is not None

    def _keep_rows(
        self,
        name: str,
        read: Rows,
        is_kept: Callable[[Mapping[str, Any]], bool],
        on_note: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Rewrite a file of rows without those that will come again; a damaged one is kept, too."""
        path = self.path / name
        if read.fault:
            kept = f"Kept as '{set_aside(path)}'. " if os.path.lexists(path) else ""
            rest = f"The {len(read.rows)} rows that can be read go on in a new file"
            on_note(f"{read.fault}. {kept}{rest}")
        data = b"".join(encode_row(row) for row in read.rows if is_kept(row))
        for known in (self._digests, self._files):
            known.pop(name, None)
        if data:
            self._count(name, data)
        # First: the old file begins with these rows, so a kill in between damages nothing.
        self.update_provenance()
        if data or path.is_file():
            replace_file(path, data)

    def write_provenance(self, plugins: Iterable[Mapping[str, Any]], **facts: Any) -> None:
        """Record versions, machine, plugins and `facts` before step 0."""
        versions: dict[str, str | None] = {}
        for name in _PACKAGES:
            try:
                versions[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                versions[name] = None
        spent = timedelta(seconds=time.monotonic() - self._opened)
        self._facts = {
            "started": (datetime.now(UTC) - spent).isoformat(timespec="seconds"),
            "command": sys.argv,
            "python": platform.python_version(),
            "platform": platform.platform(),
            "versions": versions,
            "commit": {
                "searchrl": find_commit(Path(__file__).parent, "__init__.py"),
                "folder": find_commit(Path.cwd()),
            },
            "plugins": list(plugins),
            **facts,
        }
        if (self.path / CONFIG).is_file():
            self._files[CONFIG] = make_entry(self.path / CONFIG)
        self.update_provenance()

    def update_provenance(self, **facts: Any) -> None:
        """Bring provenance.json up to date: checksums, duration, process, `facts`."""
        if self._facts is None or self.is_silent:
            return
        self._facts |= facts
        self._facts["process"] = {"host": platform.node(), "pid": os.getpid()}
        self._facts["duration_s"] = round(time.monotonic() - self._opened, 1)
        with guarding(self.path):
            Manifest(self._facts, self._files).write(self.path / PROVENANCE)

    def log(self, step: int, metrics: Mapping[str, Any], phase: str) -> None:
        """Append one line to metrics.jsonl and flush it to disk."""
        self._append(METRICS, {"step": step, "phase": phase, "metrics": metrics})

    def write_alarm(self, row: Mapping[str, Any]) -> None:
        """Append one line to alarms.jsonl and flush it to disk."""
        self._append(ALARMS, row)

    def keep_alarms(self, upto: int) -> None:
        """Drop the rows of alarms after a step: a resumed run asks them again."""
        if not self.is_silent:
            with guarding(self.path):
                read = Run(self.path).read_alarms()
                self._keep_rows(ALARMS, read, lambda row: bool(row["step"] <= upto))

    def write_rollouts(
        self, name: str, rows: Iterable[Mapping[str, Any]], *, compress: bool, keep: int = 0
    ) -> None:
        """Write one file of trajectories, `NAME_STEP` or `NAME`.

        `keep` > 0 removes all but the newest `keep` files of steps with the same NAME.
        """
        if self.is_silent:
            return
        path = self.path / FOLDER / f"{name}.jsonl{'.gz' if compress else ''}"
        self._unlist(path)
        with guarding(self.path):
            path.parent.mkdir(exist_ok=True)
            write_rollouts(path, rows)
            self._files[f"{FOLDER}/{path.name}"] = make_entry(path)
            if keep:
                kind = parse_name(name)[0]
                parsed = [(parse_name(file.name), file) for file in rollout_files(self.path)]
                same = [file for (one, at), file in parsed if one == kind and at is not None]
                for old in same[:-keep]:
                    self._unlist(old)
                    old.unlink()

    def _unlist(self, path: Path) -> None:
        """Take a file of trajectories out of the manifest, before it is removed or replaced."""
        if self._files.pop(f"{FOLDER}/{path.name}", None):
            self.update_provenance()

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write summary.json."""
        if not self.is_silent:
            self._replace(SUMMARY, encode_json(summary))
            self._files[SUMMARY] = make_entry(self.path / SUMMARY)
            self.update_provenance()

    def write_failure(self, name: str, text: str) -> Path:
        """Save a traceback; returns its path."""
        self._replace(f"failures/{name}.txt", encode_text(text))
        return self.path / "failures" / f"{name}.txt"

    def _append(self, name: str, row: Mapping[str, Any]) -> None:
        if self.is_silent:
            return
        line = encode_row(row)
        with guarding(self.path), (self.path / name).open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._count(name, line)
        self.update_provenance()

    def _count(self, name: str, data: bytes) -> None:
        """Take what a file of rows has grown by into its entry."""
        digest = self._digests.setdefault(name, hashlib.sha256())
        digest.update(data)
        known = self._files[name]["bytes"] if name in self._files else 0
        self._files[name] = {"bytes": known + len(data), "sha256": digest.hexdigest()}

    def _replace(self, name: str, data: bytes) -> None:
        if not self.is_silent:
            with guarding(self.path):
                (self.path / name).parent.mkdir(exist_ok=True)
                replace_file(self.path / name, data)
