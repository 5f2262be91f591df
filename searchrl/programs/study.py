"""`searchrl study`: the runs of all arms and seeds, each in a process and a folder of its own.

A run that has finished is not made again, and one that was stopped goes on from its checkpoint. So
a kill loses nothing, and arms and seeds may be added later.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import NamedTuple

import yaml

from searchrl.config.study import Study, load_study
from searchrl.errors import ConfigError
from searchrl.files import replace_file
from searchrl.run_folder import Run, list_checkpoints

FILE = "study.yaml"


class Cell(NamedTuple):
    """A run of a study: its arm, its seed, and its folder, `STUDY/ARM/seed-N`."""

    arm: str
    seed: int
    folder: Path

    @property
    def is_done(self) -> bool:
        """True once the run has finished."""
        run = Run.find(self.folder)
        return run is not None and "after" in run.summary

    @property
    def log(self) -> Path:
        """What the run printed."""
        return self.folder.with_suffix(".log")


def open_study(file: Path, folder: Path) -> Study:
    """Read a study and keep its file in its folder.

    Raises:
        ConfigError: if the runs in the folder are those of another study: its base, its budget or
            an arm of it has changed.
    """
    study, kept = load_study(file), folder / FILE
    if kept.is_file() and file.resolve() != kept.resolve():
        old = load_study(kept)
        same = {name: arm for name, arm in study.arms.items() if name in old.arms}
        ours, theirs = (
            (one.base, one.steps, one.sampled_tokens, arms)
            for one, arms in ((study, same), (old, {name: old.arms[name] for name in same}))
        )
        if ours != theirs or len(same) < len(old.arms):
            raise ConfigError(
                f"'{folder}' holds runs of another study: base, the budget and the arms that are "
                "there must stay as they are (arms and seeds may be added). Name another folder"
            )
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(kept, file.read_bytes())
    return study


def cells(study: Study, folder: Path) -> list[Cell]:
    """Every run of a study, seed after seed: with the first seed alone, all arms are there."""
    return [
        Cell(arm, seed, folder / arm / f"seed-{seed}") for seed in study.seeds for arm in study.arms
    ]


def command(study: Study, cell: Cell) -> list[str]:
    """The command that makes a run, or goes on with it."""
    words = [sys.executable, "-m", "searchrl", "train"]
    if list_checkpoints(cell.folder):
        return [*words, "--resume", str(cell.folder)]
    if cell.folder.is_dir():  # killed before its first checkpoint
        shutil.rmtree(cell.folder)
    config = cell.folder.with_suffix(".yaml")
    config.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(study.settings(cell.arm, cell.seed), sort_keys=False, allow_unicode=True)
    replace_file(config, text.encode())
    return [*words, "--config", str(config), "--run-dir", str(cell.folder)]


def run_study(
    study: Study, pending: Sequence[Cell], jobs: int, tell: Callable[[Cell, str], None]
) -> list[Cell]:
    """Make the runs, so many at a time; return those that failed.

    `tell` hears of every run that begins or ends. Ctrl-C stops them as it stops a run.
    """
    running: list[subprocess.Popen[bytes]] = []
    is_over = Event()

    def make(cell: Cell) -> bool:
        if is_over.is_set():
            return True
        words = command(study, cell)
        tell(cell, "begins")
        with cell.log.open("ab") as log:
            process = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            running.append(process)
            code = process.wait()
        tell(cell, "finished" if code == 0 else f"failed with code {code}; see {cell.log}")
        return code == 0

    with ThreadPoolExecutor(jobs) as pool:
        try:
            made = [*pool.map(make, pending)]
        except BaseException:
            is_over.set()
            for process in running:
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
            raise
    return [cell for cell, is_made in zip(pending, made, strict=True) if not is_made]


def read_cells(folder: Path) -> Iterator[tuple[Cell, Run | None]]:
    """Every run of the study in a folder, and its record if it has finished."""
    for cell in cells(load_study(folder / FILE), folder):
        yield cell, Run.open(cell.folder) if cell.is_done else None
