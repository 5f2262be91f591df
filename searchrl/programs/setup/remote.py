"""Rollouts that a backend has played by its workers, each with a copy of worlds and policy.

Owns what travels: weights as bytes, requests without their worlds, groups as `sharing` packs them.
Where workers run, and what happens if one ends, is the backend's matter.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import asdict, fields
from threading import Event
from typing import Any, Literal

import torch

from searchrl.config import build_config
from searchrl.contracts.backends import Backend, Weights
from searchrl.core.group import Group
from searchrl.engine.learning.sharing import pack_group, unpack_group
from searchrl.engine.model.policy import Policy
from searchrl.engine.rollout.dialogue import RolloutRequest
from searchrl.engine.rollout.drivers import make_driver
from searchrl.engine.rollout.rollout import Interrupted, Rollout, RolloutDriver
from searchrl.engine.rollout.world import TaskWorld
from searchrl.engine.rollout.worlds import build_indexes, make_worlds
from searchrl.engine.sampling.slot_generator import SlotStats
from searchrl.plugins import load_plugins
from searchrl.programs.setup.planning import Plan

Purpose = Literal["rollout", "eval"]
"""The section of the config that says how tokens are drawn."""

_SENT = [f.name for f in fields(RolloutRequest) if f.name not in ("world", "script")]


class RemoteDriver(RolloutDriver):
    """A driver whose requests a backend plays; its own generator is there for checks."""

    def __init__(
        self, driver: RolloutDriver, backend: Backend, worlds: Sequence[TaskWorld], purpose: Purpose
    ) -> None:
        super().__init__(driver.generator, driver.codec, driver.limits, driver.deterministic)
        self.backend, self.worlds, self.purpose = backend, worlds, purpose
        self.weights: Weights = (-1, ())

    def sync(self, policy: Policy) -> int:
        """Take a copy of the weights; what is played from now on is played with them."""
        if self.weights[0] != policy.version:
            copies = (p.detach().to("cpu", copy=True).reshape(-1) for p in policy.parameters)
            self.weights = policy.version, [copy.view(torch.uint8).numpy() for copy in copies]
        return super().sync(policy)

    def run(
        self,
        requests: Sequence[RolloutRequest],
        *,
        on_progress: Callable[[int, int], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> list[Group[Rollout]]:
        """See `RolloutDriver.run`; progress is that of whole jobs, one for each worker."""
        size = self.backend.num_workers
        shares = [range(n, len(requests), size) for n in range(min(size, len(requests)))]
        jobs = [
            pickle.dumps((self.purpose, [self._pack(requests[n]) for n in share]))
            for share in shares
        ]
        groups: dict[int, Group[Rollout]] = {}
        with closing(self.backend.run(jobs, self.weights)) as arriving:
            for arrived in arriving:
                if should_stop is not None and should_stop():
                    raise Interrupted
                if arrived is None:
                    continue
                share = shares[arrived[0]]
                played, counts = pickle.loads(arrived[1])
                for n, data in zip(share, played, strict=True):
                    groups[n] = unpack_group(data, requests[n])
                for name, count in counts.items():  # in the metrics as if sampled here
                    setattr(self.stats, name, getattr(self.stats, name, 0) + count)
                if on_progress is not None:
                    total = sum(len(request.samples) for request in requests)
                    on_progress(len(groups) * total // len(requests), total)
        return [groups[n] for n in range(len(requests))]

    def _pack(self, request: RolloutRequest) -> tuple[int, dict[str, Any]]:
        place = self.worlds.index(request.world)
        return place, {name: getattr(request, name) for name in _SENT}


class Player:
    """A worker in this process, for the config of a run as plain values."""

    def __init__(self, config: Mapping[str, Any], device: str | None = None) -> None:
        run = build_config(config)
        registry = load_plugins(run.plugins, strict=run.strict_plugins, must_load=True)
        plan = Plan.of(run, None if device is None else torch.device(device))
        self.worlds = make_worlds(run, registry)
        build_indexes(self.worlds, lambda *phase: None)
        self.policy = plan.load_policy(trainable=True)
        self.drivers = {
            "rollout": make_driver(self.policy, run, registry, run.rollout),
            "eval": make_driver(self.policy, run, registry, run.eval),
        }
        self.is_stopped = Event()
        """Set when nobody wants the rest of a job."""
        self._version = -1

    def __call__(self, job: bytes, weights: Weights) -> bytes:
        """Play a job; see `contracts.backends.Worker`."""
        purpose, packed = pickle.loads(job)
        driver = self.drivers[purpose]
        version, arrays = weights
        if version != self._version:
            with torch.no_grad():
                for parameter, data in zip(self.policy.parameters, arrays, strict=True):
                    parameter.copy_(torch.tensor(data).view(parameter.dtype).view_as(parameter))
            self.policy.version = self._version = version
        driver.sync(self.policy)
        requests = [RolloutRequest(world=self.worlds[n], **values) for n, values in packed]
        played = driver.run(requests, should_stop=self.is_stopped.is_set)
        counts = {}
        if isinstance(driver.stats, SlotStats):
            counts = asdict(driver.stats)
            driver.stats.restart()
        return pickle.dumps(([pack_group(group) for group in played], counts))

    def close(self) -> None:
        """Close its environments."""
        for world in self.worlds:
            world.close()


class CopyBackend:
    """The worker is in this process: a second copy of the policy, and of the environments.

    Args:
        device: of the copy, such as `cuda:1`; None: that of the policy.
    """

    num_workers = 1

    def __init__(self, make_worker: Callable[..., Player], *, device: str | None = None) -> None:
        self._worker = make_worker(device)

    def run(
        self, jobs: Sequence[bytes], weights: Weights
    ) -> Generator[tuple[int, bytes] | None, None, None]:
        """See `Backend.run`."""
        self._worker.is_stopped.clear()
        with ThreadPoolExecutor(1) as pool:
            try:
                for place, job in enumerate(jobs):
                    playing = pool.submit(self._worker, job, weights)
                    while not wait([playing], timeout=1.0).done:
                        yield None
                    yield place, playing.result()
            finally:
                self._worker.is_stopped.set()

    def close(self) -> None:
        """See `Backend.close`."""
        self._worker.close()
