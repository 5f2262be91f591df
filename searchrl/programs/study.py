"""`searchrl study`: the runs of all arms and seeds, each in a process and a folder of its own.

A run that has finished is not made again, and one that was stopped goes on from its checkpoint. So
a kill loses nothing, and arms and seeds may be added later.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import NamedTuple

import yaml

from searchrl.config.study import Study
from searchrl.errors import ConfigError, RunInUseError
from searchrl.files import replace_file
from searchrl.run_folder import Run, holding, list_checkpoints

_STOPPED = (0, 129, 130, 143)  # the statuses of a run that has finished, or was asked to stop


class Cell(NamedTuple):
    """A run of a study: its arm, its seed, its folder `STUDY/ARM/seed-N`, and its settings.

    Beside the folder lie its settings (`.yaml`), its output (`.log`), and, if the last try ended
    with an error, an empty file (`.failed`).
    """

    arm: str
    seed: int
    folder: Path
    settings: str

    @property
    def run(self) -> Run | None:
        """The run, once it has finished."""
        run = Run.find(self.folder)
        return run if run is not None and run.summary else None

    @property
    def failed(self) -> Path:
        """The file that tells of an error."""
        return self.folder.with_suffix(".failed")

    def command(self) -> list[str]:
        """The words of the command that makes the run, or goes on with it; writes its settings."""
        if list_checkpoints(self.folder):
            return ["train", "--resume", str(self.folder)]
        file = self.folder.with_suffix(".yaml")
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, self.settings.encode())
        return ["train", "--config", str(file), "--run-dir", str(self.folder)]


def open_cells(study: Study, folder: Path) -> list[Cell]:
    """The runs of a study, seed after seed: with the first seed alone, all arms are there.

    ConfigError if a run was begun with other settings.
    """
    cells = []
    for seed in dict.fromkeys(study.seeds):
        for arm in study.arms:
            text = yaml.safe_dump(study.settings(arm, seed), sort_keys=False, allow_unicode=True)
            cells.append(cell := Cell(arm, seed, folder / arm / f"seed-{seed}", text))
            file = cell.folder.with_suffix(".yaml")
            if file.is_file() and yaml.safe_load(file.read_bytes()) != yaml.safe_load(text):
                raise ConfigError(
                    f"'{cell.folder}' was begun with other settings than those of arm '{arm}' now: "
                    f"see {file}. Arms and seeds may be added, not changed: give the arm another "
                    "name, or the study another --run-dir"
                )
    return cells


def run_cells(cells: Sequence[Cell], jobs: int, tell: Callable[[str], None]) -> None:
    """Make the runs, so many at a time; `tell` hears of every one that begins or ends.

    Ctrl-C stops them as it stops a run. After an error the others go on.
    """
    running: list[subprocess.Popen[bytes]] = []
    is_over = Event()

    def make(cell: Cell) -> None:
        while not is_over.is_set():
            try:
                with holding(cell.folder):
                    break
            except RunInUseError:  # a killed study left the process, which goes on with it
                is_over.wait(1)
        if is_over.is_set() or cell.run is not None:
            return
        if not list_checkpoints(cell.folder):  # killed before its first one
            shutil.rmtree(cell.folder, ignore_errors=True)
        cell.failed.unlink(missing_ok=True)
        tell(f"{cell.folder}: begins")
        words = [sys.executable, "-m", "searchrl", *cell.command()]
        with cell.folder.with_suffix(".log").open("ab") as log:
            process = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            running.append(process)
            code = process.wait()
        if code not in _STOPPED:
            cell.failed.touch()
        tell(f"{cell.folder}: " + (f"ended with status {code}; see its .log" if code else "done"))

    with ThreadPoolExecutor(jobs) as pool:
        try:
            list(pool.map(make, cells))
        except BaseException:
            is_over.set()
            for process in running:
                process.terminate()
            raise
