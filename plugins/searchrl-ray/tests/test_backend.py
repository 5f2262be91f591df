"""The backend by itself: jobs of a made-up worker, and what happens when workers are lost."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from searchrl_ray.backend import MAX_LOST, RayBackend

from searchrl import ConfigError, SearchRLError
from searchrl.contracts import Backend

BACKEND: type[Backend] = RayBackend
WEIGHTS = 3, [np.zeros(4, np.uint8)]
JOBS = [bytes([number]) for number in range(4)]


def make_worker(play: Callable[..., bytes], *more: Any) -> Any:
    return partial(play, *more)


def play_slowly(folder: Path, job: bytes, weights: Any) -> bytes:
    (folder / f"{job[0]}-{ray.get_runtime_context().get_node_id()}").touch()
    time.sleep(1.5)
    return job


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


def test_a_node_that_dies_in_the_middle_loses_no_job_and_gives_none_twice(
    cluster: Any, tmp_path: Path
) -> None:
    backend = RayBackend(partial(make_worker, play_slowly, tmp_path), workers=2, cpus=1)
    arrived, is_killed = [], False
    for one in backend.run(JOBS, WEIGHTS):
        if one is None and not is_killed and len(list(tmp_path.iterdir())) == 2:
            cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
            is_killed = True
        arrived += [] if one is None else [one]
    assert is_killed
    assert sorted(arrived) == list(enumerate(JOBS))
    assert len(list(tmp_path.iterdir())) == len(JOBS) + 1  # one was begun twice
    backend.close()
    cluster.add_node(num_cpus=1)


def test_a_worker_that_ends_begins_anew_and_one_that_cannot_play_is_said(
    cluster: Any, tmp_path: Path
) -> None:
    backend = RayBackend(partial(make_worker, play_once, tmp_path), cpus=0.1)
    assert sorted(filter(None, backend.run(JOBS, WEIGHTS))) == list(enumerate(JOBS))
    backend.close()
    backend = RayBackend(partial(make_worker, fail), cpus=0.1)
    with pytest.raises(ConfigError, match="questions.jsonl"):
        list(backend.run(JOBS, WEIGHTS))
    backend.close()
    backend = RayBackend(partial(make_worker, die), cpus=0.1)
    with pytest.raises(SearchRLError, match=f"{MAX_LOST} Ray workers were lost.*batch_size"):
        list(backend.run(JOBS, WEIGHTS))
    backend.close()


def test_no_room_for_the_workers_names_the_settings(cluster: Any) -> None:
    with pytest.raises(ConfigError, match=r"no room for 3 workers.*scale\.backend\.workers"):
        RayBackend(partial(make_worker, die), workers=3, timeout_s=2)
