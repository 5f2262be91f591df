"""The contract of a backend: it has jobs of rollouts done by workers, wherever they run."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from threading import Event
from typing import Any, Protocol

Weights = tuple[int, Sequence[Any]]
"""A version, and an array of bytes for each trained tensor; other weights have another version."""


class Worker(Protocol):
    """Plays jobs. A draw depends on the job and the weights alone, so it does not matter which
    worker plays a job, nor whether one has begun to play it before."""

    is_stopped: Event
    """Set where nobody wants the rest of a job: then it raises."""

    def __call__(self, job: bytes, weights: Weights) -> bytes:
        """Play a job with these weights."""

    def close(self) -> None:
        """End what it has in this process; where the process ends, nothing is left to do."""


class Backend(Protocol):
    """Has workers play; made by `factory(make_worker, **settings)`."""

    num_workers: int
    """Jobs that are played at the same time."""

    def run(
        self, jobs: Sequence[bytes], weights: Weights
    ) -> Generator[tuple[int, bytes] | None, None, None]:
        """Yield (place of a job, what a worker made of it) in any order, each job once.

        While none is done, yield None about once a second. Whoever closes the generator wants no
        more of these jobs.

        Raises:
            SearchRLError: a worker's own; or one that says why no worker can play.
        """

    def close(self) -> None:
        """End the workers."""
