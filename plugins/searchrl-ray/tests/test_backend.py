"""The backend by itself, with a made-up worker; nodes that are lost are in `test_runs`."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from searchrl_ray.backend import MAX_LOST, RayBackend

from searchrl import ConfigError, SearchRLError
from searchrl.contracts import Backend

BACKEND: type[Backend] = RayBackend
WEIGHTS = 3, [np.zeros(4, np.uint8)]
JOBS = [bytes([number]) for number in range(4)]


def make_worker(play: Callable[..., bytes], *more: Any) -> Any:
    return partial(play, *more)


def play_once(folder: Path, job: bytes, weights: Any) -> bytes:
    """End the process at the first job."""
    try:
        (folder / "has-died").touch(exist_ok=False)
    except FileExistsError:
        return job
    os._exit(1)


def die(job: bytes, weights: Any) -> bytes:
    os._exit(1)


def fail(job: bytes, weights: Any) -> bytes:
    raise ConfigError("no such file: questions.jsonl")


def test_a_worker_that_ends_begins_anew_and_loses_no_job(cluster: Any, tmp_path: Path) -> None:
    backend = RayBackend(partial(make_worker, play_once, tmp_path), cpus=0.1)
    assert sorted(filter(None, backend.run(JOBS, WEIGHTS))) == list(enumerate(JOBS))
    backend.close()


@pytest.mark.parametrize(
    ("play", "error", "says"),
    [
        (fail, ConfigError, "questions.jsonl"),
        (die, SearchRLError, f"{MAX_LOST} Ray workers were lost.*batch_size"),
    ],
)
def test_a_job_that_cannot_be_played_is_said(
    cluster: Any, play: Any, error: type[Exception], says: str
) -> None:
    backend = RayBackend(partial(make_worker, play), cpus=0.1)
    with pytest.raises(error, match=says):
        list(backend.run(JOBS, WEIGHTS))
    backend.close()


def test_no_room_for_the_workers_names_the_settings(cluster: Any) -> None:
    with pytest.raises(ConfigError, match=r"no room for 3 processes.*scale\.backend\.workers"):
        RayBackend(partial(make_worker, die), workers=3, timeout_s=2)
