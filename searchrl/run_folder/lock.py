"""One process at a time works on a run folder.

`.lock` in it is held by the operating system for the process (flock, also over NFS), which lets go
when the process ends, however it ends; `.lock.json` says who that is. On a disk without such locks
`filelock` takes its own kind. These files are no part of the run.
"""

from __future__ import annotations

import json
import os
import platform
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from searchrl.core.encoding import encode_text
from searchrl.errors import DamagedError, RunInUseError
from searchrl.run_folder.place import LOCKS, guarding

_LOCK, _HOLDER = LOCKS


@contextmanager
def holding(run_dir: Path) -> Iterator[None]:
    """Hold a run folder, which is made if it is not there; one that stays empty is removed.

    Raises:
        RunInUseError: if another process holds it.
        DamagedError: if the lock cannot be opened.
        RunFolderError: if it cannot be written.
    """
    path = run_dir / _LOCK
    with guarding(run_dir):
        run_dir.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path, timeout=0, thread_local=False)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a disk without locks
                lock.acquire()
        except Timeout:
            by = "by another process"
            # Else it begins, or ends, this very moment; or somebody else wrote it.
            with suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
                facts = json.loads((run_dir / _HOLDER).read_text("utf-8"))
                by = "by process {pid} on host '{host}' since {since}".format(**facts)
            raise RunInUseError(
                f"the run folder '{run_dir}' is in use {by}; wait until that ends, or stop it"
            ) from None
        except OSError as error:
            if not os.path.lexists(path):
                raise
            way_on = "Make it readable and writable, or delete it if no process works on this run"
            fault = f"it cannot be opened ({error.strerror or error})"
            raise DamagedError.of(path, fault, way_on) from error
        with suppress(OSError):  # a full disk, say: it only tells others who it is
            since = datetime.now(UTC).isoformat(timespec="seconds")
            holder = {"pid": os.getpid(), "host": platform.node(), "since": since}
            (run_dir / _HOLDER).write_bytes(encode_text(json.dumps(holder) + "\n"))
    try:
        yield
    finally:
        with suppress(OSError):  # the run is over; what is left here is no part of it
            (run_dir / _HOLDER).unlink(missing_ok=True)
            if all(one.name in LOCKS for one in run_dir.iterdir()):
                path.unlink(missing_ok=True)
                run_dir.rmdir()
        with suppress(OSError):
            lock.release()
