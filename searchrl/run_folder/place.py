"""The place of a run: the choice of its folder, and what is said when writing fails."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from searchrl.config import RunConfig
from searchrl.core.encoding import encode_text
from searchrl.errors import RunFolderError

LOCK = ".lock"
"""The file of a process in a folder that it holds; see `lock`."""


def choose_folder(config: RunConfig) -> Path:
    """The folder of a new run: `config.run_dir`, or `runs/ENV-DATE-TIME`. Creates nothing.

    Raises `RunFolderError` if something is there already, or nothing can be written there.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    path = Path(config.run_dir or f"runs/{config.tasks[0].env.name}-{stamp}")
    if config.run_dir is None and os.path.exists(path):
        path = Path(f"{path}-{os.getpid()}")
    ensure_free(path)
    above = next(p for p in (path, *path.absolute().parents) if os.path.exists(p))
    if not above.is_dir() or not os.access(above, os.W_OK):
        fault = "may not be written to" if above.is_dir() else "is no folder"
        raise RunFolderError(
            f"cannot write the run folder '{path}': '{above}' {fault}; choose another place with "
            "--run-dir"
        )
    return path


def ensure_free(path: Path) -> None:
    """Raise `RunFolderError` if something is in the folder already."""
    with guarding(path):
        is_taken = path.exists() and any(one.name != LOCK for one in path.iterdir())
    if is_taken:
        way_on = "it is not empty, and holds nothing to resume; choose another with --run-dir"
        if _can_resume(path):
            way_on = f"continue it with --resume {path}, or choose another with --run-dir"
        raise RunFolderError(f"run folder '{path}' exists already; {way_on}")


def _can_resume(path: Path) -> bool:
    """True if a checkpoint is there; False where nothing can be read."""
    try:
        return next((path / "checkpoints").glob("step_*/state.json"), None) is not None
    except OSError:  # a name that is too long, say
        return False


@contextmanager
def guarding(path: Path) -> Iterator[None]:
    """Turn a full disk or a missing permission into an error that says what to do.

    Only an `OSError` is one: writers that say it otherwise are translated where they are called.
    """
    try:
        yield
    except OSError as error:
        way_on = "choose another place with --run-dir"
        if _can_resume(path):
            way_on = f"make it writable, then --resume {path} continues from its last checkpoint"
        raise RunFolderError(
            f"cannot write the run folder '{path}': {error.strerror or error}. "
            f"Free space, or {way_on}"
        ) from error


@contextmanager
def filling(folder: Path) -> Iterator[Path]:
    """A folder to write into, whose content takes the place of that of `folder` at the end.

    After an error nothing of it is there. Raises `RunFolderError` for a full disk and the like.
    """
    folder = folder.resolve()  # "." has no name
    beside = partial_of(folder)
    try:
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        try:
            yield beside
            if not folder.exists():
                beside.rename(folder)
                return
            for path in beside.iterdir():  # it stays the same one: a shell may stand in it
                shutil.rmtree(folder / path.name, ignore_errors=True)
                path.rename(folder / path.name)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    except OSError as error:
        raise RunFolderError(
            f"cannot write '{folder}': {error.strerror or error}. Free space, or choose another "
            "folder"
        ) from error


def partial_of(path: Path) -> Path:
    """The path of a folder while it is being written or removed."""
    return path.with_name(f".{path.name}.partial")


def save_beside(name: str, text: str) -> Path:
    """Save a text where there is no run folder: in a new file among the temporary ones."""
    with guarding(Path(tempfile.gettempdir())):
        handle, path = tempfile.mkstemp(prefix=f"searchrl-{name}-", suffix=".txt")
        with os.fdopen(handle, "wb") as file:
            file.write(encode_text(text))
    return Path(path)
