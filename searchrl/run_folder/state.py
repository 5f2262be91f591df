"""The state of a run: finished, under way, or ended early."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from searchrl.run_folder.checkpoints import list_checkpoints
from searchrl.run_folder.place import JOURNAL
from searchrl.run_folder.reader import Run, read_or_empty


class State(StrEnum):
    """The state of a run."""

    FINISHED = "finished"
    """Its summary is written."""
    RUNNING = "running"
    """The process that recorded last is still there."""
    STOPPED = "stopped"
    """It ended early, and `--resume` of its program continues it."""
    ODD = "not plain"
    """It holds a link or a pipe. Nothing in it is followed, so nothing is known of it."""
    BROKEN = "broken off"
    """It ended before its first checkpoint, and has no journal: nothing can be continued."""


def find_state(run: Run) -> State:
    """The state of a run whose folder is plain."""
    if read_or_empty(lambda: run.summary):
        return State.FINISHED
    if _is_alive(read_or_empty(lambda: run.provenance).get("process")):
        return State.RUNNING
    has_more = list_checkpoints(run.path) or os.path.isfile(run.path / JOURNAL)
    return State.STOPPED if has_more else State.BROKEN


def _is_alive(process: Mapping[str, Any] | None) -> bool:
    """True if a process of this machine is still there; one elsewhere is not looked for."""
    if process is None or process["host"] != platform.node():
        return False
    try:
        os.kill(process["pid"], 0)
    except (ProcessLookupError, OverflowError):  # the second: no process has such a number
        return False
    except OSError:  # it belongs to somebody else
        return True
    return True
