"""The backend by itself, with a made-up worker; nodes that are lost are in `test_runs`."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from searchrl_ray.backend import MAX_LOST, RayBackend, connect

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


LISTENERS = """\
import psutil, ray
from searchrl_ray.backend import connect
connect(None)
for process in psutil.Process().children(recursive=True):
    for one in process.net_connections():
        if one.status == "LISTEN":
            print(one.laddr.ip.removeprefix("::ffff:"))
ray.shutdown()
"""


def test_a_cluster_of_its_own_is_reached_from_this_machine_alone() -> None:
    command = [sys.executable, "-c", LISTENERS]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert set(run.stdout.split()) == {"127.0.0.1"}


@pytest.mark.parametrize(("mode", "num_warnings"), [("disabled", 1), ("token", 0)])
def test_a_cluster_without_a_token_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, mode: str, num_warnings: int
) -> None:
    monkeypatch.setattr(ray, "init", lambda **settings: None)
    monkeypatch.setenv("RAY_AUTH_MODE", mode)
    with warnings.catch_warnings(record=True) as said:
        connect("head:6379")
    assert len(said) == num_warnings
    assert all("head:6379" in str(one) and "RAY_AUTH_MODE=token" in str(one) for one in said)
