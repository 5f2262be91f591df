"""What torchrun tells a process it started: its place among the others.

Owns the environment variables and what they mean; imports no torch, so that a command knows before
it does anything whether it is the one that speaks. What processes say to each other is
`engine.workers`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from searchrl.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Place:
    """Which of how many processes this one is; the only one unless torchrun says otherwise."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    """How many of them are on this node."""

    @property
    def is_first(self) -> bool:
        """Whether this process writes and speaks for all of them."""
        return self.rank == 0


ONLY = Place()
"""Of a process that torchrun did not start."""


def read_place(environ: Mapping[str, str] | None = None) -> Place:
    """The place of this process."""
    environ = os.environ if environ is None else environ
    # Other launchers set RANK and WORLD_SIZE, too; without an address no process can be reached.
    if not {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"} <= environ.keys():
        return ONLY
    size = int(environ["WORLD_SIZE"])
    local_size = int(environ.get("LOCAL_WORLD_SIZE", size))
    return Place(int(environ["RANK"]), size, int(environ["LOCAL_RANK"]), local_size)


def ensure_one_process(program: str) -> None:
    """Refuse to run `program` in several processes: each would do all of it.

    Raises:
        ConfigError: saying how to start it.
    """
    place = read_place()
    if place.size > 1:
        raise ConfigError(
            f"searchrl {program} runs in one process, and torchrun started {place.size}: start it "
            f"without torchrun (only `searchrl train` shares its work)"
        )
