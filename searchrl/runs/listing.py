"""The runs of a folder, a row each, and the removal of their checkpoints."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from searchrl.config import RunConfig
from searchrl.config.endpoint import MODEL
from searchrl.errors import ConfigError, DamagedError, RunFolderError, RunInUseError
from searchrl.rewards.expression import HEADLINES
from searchrl.run_folder import (
    Run,
    checkpoint_fault,
    clean_partial,
    find_damage,
    guarding,
    holding,
    list_checkpoints,
    looks_like_run,
    read_state,
)
from searchrl.run_folder.checkpoints import checkpoint_folders, remove_checkpoint, step_of
from searchrl.run_folder.policies import POLICY, verify_policy
from searchrl.run_folder.reader import read_or_empty
from searchrl.run_folder.rollouts import FOLDER as ROLLOUTS
from searchrl.run_folder.rollouts import read_rollouts, rollout_files
from searchrl.run_folder.state import State, find_state
from searchrl.trust.folders import find_odd

DEFAULT_FOLDER = "runs"


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run.

    `bytes` is the size on disk; `checkpoint_bytes` that of its `checkpoints`, which are counted
    where they are whole. `figure` is the name of its main metric, with its values `before` and
    `after`, once it has finished. `damaged` says what is wrong with which file.
    """

    path: Path
    state: State
    bytes: int
    program: str = ""
    envs: tuple[str, ...] = ()
    model: str = ""
    started: str = ""
    duration_s: float | None = None
    step: int = 0
    num_steps: int | None = None
    figure: str | None = None
    before: float | None = None
    after: float | None = None
    checkpoint_bytes: int = 0
    checkpoints: int = 0
    damaged: tuple[str, ...] = ()


def find_runs(folders: Sequence[Path]) -> list[Run]:
    """The runs among folders and inside them, however deep; not those inside of runs."""
    runs: dict[Path, Run] = {}
    for folder in folders:
        if not os.path.isdir(folder):
            raise RunFolderError(
                f"there is no folder '{folder}'; `searchrl runs DIR` lists the runs in DIR, by "
                f"default those under {DEFAULT_FOLDER}/"
            )
        waiting = [folder]
        while waiting:
            one = waiting.pop()
            if looks_like_run(one):  # a folder with a config.yaml alone may be anything
                runs.setdefault(one.resolve(), Run(one))
                continue
            with suppress(OSError):  # not ours to read, or too deep for a path
                inner = (f for f in one.iterdir() if f.is_dir() and not f.is_symlink())
                waiting += sorted((f for f in inner if f.name[0] != "."), reverse=True)
    return list(runs.values())


def list_runs(folders: Sequence[Path], *, deep: bool = False) -> list[RunRow]:
    """One row per run, the newest last; see `find_runs` and `describe_run`."""
    rows = (describe_run(run, deep=deep) for run in find_runs(folders))
    return sorted(rows, key=lambda row: row.started)


def describe_run(run: Run, *, deep: bool = False) -> RunRow:
    """The row of a run. A file that cannot be read leaves its facts out.

    `deep` reads every file of weights and trajectories and compares it with its checksum. By
    default only their sizes are looked at.
    """
    if find_odd(run.path) is not None:
        return RunRow(run.path, State.ODD, _size(run.path))
    provenance, summary = read_or_empty(lambda: run.provenance), read_or_empty(lambda: run.summary)
    config: RunConfig | None = None
    with suppress(ConfigError, DamagedError):
        config = run.config
    checkpoints = list_checkpoints(run.path)
    program, num_steps, model = provenance.get("program") or "run", None, ""
    if config is not None:
        by_program = {"train": config.max_steps, "sft": sum(s.steps for s in config.sft.stages)}
        num_steps = by_program.get(program)
        model = config.model.name if config.policy == MODEL else config.policy
        if Path(model).is_absolute():  # without the folder it lay in
            model = Path(model).name
    recorded = [row["step"] for row in run.read_metrics().rows]
    return RunRow(
        path=run.path,
        state=find_state(run),
        bytes=_size(run.path),
        program=program,
        envs=() if config is None else tuple(task.env.name for task in config.tasks),
        model=model,
        started=provenance.get("started", ""),
        duration_s=provenance.get("duration_s"),
        step=max([*map(step_of, checkpoints), *recorded], default=0),
        num_steps=num_steps,
        **_figures(summary),
        checkpoint_bytes=_size(run.path / "checkpoints"),
        checkpoints=len(checkpoints),
        damaged=tuple(_find_all_damage(run, deep=deep)),
    )


def _find_all_damage(run: Run, *, deep: bool) -> Iterator[str]:
    """The faults of a run's files, in sentences."""
    yield from find_damage(run.path, deep=deep)
    yield from filter(None, (checkpoint_fault(f, deep=deep) for f in checkpoint_folders(run.path)))
    policy = run.path / POLICY
    try:
        if os.path.lexists(policy) or (deep and "policy" in read_or_empty(lambda: run.summary)):
            verify_policy(policy, deep=deep)
    except DamagedError as error:
        yield str(error)
    files = run.files
    for file in rollout_files(run.path) if deep else ():
        try:
            for _ in read_rollouts(file, files.get(f"{ROLLOUTS}/{file.name}")):
                pass
        except DamagedError as error:
            yield str(error)


def _figures(summary: Mapping[str, Any]) -> dict[str, Any]:
    before, after = summary.get("before"), summary.get("after") or summary.get("eval")
    for name in sorted(HEADLINES, key=lambda one: one != summary.get("headline")):
        first, last = ((one or {}).get(name, {}).get("value") for one in (before, after))
        if first is not None or last is not None:
            return {"figure": name, "before": first, "after": last}
    return {}


def _size(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # gone in the meantime
                total += os.lstat(os.path.join(root, name)).st_size
    return total


@dataclass(frozen=True, slots=True)
class Pruned:
    """Checkpoints that were removed, or the `reason` why none was."""

    path: Path
    removed: tuple[str, ...] = ()
    freed_bytes: int = 0
    reason: str | None = None


def prune_checkpoints(run: Run, keep: int, *, is_dry: bool = False) -> Pruned:
    """Remove checkpoints of a run: all but the newest `keep` and the best.

    A run that is under way is left alone. Damaged ones are neither counted nor removed: every file
    of those that stay is read before another goes. Half-written files are removed.
    """
    if (odd := find_odd(run.path)) is not None:
        return Pruned(run.path, reason=f"'{odd[0]}' in it is {odd[1]}, which is not followed")
    if describe_run(run).state is State.RUNNING:
        return Pruned(run.path, reason="it is running")
    whole = list_checkpoints(run.path)
    newest: list[Path] = []
    for folder in reversed(whole):
        if len(newest) < keep and not checkpoint_fault(folder, deep=True):
            newest.append(folder)
    if whole and not newest:
        return Pruned(run.path, reason="none of its checkpoints is whole")
    # The newest one knows the best.
    known = read_state(whole[-1]).get("best") if whole else None
    best = known.get("step") if isinstance(known, dict) else None
    gone = [folder for folder in whole if folder not in newest and step_of(folder) != best]
    freed = sum(map(_size, gone))
    if not is_dry:
        try:
            with holding(run.path), guarding(run.path):
                clean_partial(run.path)
                for folder in gone:
                    remove_checkpoint(folder)
        except RunInUseError as error:
            return Pruned(run.path, reason=str(error))
    return Pruned(run.path, tuple(folder.name for folder in gone), freed)
