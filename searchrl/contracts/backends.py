"""The contract of a backend: it has jobs of rollouts done by workers, wherever they run."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from threading import Event
from typing import Any, Protocol

Weights = tuple[int, Sequence[Any]]
"""A version, and the bytes of each trained tensor; other weights have another version."""


class Worker(Protocol):
    """Plays jobs. A draw depends on the job and the weights alone, so any worker may play a job,
    also one that another worker began."""

    is_stopped: Event
    """Set where the rest of a job is not wanted: the worker then raises."""

    def __call__(self, job: bytes, weights: Weights) -> bytes:
        """Play a job with these weights."""

    def close(self) -> None:
        """Free what it holds in this process. It is not called where the process ends."""


class Backend(Protocol):
    """Runs workers; made by `factory(make_worker, **settings)`."""

    num_workers: int
    """Jobs that are played at the same time."""

    def run(
        self, jobs: Sequence[bytes], weights: Weights
    ) -> Generator[tuple[int, bytes] | None, None, None]:
        """Yield (place of a job, result of a worker) in any order, each job once.

        While none is done, yield None about once a second. Closing the generator ends these jobs.

        Raises:
            SearchRLError: of a worker; or no worker can play.
        """

    def close(self) -> None:
        """End the workers."""
