"""`at2po`: surprising turns are begun anew, and turns have values."""

from __future__ import annotations

from collections import Counter
from functools import partial
from statistics import fmean
from typing import Annotated, Any, Literal

from pydantic import Field

from searchrl.algorithms import Algorithm, Column, StepScores, ppo_clip_loss
from searchrl_credit.parts import Forest, normalise, to_columns, within
from searchrl_credit.trees import Asked, Branching, Count, group_values, turns_of


def make_at2po(
    *,
    chains: Count = 10,
    expansions: Count = 6,
    rounds: Count = 2,
    penalty: Annotated[float, Field(ge=0)] = 0.05,
    against: Literal["group", "siblings"] = "group",
) -> Algorithm:
    """AT2PO (arXiv 2601.04767): surprising turns are begun anew, and turns have values.

    A leaf's value is its reward, normalised in the group; a turn's is the mean over the leaves
    behind it. The loss is the clipped one of GRPO, not the paper's, which has one ratio per turn.

    Args:
        chains: rollouts of a prompt that begin anew.
        expansions: turns of a group that are begun anew in each round: the most surprising ones.
        rounds: how often that is done.
        penalty: nats that each earlier expansion takes from a turn's surprise, which is the mean
            of -log p of its tokens.
        against: a turn's advantage is its value (`group`, as the published code has it), or its
            value minus the mean over the turns that were begun at the same place (`siblings`).
    """
    hooks = Surprising(chains, expansions, rounds, penalty, against)
    return Algorithm("at2po", hooks.advantages, ppo_clip_loss, hooks=hooks)


class Surprising(Branching):
    """Branches before turns whose tokens were improbable."""

    def __init__(
        self, chains: int, expansions: int, rounds: int, penalty: float, against: str
    ) -> None:
        super().__init__(chains)
        self.expansions, self.rounds = expansions, rounds
        self.penalty, self.against = penalty, against

    def choose(self, rollouts: list[Any], number: int) -> Asked:
        """Return the turns, but the last of each path, with the greatest surprise."""
        if number >= self.rounds:
            return []
        forest = Forest(rollouts)
        expanded = Counter(place_of(forest, one, one.trajectory.num_kept) for one in rollouts)
        found = list[tuple[float, Any, int]]()
        for one in rollouts:
            for turn in turns_of(one)[:-1] if one.is_scored and not one.is_served else ():
                own = one.trajectory.turns[turn - one.trajectory.num_kept]
                logps = one.trajectory.segments[0].logps[own.start : own.stop]
                more = expanded[place_of(forest, one, turn)] if turn else 0
                found.append((-fmean(logps) - self.penalty * more, one, turn))
        found.sort(key=lambda row: -row[0])
        return [(one, turn) for _, one, turn in found[: self.expansions]]

    def advantages(self, step: StepScores) -> list[Column]:
        """Return the values of turns, less those of their siblings if that is asked for."""
        rows, forest = group_values(step), Forest(step.rollouts)
        if self.against == "siblings":
            rollouts = zip(step.rollouts, step.group_ids, rows, strict=True)
            places = [
                (group, place_of(forest, one, turn))
                for one, group, row in rollouts
                for turn, value in zip(turns_of(one), row, strict=True)
                if value is not None
            ]
            values = [value for row in rows for value in row if value is not None]
            made = iter(within(places, values, partial(normalise, divides=False)))
            rows = [[None if value is None else next(made) for value in row] for row in rows]
        return to_columns(rows)


def place_of(forest: Forest, rollout: Any, turn: int) -> tuple[str, int]:
    """The place at which a turn of an episode begins: equal for turns begun there anew."""
    return (forest.sampler(rollout, turn - 1), turn) if turn else ("", 0)
