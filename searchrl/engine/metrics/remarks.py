"""Remarks on the tasks that were played: notes of an environment on its data, a metric
`signal:NAME` that no episode has, and an agent whose requests seldom go on with a segment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from searchrl.engine.rollout.rollout import Rollout
from searchrl.engine.rollout.world import TaskWorld, attribute_of
from searchrl.errors import suggest
from searchrl.rewards.answers import find_blurred
from searchrl.rewards.components import SIGNAL

MANY_FORKS = 0.2
"""Share of the requests that may begin another segment before it is said."""


def find_remarks(rollouts: Sequence[Rollout]) -> list[str]:
    """A sentence for each note of an environment, and for each signal that no episode has."""
    notes = []
    for world in {id(rollout.world): rollout.world for rollout in rollouts}.values():
        notes += [f"env '{world.name}': {note}" for note in world.notes]
        signals_of = [rollout.episode.signals for rollout in rollouts if rollout.world is world]
        there = sorted({name for signals in signals_of for name in signals})
        for metric in world.config.metrics:
            name = metric.removeprefix(SIGNAL)
            if metric.startswith(SIGNAL) and name not in there:
                known = suggest(name, there, "It reports none in info['signals'].")
                notes.append(
                    f"metric {metric}: no episode of {world.who['env']} has a "
                    f"signal {name!r}.{known}"
                )
    return notes


def find_blurred_golds(worlds: Sequence[TaskWorld], normalization: str) -> Iterator[str]:
    """A sentence for each environment whose accepted answers N1 cannot tell from wrong ones."""
    for world in worlds if normalization == "N1" else ():
        golds = world.ask(lambda env: [*attribute_of(env, "golds")])
        blurred = find_blurred(golds)
        for gold, wrong in [*blurred.items()][:1]:
            yield (
                f"env '{world.name}': N1, by which answers are compared, cannot tell "
                f"{len(blurred):,} of {len({*chain(*golds)}):,} accepted answers from a plausible "
                f"wrong one, such as {gold!r} from {wrong!r}. N3 can: --set normalization=N3"
            )


def find_forks(rollouts: Sequence[Rollout]) -> list[str]:
    """A sentence for each task whose agent begins another segment with many of its requests."""
    notes = []
    for world in {id(one.world): one.world for one in rollouts if one.world.is_served}.values():
        trajectories = [one.trajectory for one in rollouts if one.world is world]
        forks = [(reason, turn, one) for one in trajectories for turn, reason in one.forks]
        share = len(forks) / max(1, sum(len(one.turns) for one in trajectories))
        if share <= MANY_FORKS:
            continue
        reason, count = Counter(reason for reason, *_ in forks).most_common(1)[0]
        turn, example = next((turn, one) for why, turn, one in forks if why == reason)
        remedies = world.ask(lambda env: attribute_of(env, "remedies", {}))
        notes.append(
            f"env '{world.name}': {share:.0%} of the agent's requests began another segment, most "
            f"often for the reason '{reason}' ({count} of {len(forks)}), such as request "
            f"{turn + 1} of rollout {example.rollout_id}. {remedies.get(reason, '')}".rstrip()
        )
    return notes
