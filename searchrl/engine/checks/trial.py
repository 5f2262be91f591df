"""The trial of a run: its objects, some prompts, and a few short episodes that it plays.

A turn ends after a few tokens and goes to the environment all the same, so that observations
follow. Nothing is scored: a judge may be slow, or cost money.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from searchrl.config.sections import SamplingConfig
from searchrl.core.episode import Episode
from searchrl.core.group import Group, TrainItem
from searchrl.core.trajectory import TurnStop
from searchrl.engine.learning.learner import Learner
from searchrl.engine.model.policy import Policy
from searchrl.engine.model.rendering import RenderedPrompt
from searchrl.engine.model.tolerance import Tolerance
from searchrl.engine.rollout.boundary import begin_episode
from searchrl.engine.rollout.branches import grow
from searchrl.engine.rollout.dialogue import Dialogue, RolloutRequest
from searchrl.engine.rollout.rollout import Rollout, RolloutDriver
from searchrl.engine.rollout.world import TaskWorld
from searchrl.engine.sampling.generator import FinishedTurn, mix_key
from searchrl.rewards.scorer import ScoredEpisode


class Size(NamedTuple):
    """Size of the trial; counts of tasks are those of each task world."""

    num_prompts: int
    num_tasks: int
    group_size: int
    num_turns: int
    turn_tokens: int


class Prompt(NamedTuple):
    """A prompt: from what, and to what it was rendered."""

    instruction: str
    user_text: str
    made: RenderedPrompt


@dataclass(frozen=True)
class Subject:
    """A run that is about to begin. `sampling` is what its configuration asks for."""

    learner: Learner
    sampler: RolloutDriver
    worlds: Sequence[TaskWorld]
    tolerance: Tolerance
    sampling: SamplingConfig
    seed: int
    size: Size

    @property
    def policy(self) -> Policy:
        """The policy that is trained and sampled."""
        return self.learner.policy

    @cached_property
    def prompts(self) -> list[Prompt]:
        """The prompts of some training tasks, evenly spread; what fails is left to the episodes."""
        codec, limits, prompts = self.sampler.codec, self.sampler.limits, []
        budget = codec.budget(limits.max_observation_tokens)
        for request in self._requests(self.size.num_prompts):
            world, options, seed = request.world, request.reset_options, request.env_seed
            begin = functools.partial(
                begin_episode, world=world, options=options, seed=seed, budget=budget
            )
            try:
                user_text = world.ask(begin).prompt
            except Exception:  # a plugin may raise anything
                continue
            instruction = world.protocol.instruction
            made = codec.render_prompt(instruction, user_text, thinking=limits.thinking)
            prompts.append(Prompt(instruction, user_text, made))
        return prompts

    @cached_property
    def rollouts(self) -> list[Rollout]:
        """The first turns of a few episodes of every world; of branches, where there are some."""
        driver = _TrialDriver(self.sampler, self.size)
        requests = self._requests(self.size.num_tasks)
        groups = driver.run(requests)
        if self.learner.algorithm.branches:
            groups = grow(driver, groups, requests, _branch_once)
        return [rollout for group in groups for rollout in group.rollouts]

    @cached_property
    def played(self) -> list[Rollout]:
        """The episodes in which something was sampled."""
        return [one for one in self.rollouts if one.trajectory.num_model_tokens]

    @property
    def groups(self) -> list[Group[TrainItem]]:
        """These as a learner takes them, with rewards that differ."""
        groups: dict[str, list[TrainItem]] = {}
        for number, one in enumerate(self.played):
            item = TrainItem(one.trajectory, float(number % 2))
            groups.setdefault(one.trajectory.group_id, []).append(item)
        return [Group(name, tuple(items)) for name, items in groups.items()]

    def _requests(self, num_tasks: int) -> list[RolloutRequest]:
        return [
            RolloutRequest(
                group_id=f"trial/task{place}/prompt{number}",
                world=world,
                split="train",
                index=number * world.num_tasks("train") // num_tasks,
                rng_keys=tuple(
                    mix_key(self.seed, place, number, sample) >> 2  # generators hold signed ones
                    for sample in range(self.size.group_size)
                ),
            )
            for place, world in enumerate(self.worlds)
            for number in range(num_tasks)
        ]


def _branch_once(groups: Sequence[Group[Rollout]], number: int) -> list[tuple[Rollout, int]]:
    """Behind the first of several turns, in one round."""
    every = [] if number else [one for group in groups for one in group.rollouts]
    return [(one, 1) for one in every if len(one.trajectory.turns) > 1]


class _TrialDriver(RolloutDriver):
    """A driver that plays a few short turns of each episode and does not score it."""

    def __init__(self, driver: RolloutDriver, size: Size) -> None:
        most = min(driver.limits.max_turn_tokens, size.turn_tokens)
        limits = replace(driver.limits, max_turn_tokens=most)
        super().__init__(driver.generator, driver.codec, limits, driver.deterministic)
        self.num_turns = size.num_turns

    def _record(self, dialogue: Dialogue, turn: FinishedTurn) -> str:
        """A turn at its limit goes to the environment, too; the last one ends the episode."""
        if len(dialogue.turns) + 1 >= self.num_turns:
            turn = replace(turn, reason=TurnStop.MAX_TOKENS)
        elif turn.reason is TurnStop.MAX_TOKENS:
            turn = replace(turn, reason=TurnStop.STOP_STRING)
        return super()._record(dialogue, turn)

    def _score(
        self, played: Sequence[Dialogue], episodes: Sequence[Episode]
    ) -> list[ScoredEpisode]:
        return [ScoredEpisode(None, unscored="a trial") for _ in episodes]
