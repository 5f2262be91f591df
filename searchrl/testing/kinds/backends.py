"""Criteria of backends: B1, over jobs of a made-up worker. It needs no model."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event
from typing import Any

import numpy as np

from searchrl.testing.criteria import Problem, criterion, find_missing
from searchrl.testing.kit.subject import Subject

JOBS = [bytes([number]) for number in range(5)]


class Saying:
    """A worker that says which job it was, and with which weights."""

    def __init__(self, device: str | None = None) -> None:
        self.is_stopped = Event()

    def __call__(self, job: bytes, weights: tuple[int, Any]) -> bytes:
        """See `Worker`."""
        return job + bytes([weights[0], *weights[1][0]])

    def close(self) -> None:
        """See `Worker`."""


@criterion("B1")
def _plays_every_job_once(subject: Subject) -> Iterator[Problem]:
    backend: Any = subject.make(Saying)
    try:
        yield from find_missing(backend, "run", "close")
        for version in (1, 2):
            weights = version, [np.full(3, version, np.uint8)]
            arrived = [one for one in backend.run(JOBS, weights) if one is not None]
            if sorted(arrived) != [(n, Saying()(job, weights)) for n, job in enumerate(JOBS)]:
                what = f"of {len(JOBS)} jobs with weights of version {version} it gave {arrived}"
                yield Problem(what, type(backend).run)
    finally:
        backend.close()
