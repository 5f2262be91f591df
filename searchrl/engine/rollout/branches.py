"""Rollouts that begin as one of their group did: the rounds in which an algorithm asks for them.

Owns which rollouts and turns may be continued, and the key of each: a function of that of the group
and of its number alone, so a step that is sampled again is the same one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from searchrl.core.group import Group
from searchrl.engine.rollout.dialogue import Branch, RolloutRequest
from searchrl.engine.rollout.rollout import Rollout, RolloutDriver
from searchrl.engine.sampling.generator import mix_key
from searchrl.errors import PluginError

_BRANCH = 5

Ask = Callable[[Sequence[Group[Rollout]], int], Sequence[tuple[Rollout, int]]]
"""`Hooks.branch` of the algorithm."""


def grow(
    sampler: RolloutDriver,
    groups: Sequence[Group[Rollout]],
    requests: Sequence[RolloutRequest],
    ask: Ask,
    **watched: Any,
) -> list[Group[Rollout]]:
    """The groups with the branches that are asked for, in rounds, until none is.

    `requests` are those of the groups; `watched` goes to `RolloutDriver.run`.

    Raises:
        PluginError: for a rollout or a number of turns that cannot be continued.
    """
    grown, requests = list(groups), list(requests)
    rounds = itertools.count()
    while asked := ask(grown, next(rounds)):
        branches: dict[str, list[Branch]] = {}
        for rollout, num_kept in asked:
            branches.setdefault(rollout.trajectory.group_id, []).append(_cut(rollout, num_kept))
        places = [place for place, group in enumerate(grown) if group.id in branches]
        if len(places) < len(branches):
            raise PluginError(
                "branch() of the algorithm returned a rollout of no group of the step"
            )
        for place in places:
            requests[place] = _extend(requests[place], branches[grown[place].id])
        played = sampler.run([requests[place] for place in places], **watched)
        for place, group in zip(places, played, strict=True):
            grown[place] = Group(group.id, grown[place].rollouts + group.rollouts)
    return grown


def _cut(rollout: Rollout, num_kept: int) -> Branch:
    """The first turns of a rollout, and the tokens before the next one."""
    trajectory, turns = rollout.trajectory, rollout.episode.turns
    own = num_kept - trajectory.num_kept
    if rollout.is_served:
        raise PluginError(f"{trajectory.rollout_id}: an agent acts in it, which cannot act again")
    if not 0 <= own < len(trajectory.turns):
        raise PluginError(
            f"branch() of the algorithm keeps {num_kept} turns of {trajectory.rollout_id}: its own "
            f"begin behind {trajectory.num_kept} of {len(turns)}, so keep that many at least, and "
            f"{len(turns) - 1} at most; ask the rollout that sampled the turns before"
        )
    ids = trajectory.segments[0].ids[: trajectory.turns[own].start]
    num_tokens = sum(turn.stop - turn.start for turn in trajectory.turns[:own])
    num_tokens += trajectory.num_kept_tokens
    return Branch(trajectory.rollout_id, turns[:num_kept], tuple(ids), num_tokens)


def _extend(request: RolloutRequest, branches: Sequence[Branch]) -> RolloutRequest:
    """A request for branches: with a key more for each."""
    first = len(request.rng_keys)
    keys = (mix_key(request.rng_keys[0], _BRANCH, first + n) for n in range(len(branches)))
    return replace(request, rng_keys=(*request.rng_keys, *keys), branches=tuple(branches))
