"""The runs of a folder: what each is, when it was made, how far it came, its figures, its size.

Owns how a run's state is told from its files, and which of its checkpoints may go. Imports no
torch. Caller: `searchrl runs`.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from searchrl.config import load_yaml
from searchrl.config.policy import MODEL, policy_name
from searchrl.envs.splits import VALIDATION
from searchrl.errors import ConfigError, DamagedError, RunFolderError, RunInUseError, SearchRLError
from searchrl.run_folder import (
    Run,
    clean_partial,
    find_damage,
    guarding,
    holding,
    list_checkpoints,
    looks_like_run,
    read_state,
    verify_checkpoint,
)
from searchrl.run_folder.checkpoints import damaged_checkpoints, remove_checkpoint, step_of
from searchrl.run_folder.policies import POLICY, say_unverified, verify_policy
from searchrl.run_folder.reader import find_missing_rollouts
from searchrl.run_folder.rollouts import read_rollouts, rollout_files
from searchrl.trust.folders import find_odd, is_folder

DEFAULT_FOLDER = "runs"
_HEADLINES = ("em", "env", "reward")
"""The figure of a run: the first of these that was measured."""


class State(StrEnum):
    """How far a run has come."""

    FINISHED = "finished"
    """Its summary is written."""
    RUNNING = "running"
    """The process that recorded last is still there."""
    STOPPED = "stopped"
    """It ended early, and `--resume` continues it."""
    ODD = "not plain"
    """It holds a link or a pipe. Nothing in it is followed, so nothing is known of it."""
    BROKEN = "broken off"
    """It ended before its first checkpoint: nothing can be continued."""


class Figures(NamedTuple):
    """The main metric of a run, before and as measured last, and each time on what split.

    None for what was not measured.
    """

    name: str
    before: float | None
    after: float | None
    before_on: str
    after_on: str


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run.

    `num_bytes` is the size on disk; `checkpoint_bytes` that of its checkpoints. `damaged` says what
    is wrong with which file; checkpoints in it are not counted.
    """

    path: Path
    program: str
    envs: tuple[str, ...]
    model: str
    started: str
    duration_s: float | None
    state: State
    step: int
    num_steps: int | None
    figures: Figures | None
    num_bytes: int
    checkpoint_bytes: int
    num_checkpoints: int
    damaged: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The row as JSON."""
        name, before, after, before_on, after_on = self.figures or (None,) * 5
        return {
            "path": str(self.path),
            "program": self.program,
            "envs": list(self.envs),
            "model": self.model,
            "started": self.started,
            "duration_s": self.duration_s,
            "state": str(self.state),
            "step": self.step,
            "num_steps": self.num_steps,
            "figure": name,
            "before": before,
            "after": after,
            "before_on": before_on,
            "after_on": after_on,
            "bytes": self.num_bytes,
            "checkpoint_bytes": self.checkpoint_bytes,
            "checkpoints": self.num_checkpoints,
            "damaged": list(self.damaged),
        }


def find_runs(folders: Sequence[Path]) -> list[Run]:
    """The runs among folders and inside them, however deep; not those inside of runs.

    Raises:
        RunFolderError: if a folder does not exist.
    """
    found: dict[Path, Run] = {}
    for folder in folders:
        if not os.path.isdir(folder):
            raise RunFolderError(
                f"there is no folder '{folder}'; `searchrl runs DIR` lists the runs in DIR, by "
                f"default those under {DEFAULT_FOLDER}/"
            )
        for path in _run_folders(folder):
            found.setdefault(path.resolve(), Run(path))
    return list(found.values())


def _run_folders(folder: Path) -> Iterator[Path]:
    # A folder with a config.yaml alone may be anything.
    waiting = [folder]
    while waiting:
        one = waiting.pop()
        if looks_like_run(one):
            yield one
            continue
        try:
            inner = sorted(one.iterdir(), reverse=True)
        except OSError:  # not ours to read, or too deep for a path
            continue
        waiting += [f for f in inner if is_folder(f) and not f.name.startswith(".")]


def list_runs(folders: Sequence[Path], *, deep: bool = False) -> list[RunRow]:
    """One row per run, the newest last; `deep` is that of `describe_run`.

    Raises:
        RunFolderError: if a folder does not exist.
    """
    rows = (describe_run(run, deep=deep) for run in find_runs(folders))
    return sorted(rows, key=lambda row: row.started)


def describe_run(run: Run, *, deep: bool = False) -> RunRow:
    """What the files of a run say. A file that cannot be read leaves its facts out.

    `deep` reads every file of weights and trajectories and compares it with its checksum. By
    default only their sizes are looked at.
    """
    if find_odd(run.path) is not None:
        return _odd_row(run.path)
    provenance, summary = _read(lambda: run.provenance), _read(lambda: run.summary)
    settings = _read(lambda: load_yaml(run.path / "config.yaml"))
    tasks = settings.get("tasks")
    envs = [_at(task, "env", "name") for task in tasks] if isinstance(tasks, list) else []
    checkpoints = list_checkpoints(run.path)
    step = _step(run, checkpoints)
    program = str(provenance.get("program") or _program(checkpoints, summary))
    stages = _at(settings, "sft", "stages")
    steps = [_at(stage, "steps") for stage in stages] if isinstance(stages, list) else []
    num_steps = {
        "train": _number(settings.get("max_steps")),
        "sft": sum(_number(one) or 0 for one in steps),
    }.get(program)
    return RunRow(
        path=run.path,
        program=program,
        envs=tuple(map(str, envs)),
        model=_model(settings),
        started=str(provenance.get("started", "")),
        duration_s=_number(provenance.get("duration_s")),
        state=_state(run, provenance, summary, checkpoints),
        step=step,
        num_steps=None if num_steps is None else int(num_steps),
        figures=_figures(run, summary, settings),
        num_bytes=_size(run.path),
        checkpoint_bytes=_size(run.path / "checkpoints"),
        num_checkpoints=len(checkpoints),
        damaged=tuple(_find_all_damage(run, deep=deep)),
    )


def _find_all_damage(run: Run, *, deep: bool) -> Iterator[str]:
    """What is wrong with the files of a run, in sentences."""
    yield from find_damage(run.path)
    yield from damaged_checkpoints(run.path, deep=deep)
    try:
        policy = run.path / POLICY
        is_meant = os.path.lexists(policy) or (deep and "policy" in _read(lambda: run.summary))
        if is_meant and not verify_policy(policy, deep=deep) and deep:
            yield say_unverified(policy)
    except DamagedError as error:
        yield str(error)
    with suppress(ConfigError, DamagedError):  # of its configuration, which is told already
        yield from find_missing_rollouts(run) if deep else ()
    for file in rollout_files(run.path) if deep else ():
        try:
            for _ in read_rollouts(file):
                pass
        except DamagedError as error:
            yield str(error)


def _odd_row(path: Path) -> RunRow:
    """A run of which nothing is read."""
    size = _size(path)
    return RunRow(path, "", (), "", "", None, State.ODD, 0, None, None, size, 0, 0)


def _read(reader: Any) -> dict[str, Any]:
    try:
        return dict(reader())
    except (OSError, ValueError, TypeError, RecursionError, SearchRLError):
        return {}


def _at(value: Any, *keys: str) -> Any:
    """What is at a place of nested mappings; None if it is not there."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _model(settings: Mapping[str, Any]) -> str:
    """The model of a run, without the folder it lay in."""
    if (policy := policy_name(settings.get("policy", MODEL))) != MODEL:
        return policy
    name = str(_at(settings, "model", "name") or "")
    return Path(name).name if Path(name).is_absolute() else name


def _program(checkpoints: Sequence[Path], summary: Mapping[str, Any]) -> str:
    """What made a run that does not say: its program is recorded since 0.1."""
    if checkpoints:
        return "sft" if "demos" in _read(lambda: read_state(checkpoints[-1])) else "train"
    return next((name for name in ("eval", "ask", "play") if name in summary), "run")


def _state(
    run: Run,
    provenance: Mapping[str, Any],
    summary: Mapping[str, Any],
    checkpoints: Sequence[Path],
) -> State:
    if summary:
        return State.FINISHED
    if _is_alive(provenance.get("process")):
        return State.RUNNING
    return State.STOPPED if checkpoints else State.BROKEN


def _is_alive(process: Any) -> bool:
    """Whether a process of this machine is still there; one elsewhere is not asked."""
    pid = _at(process, "pid")
    if _at(process, "host") != platform.node() or not isinstance(pid, int):
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # the second: no process has such a number
        return False
    except OSError:  # it belongs to somebody else
        return True
    return True


def _step(run: Run, checkpoints: Sequence[Path]) -> int:
    rows = [row["step"] for row in run.read_metrics().rows]
    return max([*map(step_of, checkpoints), *rows], default=0)


def _figures(run: Run, summary: Mapping[str, Any], settings: Mapping[str, Any]) -> Figures | None:
    """The headline of a run: from its summary, or without one from its evaluations."""
    split = after_on = str(_at(settings, "eval", "split") or "test")
    before, after = summary.get("before"), summary.get("after") or summary.get("eval")
    if not summary:
        rows, fault = run.read_metrics()
        if fault:
            return None  # one of its figures may be wrong
        by_phase = {row["phase"]: row["metrics"] for row in rows}
        before, after = by_phase.get("before"), by_phase.get("after")
        if after is None and "during" in by_phase:
            after, after_on = by_phase["during"], VALIDATION
    for name in sorted(_HEADLINES, key=lambda one: one != summary.get("headline")):
        first, last = (_number(_at(one, name, "value")) for one in (before, after))
        if first is not None or last is not None:
            return Figures(name, first, last, split, after_on)
    return None


def _size(folder: Path) -> int:
    """Bytes of all files in a folder."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(root, name)).st_size
            except OSError:  # gone in the meantime
                continue
    return total


@dataclass(frozen=True, slots=True)
class Pruned:
    """What pruning a run took away, or `reason`: why it took nothing."""

    run: Path
    removed: tuple[str, ...]
    freed_bytes: int
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "path": str(self.run),
            "removed": list(self.removed),
            "freed_bytes": self.freed_bytes,
            "reason": self.reason or None,
        }


def prune_checkpoints(run: Run, keep: int, *, is_dry: bool = False) -> Pruned:
    """Remove checkpoints of a run: all but the newest `keep` and the best.

    A run that is under way is left alone. With `keep` 0 none stays, not even the best: that is
    refused where the checkpoints are all there is. Damaged ones are neither counted nor removed:
    every file of those that stay is read before another goes. What a kill left is removed.

    Raises:
        RunFolderError: if they cannot be removed.
    """
    if (odd := find_odd(run.path)) is not None:
        return Pruned(run.path, (), 0, f"'{odd[0]}' in it is {odd[1]}, which is not followed")
    row = describe_run(run)
    if row.state is State.RUNNING:
        return Pruned(run.path, (), 0, "it is running")
    if keep == 0 and not _is_whole(partial(verify_policy, run.path / POLICY)):
        return Pruned(run.path, (), 0, "it has no policy/: its checkpoints are all there is")
    found = list_checkpoints(run.path)
    newest: list[Path] = []
    for folder in reversed(found):
        if len(newest) < keep and _is_whole(partial(verify_checkpoint, folder)):
            newest.append(folder)
    if len(newest) < min(keep, 1):
        return Pruned(run.path, (), 0, "none of its checkpoints is whole")
    best = _best(found) if keep else None
    gone = [folder for folder in found if folder not in newest and folder.name != best]
    freed = sum(map(_size, gone))
    if not is_dry:
        try:
            with holding(run.path), guarding(run.path):
                clean_partial(run.path)
                for folder in gone:
                    remove_checkpoint(folder)
        except RunInUseError as error:
            return Pruned(run.path, (), 0, str(error))
    return Pruned(run.path, tuple(folder.name for folder in gone), freed)


def _is_whole(verify: Callable[[], object]) -> bool:
    try:
        verify()
    except DamagedError:
        return False
    except RunFolderError:  # of an older version: nothing says that it is not
        return True
    return True


def _best(checkpoints: Sequence[Path]) -> str | None:
    """The name of the best checkpoint, as the newest one knows it."""
    if not checkpoints:
        return None
    step = _at(_read(lambda: read_state(checkpoints[-1])), "best", "step")
    return f"step_{step:06d}" if isinstance(step, int) else None
