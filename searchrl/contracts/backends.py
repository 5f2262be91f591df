"""The contract of a backend: it has jobs of rollouts done by workers, wherever they run."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol

Weights = tuple[int, Sequence[Any]]
"""A version, and an array of bytes for each trained tensor; other weights have another version."""
Worker = Callable[[bytes, Weights], bytes]
"""Plays a job with these weights. A draw depends on the job and the weights alone, so it does not
matter which worker plays it, nor whether one has begun to play it before."""


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
