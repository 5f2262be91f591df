"""What a policy without tokens chose: the share of each action, and the least likely one.

Owns which choices are counted for which figure. A choice is free if another action was legal, too:
a forced one says nothing of the policy, so the figures of a collapse are those of free choices.
The shares become metrics in `metrics`, the caller. No torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from searchrl.core.episode import StopReason
from searchrl.engine.episodes.playing import Rollout

ACTION = "action/"
"""What the share of an action among all choices begins with."""
FREE_ACTION = "free_action/"
"""The same among the choices in which another action was legal."""
ENDING = "ending_choices"
LEAST = "least_action_p"


class Share(NamedTuple):
    """A share of choices: the metric, the rollout of each choice, and whether it is counted."""

    name: str
    rollouts: list[Rollout]
    values: list[float]


class _Choice(NamedTuple):
    rollout: Rollout
    action: int
    is_free: bool
    is_last: bool
    """Whether the environment ended the episode after it."""


def has_choices(rollouts: Sequence[Rollout]) -> bool:
    """Whether a policy without tokens played."""
    return any(r.trajectory.views for r in rollouts)


def share_actions(rollouts: Sequence[Rollout]) -> Iterator[Share]:
    """The share of each action, of actions that nobody took, too; none without choices.

    Tasks of one run offer the same actions. `ENDING` is the share of free choices after which the
    environment ended the episode.
    """
    made = list(_list_choices(rollouts))
    if not made:
        return
    free = [one for one in made if one.is_free]
    names = made[0].rollout.world.space.actions
    for start, counted in ((ACTION, made), (FREE_ACTION, free)):
        of = [one.rollout for one in counted]
        for number, name in enumerate(names):
            yield Share(start + name, of, [float(one.action == number) for one in counted])
    yield Share(ENDING, [one.rollout for one in free], [float(one.is_last) for one in free])


def find_least(rollouts: Sequence[Rollout]) -> tuple[float, int] | None:
    """The smallest probability that a legal action had, and in how many free choices; or None."""
    found = [
        min(p for p, is_legal in zip(probs, view.legal, strict=True) if is_legal)
        for r in rollouts
        for view, probs in zip(r.trajectory.views, r.trajectory.probs, strict=True)
        if probs and sum(view.legal) > 1
    ]
    return (min(found), len(found)) if found else None


def _list_choices(rollouts: Sequence[Rollout]) -> Iterator[_Choice]:
    for r in rollouts:
        views, ids = r.trajectory.views, r.trajectory.ids
        ends = len(ids) - 1 if r.episode.stop_reason is StopReason.ANSWERED else -1
        for place, (view, action) in enumerate(zip(views, ids, strict=bool(views))):
            yield _Choice(r, action, sum(view.legal) > 1, place == ends)
