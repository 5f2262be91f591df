"""The prompts of a step, shared out between processes.

Owns the split, and which parts of a rollout are sent. A draw depends on the key of its rollout and
on its position alone, so the split changes no result. A `TaskWorld` is not sent: every process has
its own.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from functools import partial

from searchrl.core.group import Group
from searchrl.engine.learning.workers import Workers
from searchrl.engine.rollout.dialogue import RolloutRequest
from searchrl.engine.rollout.rollout import Interrupted, Rollout, RolloutDriver
from searchrl.errors import PluginError
from searchrl.plugins.registry import describe_error


def play_shared(
    play: Callable[..., list[Group[Rollout]]],
    workers: Workers,
    requests: Sequence[RolloutRequest],
    *,
    on_progress: Callable[[int, int], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> list[Group[Rollout]]:
    """Play every n-th prompt here; the other processes play the others.

    The result is the same in every process. See `RolloutDriver.run`; progress is that of this
    process, scaled to all requests.

    Raises:
        Interrupted: in every process, when `should_stop` said so in any.
        PluginError: if an env puts something into an episode that cannot be sent.
        WorkerError: if another process failed.
    """
    total = sum(len(request.samples) for request in requests)

    def progress(done: int, of_own: int) -> None:
        if on_progress is not None:
            on_progress(done * total // of_own, total)

    played: list[Group[Rollout]] = []
    is_interrupted = False
    share = requests[workers.rank :: workers.size]
    try:
        played = play(share, on_progress=progress, should_stop=should_stop)
    except Interrupted:
        is_interrupted = True
    if workers.agree_to_stop(is_interrupted):
        raise Interrupted
    shares = workers.gather([pack_group(group) for group in played])
    return [
        unpack_group(shares[number % workers.size][number // workers.size], request)
        for number, request in enumerate(requests)
    ]


def share_driver(driver: RolloutDriver, workers: Workers) -> RolloutDriver:
    """Return the driver; with several processes, it plays its share."""
    if workers.size > 1:
        driver.run = partial(play_shared, driver.run, workers)  # type: ignore[method-assign]
    return driver


def pack_group(group: Group[Rollout]) -> bytes:
    """Pickle a group without its world; PluginError if an env makes that impossible."""
    sent = [(r.trajectory, r.episode, r.scored, r.reset_options) for r in group.rollouts]
    try:
        return pickle.dumps(sent)
    except Exception as error:  # whatever the __reduce__ of a plugin's object raises
        world = group.rollouts[0].world
        raise PluginError(
            f"{world.who['env']} put something into an episode that cannot be sent "
            f"to another process ({describe_error(error)}): put plain values into its tasks, "
            "actions and signals, or train in one process, without torchrun or a backend"
        ) from error


def unpack_group(data: bytes, request: RolloutRequest) -> Group[Rollout]:
    """Return a packed group, in the world of its request."""
    return Group(
        request.group_id,
        tuple(
            Rollout(trajectory, episode, scored, request.world, reset_options)
            for trajectory, episode, scored, reset_options in pickle.loads(data)
        ),
    )
