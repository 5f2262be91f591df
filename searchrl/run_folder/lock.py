"""One process at a time works on a run folder.

The operating system holds `.lock` for it (flock, also over NFS) and lets go when it ends. On a disk
without such locks `filelock` takes its own kind. The file is no part of the run.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from searchrl.errors import RunInUseError
from searchrl.run_folder.place import LOCK, guarding


@contextmanager
def holding(run_dir: Path) -> Iterator[None]:
    """Hold a run folder, which is made if it is not there; one that stays empty is removed.

    Raises `RunInUseError` if another process holds it, `RunFolderError` if it cannot be written.
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
