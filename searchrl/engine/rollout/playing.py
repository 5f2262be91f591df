"""A finished episode: its tokens, its strings and its scores. What stops those under way.

Owns what is read off a scored episode: the rewards and the scores of its turns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from searchrl.core.episode import Episode, StopReason
from searchrl.core.group import Group, settle
from searchrl.core.trajectory import Trajectory
from searchrl.engine.rollout.world import TaskWorld
from searchrl.rewards.scorer import ScoredEpisode


@dataclass(frozen=True, slots=True)
class Rollout:
    """One finished episode: its tokens, its strings and its scores."""

    trajectory: Trajectory
    episode: Episode
    scored: ScoredEpisode
    world: TaskWorld
    reset_options: Mapping[str, Any]

    @property
    def reward(self) -> float | None:
        """The combined reward; None: unscored."""
        return self.scored.reward

    @property
    def is_scored(self) -> bool:
        """Whether it may enter a training step."""
        return self.reward is not None

    @property
    def turn_rewards(self) -> tuple[float, ...]:
        """What the environment gave for each turn; the last one makes up for the other scores."""
        return settle(tuple(turn.reward for turn in self.episode.turns), self.reward or 0.0)

    @property
    def is_cut(self) -> bool:
        """Whether a limit ended the episode, not the environment."""
        return self.episode.stop_reason is not StopReason.ANSWERED

    @property
    def turn_scores(self) -> tuple[float, ...] | None:
        """The process scores of each turn, weighted as the reward expression says; None: none."""
        per_turn = self.scored.per_turn
        if not per_turn:
            return None
        expression = self.world.scorer.schedule.at(self.episode.step)
        weights = {name: weight for weight, name in expression.terms if name is not None}
        return tuple(
            sum(weights.get(name, 0.0) * scores[turn] for name, scores in per_turn.items())
            for turn in range(len(self.episode.turns))
        )


class Interrupted(Exception):
    """The caller's `should_stop` asked to abandon the rollouts in flight."""


Play = Callable[..., "list[Group[Rollout]]"]
"""How a driver plays requests: `RolloutDriver.play`."""

Sharing = Callable[[Play], Play]
"""Has the others of several processes play their part."""
