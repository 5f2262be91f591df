"""Rollouts and their driver: strings of the environment here, the record of tokens there.

It renders a prompt once, never re-tokenises what was sampled and never lets an environment touch
tokens. Foreign code is called through `boundary`. Any generator can be non-blocking (submit, poll).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from opentelemetry.trace import use_span

from searchrl.core.episode import INVALID, Action, Episode, EpisodeTurn, StopReason, Task
from searchrl.core.group import Group, WeightedScore, settle
from searchrl.core.trajectory import Trajectory, TurnStop
from searchrl.engine.model.rendering import TextCodec
from searchrl.engine.rollout.boundary import Stepped, begin_episode, step_env
from searchrl.engine.rollout.dialogue import (
    Dialogue,
    ExpertAtHome,
    Limits,
    RolloutRequest,
    Stepping,
    release,
)
from searchrl.engine.rollout.served_turns import ServedTurns
from searchrl.engine.rollout.text_turns import TextTurns
from searchrl.engine.rollout.world import TaskWorld
from searchrl.engine.sampling.generator import FinishedTurn, Generator, Handle
from searchrl.engine.sampling.stops import find_stop_end
from searchrl.errors import ProtocolFailure
from searchrl.rewards.scorer import ScoredEpisode, score_together
from searchrl.tool_calls import CallQueue, DeadlineExceeded, Raised, Returned
from searchrl.tracing import of_text

UNREAD = Action(INVALID, None, "The protocol could not read this turn.")
"""The action of a turn where `parse` fails."""


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
        """True if it may enter a training step."""
        return self.reward is not None

    @property
    def turn_rewards(self) -> tuple[float, ...]:
        """The environment's reward for each turn; the last makes up for the other scores."""
        earned = tuple(turn.reward for turn in self.episode.turns)
        return settle(earned, self.reward or 0.0)[self.trajectory.num_kept :]

    @property
    def is_cut(self) -> bool:
        """True if a limit ended it, neither the environment nor the model."""
        return self.episode.stop_reason not in (StopReason.ANSWERED, StopReason.EOS)

    @property
    def is_served(self) -> bool:
        """True where a wrapper serves the policy to an agent, which wrote the prompt."""
        return self.world.is_served

    @property
    def components(self) -> Mapping[str, WeightedScore]:
        """Weight and score of each component of the reward expression."""
        return self.world.scorer.schedule.at(self.episode.step).split(self.scored.scores)

    @property
    def task(self) -> Task:
        """Question, gold answers and the rest."""
        return self.episode.task

    @property
    def turn_scores(self) -> tuple[float, ...] | None:
        """The process scores of each turn of its own; None: none."""
        scores = self.episode_scores
        return None if scores is None else scores[self.trajectory.num_kept :]

    @property
    def episode_scores(self) -> tuple[float, ...] | None:
        """The process scores of each turn, weighted as the reward expression says; None: none.

        What the other components say of the whole episode is part of the last turn's.
        """
        per_turn, values = self.scored.per_turn, self.scored.scores
        expression = self.world.scorer.schedule.at(self.episode.step)
        scored = {name for weight, name in expression.terms if weight} & per_turn.keys()
        if not scored or self.reward is None or not self.episode.turns:
            return None
        scores = [0.0] * len(self.episode.turns)
        scores[-1] = expression.constant
        for weight, name in expression.terms:
            if name in per_turn:
                scores = [
                    s + weight * added for s, added in zip(scores, per_turn[name], strict=True)
                ]
            else:
                scores[-1] += weight * values.get(name, 0.0)
        return tuple(scores)


class Interrupted(Exception):
    """The caller's `should_stop` asked to abandon the rollouts in flight."""


class RolloutDriver:
    """Runs requests to completion on one generator.

    Environments step beside the generator. `deterministic` takes their observations in when the
    generator has nothing left to decode, and otherwise as they arrive. Then what is decoded
    together, and so every rounding error, depends on no clock: it repeats however long tools take.
    """

    def __init__(
        self, generator: Generator, codec: TextCodec, limits: Limits, deterministic: bool = True
    ) -> None:
        self.generator = generator
        self.codec = codec
        self.limits = limits
        self._turns = TextTurns(generator, codec, limits), ServedTurns(generator, codec, limits)
        self.deterministic = deterministic
        self.keeps_finished = False
        """Return the finished episodes where `should_stop` said so, in place of `Interrupted`."""

    @property
    def stats(self) -> object:
        """Statistics of its generator, if it has any."""
        return getattr(self.generator, "stats", None)

    def sync(self, policy: Any) -> int:
        """Play with the weights that a policy has now; returns their version."""
        return self.generator.sync(policy)

    def run(
        self,
        requests: Sequence[RolloutRequest],
        *,
        on_progress: Callable[[int, int], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> list[Group[Rollout]]:
        """Play every episode to its end and score it; groups come in the order of the requests.

        `on_progress` is called with (finished, total) episodes. `should_stop` is checked between
        turns and raises Interrupted, unless `keeps_finished`.
        """
        dialogues = [
            [Dialogue(request, sample) for sample in request.samples] for request in requests
        ]
        for request in requests:
            request.world.build_indexes()  # no clock runs yet
        on_progress = on_progress or (lambda done, total: None)
        late = self._play(requests, dialogues, on_progress, should_stop or (lambda: False))
        dialogues = [[one for one in group if one not in late] for group in dialogues]
        played = [dialogue for group in dialogues for dialogue in group]
        episodes = [dialogue.freeze(self.codec) for dialogue in played]
        release(played)
        work = [(d.request.world.scorer, e, d.row) for d, e in zip(played, episodes, strict=True)]
        scores = score_together(work, [dialogue.request.group_id for dialogue in played])
        rollouts = iter(
            Rollout(d.trajectory, episode, scored, d.request.world, dict(d.request.options))
            for d, episode, scored in zip(played, episodes, scores, strict=True)
        )
        return [
            Group(request.group_id, tuple(next(rollouts) for _ in group))
            for request, group in zip(requests, dialogues, strict=True)
        ]

    def _play(
        self,
        requests: Sequence[RolloutRequest],
        dialogues: Sequence[Sequence[Dialogue]],
        on_progress: Callable[[int, int], None],
        should_stop: Callable[[], bool],
    ) -> list[Dialogue]:
        """Play dialogues until all have stopped; return those that were still under way."""
        waiting = [dialogue for group in dialogues for dialogue in group]
        self._reset(waiting)
        live: dict[Handle, Dialogue] = {}
        for request, group in zip(requests, dialogues, strict=True):
            if begun := [dialogue for dialogue in group if dialogue.stop is None]:
                live |= self._turns_of(request).open(request, begun)
        total, began = len(waiting), time.monotonic()
        with closing(CallQueue(self.limits.env_timeout_s)) as queue:
            stepping: list[Stepping] = []
            while live:
                finished = self.generator.poll()
                if not finished and not stepping:
                    break
                ready, stepping = self._split(stepping, queue, is_idle=not finished)
                self._take_in(ready, live)
                stepping += self._begin_steps(finished, live, queue)
                on_progress(total - len(live), total)
                is_stopped = should_stop()
                is_lost = is_stopped and not self.keeps_finished
                if is_stopped or time.monotonic() - began > (self.limits.step_timeout_s or 1e9):
                    for handle in live:
                        self.generator.close(handle)
                    for one in stepping:  # nobody may have an environment still in a step
                        if not isinstance(one.call.outcome, Returned):
                            one.dialogue.env = None
                    late = list(live.values())
                    release(waiting if is_lost else late)
                    if is_lost:
                        raise Interrupted
                    return late
        return []

    def _reset(self, dialogues: Sequence[Dialogue]) -> None:
        """Reset an environment for each dialogue; those that hang wait at the same time."""
        calls = []
        with closing(CallQueue(self.limits.env_timeout_s)) as queue:
            for dialogue in dialogues:
                dialogue.env = dialogue.request.home.acquire()
                request = dialogue.request
                begin = functools.partial(
                    begin_episode,
                    world=request.home,
                    options=request.reset_options,
                    seed=request.env_seed,
                    budget=self.codec.budget(self.limits.max_observation_tokens),
                    serving=self._turns_of(request).serving(dialogue),
                    script=request.script,
                    turns=tuple(dialogue.turns),
                )
                with use_span(dialogue.span):
                    calls.append(dialogue.env.call(queue, begin))
            queue.wait_for_all()
        for dialogue, call in zip(dialogues, calls, strict=True):
            if isinstance(call.result, Raised):
                dialogue.fail(call.result.error)
                continue
            begun = call.result.value
            dialogue.prompt, dialogue.cut_reward = begun.prompt, begun.cut_reward
            dialogue.signals, dialogue.env_return = {**begun.signals}, begun.env_return
            if begun.expert is not None and dialogue.env is not None:
                dialogue.expert = ExpertAtHome(begun.expert, dialogue.env)
            dialogue.task, dialogue.trajectory.task_id = begun.task, begun.task.id

    def _turns_of(self, request: RolloutRequest) -> TextTurns:
        return self._turns[request.world.is_served]

    def _close_stopped(self, handles: Sequence[Handle], live: dict[Handle, Dialogue]) -> None:
        for handle in handles:
            if handle in live and live[handle].stop is not None:
                self.generator.close(handle)
                live.pop(handle).end_spans()

    def _record(self, dialogue: Dialogue, turn: FinishedTurn) -> str:
        """Record one model turn and return its text; a turn that was cut ends the episode."""
        if turn.error is not None:
            dialogue.fail(turn.error)
            return ""
        ids = turn.ids[:-1] if turn.reason is TurnStop.EOS else turn.ids
        sampled = self.codec.decode(ids)
        end = find_stop_end(sampled, dialogue.stops)
        text, behind = (sampled, "") if end is None else (sampled[:end], sampled[end:])
        text, dialogue.prefix = dialogue.prefix + text, ""
        span, parts = dialogue.turn_span, [{"type": "text", "content": text}]
        said = {"role": "assistant", "parts": parts, "finish_reason": turn.reason}
        span.set_attributes(of_text("gen_ai.output.messages", [said]))
        span.set_attribute("gen_ai.usage.output_tokens", len(turn.ids))
        span.set_attribute("gen_ai.response.finish_reasons", [turn.reason])
        span.end()
        dialogue.trajectory.append_model(
            turn.ids, turn.logps, version=turn.version, reason=turn.reason, text_behind=behind
        )
        turns = self._turns_of(dialogue.request)
        if turn.reason is TurnStop.MAX_TOKENS and not turns.takes_cut_turns:
            trajectory = dialogue.trajectory
            length = len(trajectory.segments[trajectory.current])
            out_of_room = length >= turns.most(dialogue)
            dialogue.stop = StopReason.TOTAL_TOKENS if out_of_room else StopReason.TURN_TOKENS
            dialogue.env_return += dialogue.cut_reward
            action = self._parse(dialogue, text)
            dialogue.turns.append(EpisodeTurn(text, action, reward=dialogue.cut_reward))
        return text

    def _parse(self, dialogue: Dialogue, text: str) -> Action:
        """The action of a turn; a protocol that cannot say fails the episode."""
        try:
            return dialogue.request.world.protocol.parse(text)
        except ProtocolFailure as error:
            dialogue.fail(error)
            return UNREAD

    def _begin_steps(
        self, finished: Sequence[FinishedTurn], live: dict[Handle, Dialogue], queue: CallQueue
    ) -> list[Stepping]:
        """Record finished turns and begin to step the environments of those that reach one."""
        begun = []
        for turn in finished:
            dialogue = live[turn.handle]
            text = self._record(dialogue, turn)
            if dialogue.stop is None:
                assert dialogue.env is not None
                turns = self._turns_of(dialogue.request)
                step = functools.partial(
                    step_env,
                    action=turns.action(text, turn),
                    observes=turns.observes,
                    room=turns.room(dialogue),
                )
                with use_span(dialogue.span):
                    call = dialogue.env.call(queue, step)
                begun.append(Stepping(dialogue, turn, text, call))
        self._close_stopped([turn.handle for turn in finished], live)
        return begun

    def _split(
        self, stepping: list[Stepping], queue: CallQueue, *, is_idle: bool
    ) -> tuple[list[Stepping], list[Stepping]]:
        """The steps to take in now, at least one where the generator is idle, and the others."""
        if self.deterministic and not is_idle:
            return [], stepping
        if self.deterministic:
            queue.wait_for_all()
        elif is_idle:
            queue.wait_for_one([one.call for one in stepping])
        over = {id(one) for one in stepping if one.call.outcome is not None}
        ready = [one for one in stepping if id(one) in over]
        return ready, [one for one in stepping if id(one) not in over]

    def _take_in(self, ready: Sequence[Stepping], live: dict[Handle, Dialogue]) -> None:
        for one in ready:
            dialogue, _, text, call = one
            if isinstance(call.result, Raised):
                error, protocol = call.result.error, dialogue.request.world.who["protocol"]
                # A protocol that hung would hang again here, where no clock runs.
                is_stuck = isinstance(error, DeadlineExceeded) and error.owner == protocol
                action = UNREAD if is_stuck else self._parse(dialogue, text)
                dialogue.turns.append(EpisodeTurn(text, action))
                dialogue.fail(error)
            else:
                self._advance(one, call.result.value, live)
        self._close_stopped([one.turn.handle for one in ready], live)

    def _advance(self, one: Stepping, made: Stepped, live: dict[Handle, Dialogue]) -> None:
        dialogue, turn, text, _ = one
        action = made.action or self._parse(dialogue, text)
        if dialogue.failure is not None:
            dialogue.turns.append(EpisodeTurn(text, action))
            return
        dialogue.env_return += made.reward
        dialogue.signals.update(made.signals)
        dialogue.answer, shown = made.answer, ""
        if made.terminated:
            dialogue.stop = StopReason.ANSWERED
        elif made.truncated:
            dialogue.stop = StopReason.TURN_LIMIT
        else:
            turns = self._turns_of(dialogue.request)
            shown = turns.go_on(dialogue, turn, made.observation, live, made.context)
        # What the model never read does not count as shown to it.
        passages, ranks = (made.passages, made.ranks) if shown else ((), ())
        told = EpisodeTurn(text, action, passages, shown, made.reward, ranks)
        dialogue.turns.append(told)
