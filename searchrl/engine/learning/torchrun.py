"""Place of a process that torchrun started, among the others.

Owns the environment variables; imports no torch, so that a command knows early whether it is the
one that prints. `engine.learning.workers` owns the messages between processes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """Rank of this process and number of processes; by default the only one."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    """Processes on this node."""

    @property
    def is_first(self) -> bool:
        """True if this process writes and prints for all."""
        return self.rank == 0


ONLY = Place()
"""Place of a process that torchrun did not start."""


def read_place(environ: Mapping[str, str] | None = None) -> Place:
    """The place of this process."""
    environ = os.environ if environ is None else environ
    # Other launchers set RANK and WORLD_SIZE, too; without an address no process can be reached.
    if not {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"} <= environ.keys():
        return ONLY
    size = int(environ["WORLD_SIZE"])
    local_size = int(environ.get("LOCAL_WORLD_SIZE", size))
    return Place(int(environ["RANK"]), size, int(environ["LOCAL_RANK"]), local_size)
