"""The place of a run: the choice and the lock of its folder, and errors of writing."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from searchrl.config import RunConfig
from searchrl.core.encoding import encode_text
from searchrl.errors import RunFolderError, RunInUseError

LOCK = ".lock"
"""The file of a process in a folder that it holds, no part of the run."""
JOURNAL = "journal.jsonl"
"""The results so far of a program without checkpoints, which goes on from them."""


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
    if os.path.isfile(path / JOURNAL):
        return True
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


@contextmanager
def holding(run_dir: Path) -> Iterator[None]:
    """Hold a run folder, which is made if it is not there; one that stays empty is removed.

    The operating system holds `.lock` for the process (flock, also over NFS) and lets go when it
    ends. On a disk without such locks `filelock` takes its own kind. Raises `RunInUseError` if
    another process holds it, `RunFolderError` if it cannot be written.
    """
    path = run_dir / LOCK
    with guarding(run_dir):
        run_dir.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path, timeout=0, thread_local=False)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a disk without locks
                lock.acquire()
        except Timeout:
            raise RunInUseError(
                f"the run folder '{run_dir}' is in use by another process; wait until that ends, "
                "or stop it"
            ) from None
    try:
        yield
    finally:
        with suppress(OSError):  # the run is over; what is left here is no part of it
            if all(one.name == LOCK for one in run_dir.iterdir()):
                path.unlink(missing_ok=True)
                run_dir.rmdir()
        with suppress(OSError):
            lock.release()
