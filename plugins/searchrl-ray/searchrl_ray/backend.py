"""The backend `ray`: each worker is an actor in a bundle of one placement group.

Owns where workers run and what happens when one is lost: its job is played by another one, and a
result is taken once. Nothing of a job is known here, but that it may be played again.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from typing import Annotated, Any, Literal

import ray
from pydantic import Field
from ray._private import ray_constants
from ray.exceptions import RayError, RayTaskError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from searchrl import ConfigError, SearchRLError
from searchrl.contracts import Address

MAX_LOST = 3
"""Workers that may be lost with one job: another would be lost with it, too."""
TICK_S = 1.0
"""Time between two questions whether to wait on."""

Weights = tuple[int, Sequence[Any]]
Worker = Callable[[bytes, Weights], bytes]


class Player:
    """An actor with a worker, made when it is first needed.

    Not in `__init__`: only errors of a method reach its caller.
    """

    def __init__(self, make_worker: Callable[[], Worker]) -> None:
        self._make = make_worker
        self._worker: Worker | None = None

    def start(self) -> None:
        """Make the worker, if this process has none yet."""
        self._worker = self._worker or self._make()

    def play(self, job: bytes, weights: Weights) -> bytes:
        """Play a job."""
        self.start()
        assert self._worker is not None
        return self._worker(job, weights)


class RayBackend:
    """Rollout workers in a Ray cluster: the one of `RAY_ADDRESS`, or a new one on this machine.

    Args:
        workers: actors, each with a copy of the policy and of the environments.
        cpus: CPUs that Ray sets aside for each.
        gpus: GPUs for each; below 1, several workers share one.
        address: of the cluster's head, `host:port`; `auto`: the one that runs on this machine.
        strategy: how the placement group spreads workers over nodes.
        timeout_s: seconds to wait for room in the cluster, and for a first worker when all of them
            are lost.

    Raises:
        ConfigError: the cluster cannot be reached, or has no room for the workers.
        SearchRLError: whatever a worker says while it is made.
    """

    def __init__(
        self,
        make_worker: Callable[[], Worker],
        *,
        workers: Annotated[int, Field(ge=1)] = 1,
        cpus: Annotated[float, Field(ge=0)] = 1.0,
        gpus: Annotated[float, Field(ge=0)] = 0.0,
        address: Address | None = None,
        strategy: Literal["SPREAD", "PACK", "STRICT_SPREAD", "STRICT_PACK"] = "SPREAD",
        timeout_s: Annotated[float, Field(gt=0)] = 300.0,
    ) -> None:
        self.num_workers = workers
        self._timeout_s = timeout_s
        self._is_own = not ray.is_initialized()
        if self._is_own:
            connect(address)
        remedy = "Lower scale.backend.workers, .cpus or .gpus"
        try:
            self._group = reserve(workers, {"CPU": cpus, "GPU": gpus}, strategy, timeout_s, remedy)
        except ConfigError:
            if self._is_own:
                ray.shutdown()
            raise
        # An actor whose process or node is gone begins anew, wherever its bundle is then.
        self._workers: list[Any] = [
            ray.remote(Player)
            .options(
                max_restarts=-1,
                num_cpus=cpus,
                num_gpus=gpus,
                scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, bundle),
            )
            .remote(make_worker)
            for bundle in range(workers)
        ]
        self._lost: set[Any] = set()
        self._sent: tuple[int, Any] = (-1, None)
        try:
            ray.get([worker.start.remote() for worker in self._workers])
        except RayTaskError as error:
            self.close()
            raise cause_of(error) from error
        except RayError as error:
            self.close()
            raise SearchRLError(
                f"a Ray worker could not be started: {error}. Every node needs SearchRL, "
                "searchrl-ray and the plugins of the run, in the same versions"
            ) from error

    def run(
        self, jobs: Sequence[bytes], weights: Weights
    ) -> Generator[tuple[int, bytes] | None, None, None]:
        """See `Backend.run`; weights travel once to each node.

        Raises:
            SearchRLError: a worker's own; or a job with which worker after worker is lost; or no
                worker is left.
        """
        if self._sent[0] != weights[0]:
            self._sent = weights[0], ray.put(weights)
        waiting, losses = deque(range(len(jobs))), Counter[int]()
        idle = deque(worker for worker in self._workers if worker not in self._lost)
        # What each worker does now: the place of its job; None: it begins anew.
        doing: dict[Any, tuple[Any, int | None]] = {w.start.remote(): (w, None) for w in self._lost}
        heard = time.monotonic()
        while waiting or any(place is not None for _, place in doing.values()):
            while idle and waiting:
                worker, place = idle.popleft(), waiting.popleft()
                doing[worker.play.remote(jobs[place], self._sent[1])] = worker, place
            done, _ = ray.wait([*doing], num_returns=1, timeout=TICK_S)
            if len(self._lost) == len(self._workers) and time.monotonic() - heard > self._timeout_s:
                raise SearchRLError(
                    f"no Ray worker is left, and none came back for {self._timeout_s:g} s. Look at "
                    "`ray status`; then continue with: searchrl train --resume RUN"
                )
            if not done:
                yield None
                continue
            worker, at = doing.pop(done[0])
            try:
                made: Any = ray.get(done[0])
            except RayTaskError as error:
                raise cause_of(error) from error
            except RayError as error:  # the worker is lost, or its node with what it had made
                self._lost.add(worker)
                if at is not None:
                    waiting.appendleft(at)
                    losses[at] += 1
                    if losses[at] == MAX_LOST:
                        raise SearchRLError(
                            f"{MAX_LOST} Ray workers were lost while they played the same "
                            f"rollouts; the last one: {error}. If memory ran out, lower "
                            "rollout.batch_size or give each worker more room; the log is in "
                            "/tmp/ray/session_latest/logs"
                        ) from error
                else:
                    time.sleep(TICK_S)  # its process does not run yet
                doing[worker.start.remote()] = worker, None
                yield None
                continue
            heard = time.monotonic()
            self._lost.discard(worker)
            idle.append(worker)
            if at is not None:
                yield at, made

    def close(self) -> None:
        """End the workers and leave the cluster; one that was started here ends."""
        for worker in self._workers:
            ray.kill(worker)
        remove_placement_group(self._group)
        if self._is_own:
            ray.shutdown()


def reserve(
    count: int, bundle: dict[str, float], strategy: str, timeout_s: float, remedy: str
) -> PlacementGroup:
    """Room for `count` processes in the cluster; ConfigError with the `remedy` if it has none."""
    wanted = {name: number for name, number in bundle.items() if number}
    bundles = [wanted or {"CPU": 0.001}] * count  # Ray takes no empty ones
    group: PlacementGroup = placement_group(bundles, strategy=strategy)
    if group.wait(timeout_s):
        return group
    remove_placement_group(group)
    found: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    has = {name: found.get(name, 0.0) for name in bundle}
    raise ConfigError(
        f"the Ray cluster has no room for {count} processes of {bundle} ({strategy}): it has "
        f"{has}. {remedy}, or add nodes"
    )


def connect(address: str | None, *, is_heard: bool = False) -> None:
    """Join a cluster, or start one that only this machine reaches.

    `is_heard`: what its processes print is printed here. `ConfigError`: it cannot be reached.
    """
    place = address or os.environ.get("RAY_ADDRESS") or "local"
    known = ray_constants.ENABLE_RAY_CLUSTER
    # Ray has a handler of its own, which would end a run without its checkpoint.
    handler = signal.getsignal(signal.SIGTERM)
    try:
        # Without it, as on macOS, Ray's nodes are on the loopback interface alone.
        ray_constants.ENABLE_RAY_CLUSTER = is_wide = known and place != "local"
        ray.init(address=place, log_to_driver=is_heard, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"scale.backend.address = {address!r}: no Ray cluster answers there ({error}). Start "
            "one with `ray start --head`, or leave the address out"
        ) from error
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = known
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)
    if is_wide and os.environ.get("RAY_AUTH_MODE", "").lower() != "token":
        warnings.warn(
            f"the Ray cluster at {place} is used without a token: whoever reaches its ports runs "
            "code on its nodes. Start its nodes and this run with RAY_AUTH_MODE=token (Ray 2.52 "
            "or newer; `ray get-auth-token --generate` makes one), or keep its ports in a private "
            "network",
            stacklevel=2,
        )


def cause_of(error: RayTaskError) -> BaseException:
    """The message a worker has for the user; else the error with its traceback."""
    return error.cause if isinstance(error.cause, SearchRLError) else error
