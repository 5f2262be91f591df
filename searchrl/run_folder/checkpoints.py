"""Checkpoints on disk: found, checked and removed. No torch.

The manifest of a checkpoint is `state.json`, which is replaced when the other files are not.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from searchrl.errors import DamagedError, RunFolderError
from searchrl.run_folder.manifest import STATE, Manifest
from searchrl.run_folder.place import guarding, partial_of

FOLDER = "checkpoints"
_NAME = re.compile(r"step_\d{1,18}")
_WAY_ON = "Restore it from a copy, or leave the checkpoint out: delete its folder"


class Choice(NamedTuple):
    """A folder that was chosen. `notes`: what the user must know of the choice, in sentences."""

    folder: Path
    notes: tuple[str, ...]


def checkpoint_folders(run_dir: Path) -> list[Path]:
    """All folders of checkpoints, oldest first, whole or not."""
    try:
        folders = [path for path in (run_dir / FOLDER).iterdir() if is_checkpoint_name(path.name)]
    except OSError:  # there is no such folder, or it cannot be read
        return []
    return sorted(folders, key=step_of)


def is_checkpoint_name(name: str) -> bool:
    """True for the name of a checkpoint's folder."""
    return _NAME.fullmatch(name) is not None


def step_of(checkpoint: Path) -> int:
    """The step in the name of a checkpoint: `step_000012` -> 12."""
    return int(checkpoint.name.rpartition("_")[2])


def list_checkpoints(run_dir: Path) -> list[Path]:
    """The checkpoints that look whole (files are there and have their sizes), oldest first."""
    return [folder for folder in checkpoint_folders(run_dir) if not checkpoint_fault(folder)]


def checkpoint_fault(folder: Path, *, deep: bool = False) -> str:
    """Say what is wrong with a checkpoint; "" for nothing. `deep`: see `Manifest.verify`."""
    try:
        read_manifest(folder).verify(folder, deep=deep, way_on=_WAY_ON)
    except DamagedError as error:
        return str(error)
    return ""


def read_state(checkpoint: Path) -> dict[str, Any]:
    """Read how far the run had come at a checkpoint; raises as `read_manifest`."""
    return read_manifest(checkpoint).facts


def read_manifest(checkpoint: Path) -> Manifest:
    """Read the manifest of a checkpoint; `DamagedError` if it is not what was written."""
    manifest = Manifest.read(checkpoint / STATE, _WAY_ON)
    if not manifest.files:
        raise DamagedError.of(checkpoint / STATE, "it lists no files", _WAY_ON)
    return manifest


def newest_checkpoint(run_dir: Path, *, deep: bool = True) -> Choice:
    """The newest checkpoint that is whole; the notes say what is wrong with newer ones.

    Raises `DamagedError` if none of them is whole, `RunFolderError` if there is none.
    """
    faults: list[str] = []
    for folder in reversed(checkpoint_folders(run_dir)):
        if not (fault := checkpoint_fault(folder, deep=deep)):
            return Choice(folder, tuple(faults))
        faults.append(fault)
    if faults:
        raise DamagedError(
            f"run '{run_dir}' has no whole checkpoint to resume from:\n" + "\n".join(faults)
        )
    raise RunFolderError(
        f"run '{run_dir}' has no checkpoint to resume from; start again with --run-dir"
    )


def set_aside(path: Path) -> Path:
    """Rename a damaged file or folder to a free name beside it; returns that."""
    names = (path.with_name(f"{path.name}.damaged{number or ''}") for number in itertools.count())
    return path.rename(next(name for name in names if not os.path.lexists(name)))


def remove_checkpoint(folder: Path) -> None:
    """Remove a checkpoint: a kill half-way leaves a partial folder, never half a checkpoint."""
    going = partial_of(folder)
    shutil.rmtree(going, ignore_errors=True)
    folder.rename(going)
    shutil.rmtree(going)


def clean_partial(run_dir: Path) -> None:
    """Remove half-written files. Only the process that works on a run may do this."""
    with guarding(run_dir):
        places = (run_dir, *(run_dir / name for name in ("rollouts", "failures", FOLDER)))
        for place in (*places, *checkpoint_folders(run_dir)):
            for path in place.glob("*.partial"):  # hidden ones, too
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def rotate_checkpoints(run_dir: Path, keep_last: int, best: str | None) -> None:
    """Remove all whole checkpoints but the newest `keep_last` and the one named `best`."""
    with guarding(run_dir):
        whole = list_checkpoints(run_dir)
        for folder in whole[: max(0, len(whole) - keep_last)]:
            if folder.name != best:
                remove_checkpoint(folder)
