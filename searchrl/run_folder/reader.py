"""A finished or running run, read from its folder, however damaged it is. Reads, never writes."""

from __future__ import annotations

import io
import json
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import suppress
from os.path import lexists
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from searchrl.config import RunConfig, build_config, load_yaml
from searchrl.core.episode import SEARCH
from searchrl.errors import ConfigError, DamagedError, RunFolderError, suggest_path
from searchrl.run_folder.manifest import RESTORE, Entry, Manifest, find_fault
from searchrl.run_folder.rollouts import FOLDER, may_hold, read_rollouts, rollout_files
from searchrl.run_folder.shapes import (
    AlarmRow,
    MetricRow,
    Provenance,
    Shape,
    Summary,
    find_problem,
)
from searchrl.trackers.rows import parse_rows
from searchrl.trust.folders import ensure_plain

if TYPE_CHECKING:
    from searchrl.contracts import Metric, Paired
    from searchrl.run_folder.forgetting import Change

CONFIG, PROVENANCE = "config.yaml", "provenance.json"
METRICS, ALARMS, SUMMARY = "metrics.jsonl", "alarms.jsonl", "summary.json"

_PARTS = ("checkpoints", "policy")
"""Folders of a run that hold weights."""
_GO_ON = "Restore it from a copy; other files of the run are not affected"


class Rows(NamedTuple):
    """The rows of a file that can be read, and what is wrong with it ("": nothing).

    Where something is wrong, a row may hold a wrong figure or be missing.
    """

    rows: list[dict[str, Any]]
    fault: str

    def ensure_whole(self) -> list[dict[str, Any]]:
        """Return the rows, or raise `DamagedError`."""
        if self.fault:
            raise DamagedError(self.fault)
        return self.rows


class Run:
    """A finished or running run, read from its folder.

    All properties raise `DamagedError` for a file that is not what the run wrote.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """Open a run folder. Raises `RunFolderError` if it holds no run, or what is not plain."""
        folder = Path(path)
        is_run = looks_like_run(folder)
        if not is_run and not os.path.isfile(folder / CONFIG):
            fault = f"there is no run folder '{path}'"
            if os.path.isdir(folder):
                fault = f"'{path}' is no run folder (it has no {CONFIG})"
            raise RunFolderError(
                f"{fault}; runs are made by `searchrl train` and `searchrl sft`, by default under "
                f"runs/.{suggest_path(path)}"
            )
        ensure_plain(folder)
        if is_run:
            ensure_readable(folder / CONFIG, _config_help(folder))
        return cls(folder)

    @classmethod
    def find(cls, path: str | Path) -> Run | None:
        """The run of a run folder, or of a checkpoint or the policy in one; None if it is none.

        Raises `DamagedError` if it is one, and its configuration cannot be read; `RunFolderError`
        if it holds anything but plain files and folders.
        """
        folder = Path(path).absolute()
        if not os.path.isdir(folder):
            return None
        for above in (folder, *folder.parents[:3]):
            inside = folder.relative_to(above).parts
            if inside and inside[0] not in _PARTS:
                continue
            if os.path.isfile(above / CONFIG) or looks_like_run(above):
                return cls.open(Path(path) if above == folder else above)
        return None

    @property
    def config(self) -> RunConfig:
        """The resolved configuration."""
        return build_config(read_config_file(self.path / CONFIG))

    @property
    def summary(self) -> dict[str, Any]:
        """`summary.json`; empty while the run has not finished."""
        path, entry = self.path / SUMMARY, self.files.get(SUMMARY)
        if entry is None and not lexists(path):
            return {}
        if not (fault := find_fault(path, entry)):
            try:
                summary: dict[str, Any] = json.loads(path.read_bytes())
                fault = find_problem(summary, Summary)
            except (ValueError, RecursionError):
                fault = "it is not JSON"
        if fault:
            raise DamagedError.of(path, fault, _GO_ON)
        return summary

    @property
    def provenance(self) -> dict[str, Any]:
        """`provenance.json`: versions, machine, commit, duration; empty if it was not written."""
        return read_provenance(self.path).facts if lexists(self.path / PROVENANCE) else {}

    @property
    def files(self) -> dict[str, Entry]:
        """Sizes and checksums of the files in it; empty if `provenance.json` cannot be read."""
        try:
            return read_provenance(self.path).files
        except DamagedError:
            return {}

    def find_end(self) -> str:
        """Say that training is over, and how to train on; "" while there is something to resume."""
        # Resuming writes a damaged one again, from the other records.
        steps = read_or_empty(lambda: self.summary).get("steps")
        if steps is None:
            return ""
        return (
            f"'{self.path}' is finished at step {steps} of {steps}, and is left as it is; to train "
            f"on: --init-from {shlex.quote(str(self.path))}"
        )

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Rows `{"step", "phase", metric: value, …}`, oldest first: a table."""
        return [
            {"step": row["step"], "phase": row["phase"]}
            | {name: metric["value"] for name, metric in row["metrics"].items()}
            for row in self.metric_rows()
        ]

    def metric_rows(self) -> list[dict[str, Any]]:
        """Rows `{"step", "phase", "metrics"}` as they are written, oldest first."""
        return self.read_metrics().ensure_whole()

    def measured(self, phase: str, step: int) -> dict[str, Any] | None:
        """The metrics of a phase at a step, with their intervals; None if they are not recorded."""
        for row in self.read_metrics().rows:
            if (row["phase"], row["step"]) == (phase, step):
                return dict(row["metrics"])
        return None

    @property
    def alarms(self) -> list[dict[str, Any]]:
        """Rows `{"step", "alarm", "severity", "action", "since", "what", "why", "tries"}`."""
        return self.read_alarms().ensure_whole()

    def read_metrics(self) -> Rows:
        """Rows of `metrics.jsonl`, however damaged it is. Never raises."""
        return self._read_rows(METRICS, MetricRow)

    def read_alarms(self) -> Rows:
        """Rows of `alarms.jsonl`, however damaged it is. Never raises."""
        return self._read_rows(ALARMS, AlarmRow)

    def _read_rows(self, name: str, shape: type[Shape]) -> Rows:
        path, entry = self.path / name, self.files.get(name)
        known = entry["bytes"] if entry else 0
        if not known and not lexists(path):
            return Rows([], "")
        fault, rows = find_fault(path, entry, may_grow=True), list[dict[str, Any]]()
        with suppress(OSError):
            data = path.read_bytes() if path.is_file() else b""
            # Beyond what provenance.json knows there may be a row that a kill has torn.
            for line in parse_rows(io.BytesIO(data), may_be_torn=len(data) > known):
                if isinstance(line, dict) and not find_problem(line, shape):
                    rows.append(line)
                elif not fault:
                    fault = line if isinstance(line, str) else "a line in it is no such row"
        return Rows(rows, str(DamagedError.of(path, fault, _GO_ON)) if fault else "")

    def rollouts(self, phase: str | None = None) -> Iterator[dict[str, Any]]:
        """All trajectories, oldest first.

        With `phase`, only those of `before`, `train`, `during` or `after`; `before_forced`,
        `during_forced` and `after_forced` are those whose first turn was forced to search.
        """
        files = self.files
        for path in rollout_files(self.path):
            if phase is None or may_hold(path, phase):
                rows = read_rollouts(path, files.get(f"{FOLDER}/{path.name}"))
                yield from (row for row in rows if phase is None or row.get("phase") == phase)

    def changes(self, since: Run | None = None, step: int | None = None) -> list[Change]:
        """Gains and losses of each environment: `env`, `figure`, `before`, `after`, `change`.

        Its last evaluation, or that after `step`, minus the one before training, or the last one
        of `since`: paired on the tasks that both asked. Environments that share none are absent.
        """
        from searchrl.run_folder.forgetting import find_changes  # with numpy

        before = self.rollouts("before") if since is None else since._evaluated()
        return find_changes(self.config, before, self._evaluated(step))

    def gains(self) -> dict[str, Metric]:
        """`em_gain`: exact match after training minus that of the start that must search first.

        Paired on the tasks; of several environments `ENV/em_gain`. Empty without forced episodes
        before, or where no rollouts are kept.
        """
        from searchrl.run_folder.forgetting import find_changes  # with numpy

        changes = find_changes(self.config, self.search_first(), self.rollouts("after"))
        prefix = "{}/" if len(changes) > 1 else ""
        return {
            f"{prefix.format(one.env)}em_gain": _as_metric(one.change)
            for one in changes
            if one.figure == "em"
        }

    def search_first(self) -> list[dict[str, Any]]:
        """The episodes before training whose first turn searches, forced to or by itself.

        One of each task: those that began with a search were not played again. Empty where nothing
        was forced.
        """
        forced = list(self.rollouts("before_forced"))
        rows = self.rollouts("before") if forced else ()
        return forced + [
            row for row in rows if [turn["action"] for turn in row["turns"][:1]] == [SEARCH]
        ]

    def _evaluated(self, step: int | None = None) -> list[dict[str, Any]]:
        """The episodes of the last evaluation, or of that after `step`; empty without one."""
        for phase in ("after", "eval") if step is None else ("after", "during"):
            rows = [row for row in self.rollouts(phase) if step is None or row["step"] == step]
            if rows:
                return rows
        return []

    def find_config_change(self) -> str:
        """Say that `config.yaml` is not what the run wrote, or ""; `DamagedError` if unreadable."""
        path = self.path / CONFIG
        ensure_readable(path, RESTORE)
        if not find_fault(path, self.files.get(CONFIG)):
            return ""
        return (
            f"'{path}' is not as the run wrote it: it was edited, or it is damaged. "
            "If nobody edited it, restore it from a copy: figures may be those of other settings"
        )


def _as_metric(change: Paired) -> Metric:
    metric: Metric = {"value": change["value"], "n": change["n"]}
    if "low" in change and "high" in change:
        metric |= {"low": change["low"], "high": change["high"]}
    return metric


def read_or_empty(read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """A record of a run; empty if it is damaged, which `find_damage` says."""
    try:
        return read()
    except DamagedError:
        return {}


def looks_like_run(folder: Path) -> bool:
    """True for a run, even if one of the files that make it one is gone or damaged."""
    signs = [lexists(folder / name) for name in (CONFIG, PROVENANCE)]
    return all(signs) or (any(signs) and (folder / _PARTS[0]).is_dir())


def find_damage(run_dir: Path, *, deep: bool = False) -> list[str]:
    """Describe the faults of a run's records, in sentences; nothing for other folders.

    With `deep` also trajectories that are gone. They and weights are looked at when they are read.
    """
    if not looks_like_run(run_dir):
        return []
    run, faults = Run(run_dir), list[str]()
    for look in (run.find_config_change, lambda: read_provenance(run_dir), lambda: run.summary):
        try:
            if isinstance(change := look(), str):
                faults.append(change)
        except DamagedError as error:
            faults.append(str(error))
    faults += [run.read_metrics().fault, run.read_alarms().fault]
    there = {f"{FOLDER}/{file.name}" for file in rollout_files(run_dir)}
    missing = [name for name in run.files if name.startswith(FOLDER) and name not in there]
    if deep and missing:
        others = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
        way_on = f"{RESTORE}, or go on without"
        faults.append(str(DamagedError.of(run_dir / missing[0], f"it is missing{others}", way_on)))
    return list(dict.fromkeys(filter(None, faults)))


def read_provenance(run_dir: Path) -> Manifest:
    """Read the manifest of a run; `DamagedError` if it is not what runs write."""
    path = run_dir / PROVENANCE
    way_on = f"{RESTORE}: nothing else says which plugins the run had, or whether files are damaged"
    manifest = Manifest.read(path, way_on)
    if problem := find_problem(manifest.facts, Provenance):
        raise DamagedError.of(path, problem, way_on)
    return manifest


def ensure_readable(path: Path, way_on: str) -> None:
    """Raise `DamagedError` for a file that is missing, empty or cannot be read."""
    if fault := find_fault(path):
        raise DamagedError.of(path, fault, way_on)


def read_config_file(path: Path) -> dict[str, Any]:
    """The settings in a config file; that of a run must be one that runs can have.

    Raises `DamagedError` for the config of a run that is not what the run wrote, `ConfigError` if
    it cannot be read or, for that of a run, holds settings that are none.
    """
    if path.name != CONFIG or not looks_like_run(path.parent):
        return load_yaml(path)
    way_on = _config_help(path.parent)
    ensure_readable(path, way_on)
    try:
        settings = load_yaml(path)
        build_config(settings)
    except ConfigError as error:
        if Run(path.parent).find_config_change():
            raise DamagedError.of(path, str(error), way_on) from error
        raise ConfigError(f"'{path}': {error}\n{way_on}") from error
    return settings


def _config_help(folder: Path) -> str:
    return f"{RESTORE}; its weights can be used without it: --init-from {folder / 'policy'}"
