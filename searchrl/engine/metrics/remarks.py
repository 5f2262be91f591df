"""What a user should know of the tasks that were played: notes of an environment on its data, and
a metric `signal:NAME` that no episode has.
"""

from __future__ import annotations

from collections.abc import Sequence

from searchrl.engine.rollout.rollout import Rollout
from searchrl.errors import suggest
from searchrl.rewards.components import SIGNAL


def find_remarks(rollouts: Sequence[Rollout]) -> list[str]:
    """A sentence for each note of an environment, and for each signal that no episode has."""
    found = []
    for world in {id(rollout.world): rollout.world for rollout in rollouts}.values():
        found += [f"env '{world.name}': {note}" for note in world.notes]
        own = [rollout.episode.signals for rollout in rollouts if rollout.world is world]
        there = sorted({name for signals in own for name in signals})
        for metric in world.config.metrics:
            name = metric.removeprefix(SIGNAL)
            if metric.startswith(SIGNAL) and name not in there:
                known = suggest(name, there, "It reports none in info['signals'].")
                found.append(
                    f"metric {metric}: no episode of env '{world.name}' ({world.owner}) has a "
                    f"signal {name!r}.{known}"
                )
    return found
