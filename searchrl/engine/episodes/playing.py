"""What all drivers of episodes share: the run as a whole, and an episode's beginning and end.

Owns how requests become scored groups: environments are reset and released, finished episodes are
handed over, failures are classified, episodes are frozen and scored. How turns come about is the
affair of the drivers: `rollout` for policies of tokens, `engine.choosing.rollout` for others.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from searchrl.calls.deadline import Raised
from searchrl.calls.pool import CallQueue
from searchrl.calls.watchdog import watching
from searchrl.core.episode import Episode, Failure, FailureKind, StopReason
from searchrl.core.group import Group, settle
from searchrl.core.trajectory import Trajectory
from searchrl.engine.episodes.boundary import Begun, anonymous_task, classify
from searchrl.engine.episodes.dialogue import Dialogue, ExpertAtHome, Limits, RolloutRequest
from searchrl.engine.episodes.world import Env, TaskWorld
from searchrl.errors import ProtocolFailure
from searchrl.rewards.scorer import ScoredEpisode, score_together


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
"""How a driver plays requests: `Player.play`."""

Sharing = Callable[[Play], Play]
"""Has the others of several processes play their part."""


class Player(ABC):
    """Runs requests to completion.

    Args:
        limits: of an episode.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.sharing: Sharing | None = None
        """None: this process plays everything."""

    @property
    def stats(self) -> object:
        """What it counts of a step, if anything; see `SlotStats`."""
        return None

    @abstractmethod
    def sync(self, policy: Any) -> int:
        """Play with the weights that a policy has now; returns their version."""

    def run(
        self,
        requests: Sequence[RolloutRequest],
        *,
        on_progress: Callable[[int, int], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> list[Group[Rollout]]:
        """Play every episode to its end and score it.

        Args:
            requests: prompt instances with their RNG keys; results come in the same order.
            on_progress: called with (finished, total) episodes.
            should_stop: checked between turns.

        Raises:
            Interrupted: when `should_stop` said so.
        """
        play = self.play if self.sharing is None else self.sharing(self.play)
        return play(requests, on_progress=on_progress, should_stop=should_stop)

    def play(
        self,
        requests: Sequence[RolloutRequest],
        *,
        on_progress: Callable[[int, int], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> list[Group[Rollout]]:
        """See `run`; whoever shares the work calls this for the requests of this process."""
        dialogues = [
            [Dialogue(request, sample) for sample in range(len(request.rng_keys))]
            for request in requests
        ]
        for request in requests:
            request.world.build_indexes()  # no clock runs yet
        files = {file: who for r in requests for file, who in r.world.files.items()}
        with watching(self.limits.env_timeout_s, files):
            on_progress = on_progress or (lambda done, total: None)
            self._play(requests, dialogues, on_progress, should_stop or (lambda: False))
            episodes = [[self._freeze(dialogue) for dialogue in group] for group in dialogues]
        release([dialogue for group in dialogues for dialogue in group])
        return self._score(requests, dialogues, episodes)

    @abstractmethod
    def _play(
        self,
        requests: Sequence[RolloutRequest],
        dialogues: Sequence[Sequence[Dialogue]],
        on_progress: Callable[[int, int], None],
        should_stop: Callable[[], bool],
    ) -> None:
        """Play dialogues until all have stopped.

        Raises:
            Interrupted: when `should_stop` said so, between turns; no environment is in use then.
        """

    @abstractmethod
    def _begin(self, request: RolloutRequest, env: Env) -> Begun:
        """Reset an environment for an episode of a request; called in its thread."""

    @abstractmethod
    def _read(self, dialogue: Dialogue) -> str:
        """What was written after the prompt, for people."""

    def _reset(self, dialogues: Sequence[Dialogue]) -> None:
        """Reset an environment for each dialogue; those that hang wait at the same time."""
        calls = []
        with closing(CallQueue(self.limits.env_timeout_s)) as queue:
            for dialogue in dialogues:
                dialogue.env = dialogue.request.home.acquire()
                begin = functools.partial(self._begin, dialogue.request)
                calls.append(dialogue.env.call(queue, begin))
            queue.wait_for_all()
        for dialogue, call in zip(dialogues, calls, strict=True):
            if isinstance(call.result, Raised):
                self._fail(dialogue, call.result.error)
                continue
            begun = call.result.value
            dialogue.prompt, dialogue.cut_reward = begun.prompt, begun.cut_reward
            if begun.expert is not None and dialogue.env is not None:
                dialogue.expert = ExpertAtHome(begun.expert, dialogue.env)
            dialogue.task, dialogue.trajectory.task_id = begun.task, begun.task.id
            dialogue.view = begun.view

    def _fail(self, dialogue: Dialogue, error: BaseException) -> None:
        """End an episode because something in it failed; its environment is not used again."""
        world = dialogue.request.world
        player = f"script of env '{world.name}' ({world.owner})"
        player = player if dialogue.request.script else "generator"
        dialogue.failure = classify(error, world, player)
        dialogue.stop = StopReason.FAILED
        dialogue.env = None

    def _score(
        self,
        requests: Sequence[RolloutRequest],
        dialogues: Sequence[Sequence[Dialogue]],
        episodes: Sequence[Sequence[Episode]],
    ) -> list[Group[Rollout]]:
        """Score all episodes together."""
        played = [dialogue for group in dialogues for dialogue in group]
        frozen = [episode for group in episodes for episode in group]
        scorers = [dialogue.request.world.scorer for dialogue in played]
        groups = [number for number, group in enumerate(dialogues) for _ in group]
        scores = score_together(list(zip(scorers, frozen, strict=True)), groups)
        finished = iter(
            Rollout(d.trajectory, episode, scored, d.request.world, dict(d.request.options))
            for d, episode, scored in zip(played, frozen, scores, strict=True)
        )
        return [
            Group(request.group_id, tuple(next(finished) for _ in group))
            for request, group in zip(requests, dialogues, strict=True)
        ]

    def _freeze(self, dialogue: Dialogue) -> Episode:
        """The episode as rewards will see it."""
        if dialogue.stop is None:
            error = "RuntimeError: the generator lost this dialogue"
            dialogue.failure = Failure(FailureKind.GENERATION, "generator", error)
            dialogue.stop = StopReason.FAILED
        request, trajectory = dialogue.request, dialogue.trajectory
        trajectory.generated_text = self._read(dialogue)
        texts = [turn.text for turn in dialogue.turns]
        final_answer, format_score = None, 0.0
        try:
            final_answer = request.world.protocol.final_answer(texts)
            format_score = request.world.protocol.format_score(texts)
        except ProtocolFailure as error:
            if dialogue.failure is None:  # the first failure is the one that is told
                self._fail(dialogue, error)
        assert dialogue.stop is not None
        return Episode(
            task=dialogue.task or anonymous_task(request.world.name, request.reset_options, ""),
            turns=tuple(dialogue.turns),
            final_answer=final_answer,
            format_score=format_score,
            signals=dict(dialogue.signals),
            env_return=dialogue.env_return,
            num_model_tokens=trajectory.num_model_tokens,
            stop_reason=dialogue.stop,
            failure=dialogue.failure,
            step=request.step,
        )


def release(dialogues: Sequence[Dialogue]) -> None:
    """Give back the environments that did not fail; their world closes them."""
    for dialogue in dialogues:
        if dialogue.env is not None:
            dialogue.request.home.release(dialogue.env)
