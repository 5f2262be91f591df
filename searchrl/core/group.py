"""A group: the rollouts of one prompt instance, in one type from the sampler to the packer.

Owns the group and the rollout in it as a learner reads it. It compares no rewards: advantages are
`advantage`, what enters a step is the packer's. The rollout driver makes groups, an algorithm's
`extend` may change them, the learner takes them. Standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Generic, NamedTuple, Protocol, TypeVar

from searchrl.core.episode import Task
from searchrl.core.trajectory import Trajectory

R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Group(Generic[R_co]):
    """The rollouts of one prompt instance, which are compared with each other.

    `id` is unique within a step, never an index. The rollout driver's rollouts hold the whole
    episode; a learner needs a `Trainable`.
    """

    id: str
    rollouts: tuple[R_co, ...]


class WeightedScore(NamedTuple):
    """Score of a reward component, and its weight in the reward expression."""

    weight: float
    score: float


class Trainable(Protocol):
    """A rollout as learners and algorithms read it."""

    @property
    def trajectory(self) -> Trajectory:
        """Its tokens; its sampler log-probs are needed."""

    @property
    def reward(self) -> float | None:
        """None: unscored, never trained on."""

    @property
    def turn_scores(self) -> tuple[float, ...] | None:
        """One process score per turn, or None."""

    @property
    def turn_rewards(self) -> tuple[float, ...]:
        """Reward of each turn of its own; those of an episode sum to its reward, or to 0."""

    @property
    def is_cut(self) -> bool:
        """True where a limit ended the episode, not the environment."""

    @property
    def components(self) -> Mapping[str, WeightedScore]:
        """Every component of the reward expression that scored it, by name."""

    @property
    def is_served(self) -> bool:
        """True where an agent wrote the prompt: those of its group may differ."""

    @property
    def task(self) -> Task | None:
        """Question, gold answers and the rest of its task; None: unknown."""


T = TypeVar("T", bound=Trainable)


def settle(earned: tuple[float, ...], reward: float) -> tuple[float, ...]:
    """Rewards of turns, with the last one changed so that they add up to the reward.

    >>> settle((-0.5, 0.25), 1.0)
    (-0.5, 1.5)
    """
    return (*earned[:-1], earned[-1] + (reward - sum(earned))) if earned else ()


@dataclass(frozen=True, slots=True)
class TrainItem:
    """A rollout without its episode: for replayed, stored or made-up trajectories."""

    trajectory: Trajectory
    reward: float | None
    turn_scores: tuple[float, ...] | None = None
    is_cut: bool = False
    components: Mapping[str, WeightedScore] = field(default_factory=dict)
    task: Task | None = None
    is_served: bool = False

    @property
    def turn_rewards(self) -> tuple[float, ...]:
        """Zeros, and the reward in the last turn."""
        return settle((0.0,) * len(self.trajectory.turns), self.reward or 0.0)


def make_groups(rollouts: Iterable[T]) -> list[Group[T]]:
    """Rollouts in groups by the `group_id` of their trajectories, in order of first appearance."""
    groups: dict[str, list[T]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.trajectory.group_id, []).append(rollout)
    return [Group(name, tuple(members)) for name, members in groups.items()]


def shuffle_rewards(group: Group[Trainable], rng: Random) -> Group[TrainItem]:
    """Scored rollouts with the scores of one another, in uniformly random order: a control.

    Scores of turns go along where the other rollout has as many turns; else their sum, as the score
    of its last turn. So does the environment's own reward of turns, always. Unscored rollouts stay.
    """
    earners = [rollout for rollout in group.rollouts if rollout.reward is not None]
    drawn = iter(rng.sample(earners, len(earners)))
    shuffled = []
    for rollout in group.rollouts:
        earner = rollout if rollout.reward is None else next(drawn)
        scores, num_turns = earner.turn_scores, len(rollout.trajectory.turns)
        if scores is not None and len(scores) != num_turns:
            scores = settle((0.0,) * num_turns, math.fsum(scores))
        shuffled.append(
            TrainItem(
                rollout.trajectory,
                earner.reward,
                scores,
                rollout.is_cut,
                earner.components,
                rollout.task,
                rollout.is_served,
            )
        )
    return Group(group.id, tuple(shuffled))
