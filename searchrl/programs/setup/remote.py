"""Rollouts that a backend has played by its workers, each with a copy of worlds and policy.

Owns what travels: weights as bytes, requests without their worlds, groups as `sharing` packs them.
Where workers run, and what happens if one ends, is the backend's matter.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, fields
from typing import Any, Literal

import torch

from searchrl.config import build_config
from searchrl.contracts.backends import Backend, Weights, Worker
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

_SENT = [f.name for f in fields(RolloutRequest) if f.name not in ("world", "level", "script")]


class RemoteDriver(RolloutDriver):
    """A driver whose requests a backend plays; its own generator is there for checks."""

    def __init__(
        self, own: RolloutDriver, backend: Backend, worlds: Sequence[TaskWorld], purpose: Purpose
    ) -> None:
        super().__init__(own.generator, own.codec, own.limits, own.deterministic)
        self.backend, self.worlds, self.purpose = backend, worlds, purpose
        self.weights: Weights = (-1, ())

    def sync(self, policy: Policy) -> int:
        """Take a copy of the weights; what is played from now on is played with them."""
        if self.weights[0] != policy.version:
            copies = (p.detach().to("cpu", copy=True).reshape(-1) for p in policy.parameters)
            self.weights = policy.version, [copy.view(torch.uint8).numpy() for copy in copies]
        return super().sync(policy)

    def play(
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
                    total = sum(len(request.rng_keys) for request in requests)
                    on_progress(len(groups) * total // len(requests), total)
        return [groups[n] for n in range(len(requests))]

    def _pack(self, request: RolloutRequest) -> tuple[Any, ...]:
        values = {name: getattr(request, name) for name in _SENT}
        return (*request.place_in(self.worlds), values)


def make_worker(config: Mapping[str, Any], device: str | None = None) -> Worker:
    """A worker in this process, for the config of a run as plain values.

    Raises whatever is wrong with plugins, data or weights here.
    """
    run = build_config(config)
    registry = load_plugins(run.plugins, strict=run.strict_plugins, must_load=True)
    plan = Plan.of(run, None if device is None else torch.device(device))
    worlds = make_worlds(run, registry)
    build_indexes(worlds, lambda *phase: None)
    policy = plan.load_policy(trainable=True)
    drivers = {
        "rollout": make_driver(policy, run, registry, run.rollout),
        "eval": make_driver(policy, run, registry, run.eval),
    }
    held = [-1]

    def play(job: bytes, weights: Weights) -> bytes:
        purpose, packed = pickle.loads(job)
        driver = drivers[purpose]
        version, arrays = weights
        if version != held[0]:
            with torch.no_grad():
                for own, data in zip(policy.parameters, arrays, strict=True):
                    own.copy_(torch.tensor(data).view(own.dtype).view_as(own))
            policy.version = held[0] = version
        driver.sync(policy)
        requests = [
            RolloutRequest(world=worlds[n], level=worlds[n].levels.get(level), **values)
            for n, level, values in packed
        ]
        played = [pack_group(group) for group in driver.run(requests)]
        counts = {}
        if isinstance(driver.stats, SlotStats):
            counts = asdict(driver.stats)
            driver.stats.restart()
        return pickle.dumps((played, counts))

    return play


class CopyBackend:
    """The worker is in this process: a second copy of the policy, and of the environments.

    Args:
        device: of the copy, such as `cuda:1`; None: that of the policy.
    """

    num_workers = 1

    def __init__(self, make_worker: Callable[..., Worker], *, device: str | None = None) -> None:
        self._worker = make_worker(device)

    def run(
        self, jobs: Sequence[bytes], weights: Weights
    ) -> Generator[tuple[int, bytes] | None, None, None]:
        """See `Backend.run`."""
        for place, job in enumerate(jobs):
            yield place, self._worker(job, weights)

    def close(self) -> None:
        """See `Backend.close`."""
