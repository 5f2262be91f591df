"""Drives episodes of choices: what an environment shows on one side, the ledger on the other.

Owns the loop: choose for all live episodes, step all of them, until each is over. An id in the
ledger is the number of an action, and a turn is one id. Callers: `train`, `evaluate`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import closing

from searchrl.calls.deadline import Raised
from searchrl.calls.pool import CallQueue
from searchrl.core.episode import ACT, Action, EpisodeTurn, StopReason
from searchrl.core.trajectory import TurnStop, View
from searchrl.engine.choosing.chooser import Chooser, Chose
from searchrl.engine.choosing.policy import Choices
from searchrl.engine.episodes.boundary import Begun, Stepped, begin_choices, step_choices
from searchrl.engine.episodes.dialogue import Dialogue, Limits, RolloutRequest
from searchrl.engine.episodes.playing import Interrupted, Player, release
from searchrl.engine.episodes.world import Env
from searchrl.errors import EnvironmentFailure, GenerationFailure

_TWO_VIEWS = (
    "reset() showed two rollouts of one group something different; a task must be a pure function "
    "of split, index and seed"
)


class ChoiceDriver(Player):
    """Runs requests to completion with a policy without tokens.

    Environments step at the same time; nothing of an episode depends on when they are done.
    """

    def __init__(self, chooser: Chooser, limits: Limits) -> None:
        super().__init__(limits)
        self.chooser = chooser

    def sync(self, policy: Choices) -> int:
        """See `Player.sync`: the weights are the policy's own."""
        self.chooser.policy = policy
        return policy.version

    def _play(
        self,
        requests: Sequence[RolloutRequest],
        dialogues: Sequence[Sequence[Dialogue]],
        on_progress: Callable[[int, int], None],
        should_stop: Callable[[], bool],
    ) -> None:
        waiting = [dialogue for group in dialogues for dialogue in group]
        self._reset(waiting)
        for group in dialogues:
            self._open(group)
        total = len(waiting)
        with closing(CallQueue(self.limits.env_timeout_s)) as queue:
            while live := [one for group in dialogues for one in group if one.stop is None]:
                if should_stop():
                    release([dialogue for group in dialogues for dialogue in group])
                    raise Interrupted
                self._take_turn(live, queue)
                on_progress(sum(one.stop is not None for g in dialogues for one in g), total)

    def _open(self, group: Sequence[Dialogue]) -> None:
        """Begin the ledgers of a group, whose rollouts all see the same first."""
        ready = [dialogue for dialogue in group if dialogue.stop is None]
        for dialogue in ready:
            if dialogue.view != ready[0].view:
                self._fail(dialogue, EnvironmentFailure(_TWO_VIEWS))
            dialogue.trajectory.append_prompt([])

    def _take_turn(self, live: Sequence[Dialogue], queue: CallQueue) -> None:
        """One choice of every live episode, and what its environment makes of it."""
        keys = [one.request.rng_keys[one.sample] for one in live]
        try:
            chosen = self.chooser.choose([_seen(one) for one in live], keys)
        except GenerationFailure as error:
            for dialogue in live:
                self._fail(dialogue, error)
            return
        names = self.chooser.policy.space.actions
        calls = []
        for dialogue, chose in zip(live, chosen, strict=True):
            assert dialogue.env is not None
            step = functools.partial(step_choices, number=chose.action, name=names[chose.action])
            calls.append(dialogue.env.call(queue, step))
        queue.wait_for_all()
        for dialogue, chose, call in zip(live, chosen, calls, strict=True):
            self._record(dialogue, chose)
            name = names[chose.action]
            if isinstance(call.result, Raised):
                dialogue.turns.append(EpisodeTurn(name, Action(ACT, name)))
                self._fail(dialogue, call.result.error)
            else:
                self._advance(dialogue, name, call.result.value)

    def _record(self, dialogue: Dialogue, chose: Chose) -> None:
        is_sampled = dialogue.request.has_logps
        dialogue.trajectory.append_model(
            (chose.action,),
            (chose.logp,) if is_sampled else None,
            version=chose.version,
            reason=TurnStop.CHOICE,
            saw=dialogue.view,
            probs=chose.probs,
        )

    def _advance(self, dialogue: Dialogue, name: str, made: Stepped) -> None:
        """Take in what the environment made of a choice."""
        dialogue.env_return += made.reward
        dialogue.signals.update(made.signals)
        dialogue.view = made.view
        if made.terminated:
            dialogue.stop = StopReason.ANSWERED
        elif made.truncated or len(dialogue.trajectory) >= self.chooser.policy.space.max_choices:
            dialogue.stop, dialogue.trajectory.after = StopReason.TURN_LIMIT, made.view
        action = made.action or Action(ACT, name)
        dialogue.turns.append(EpisodeTurn(name, action, made.passages, "", made.reward, made.ranks))

    def _begin(self, request: RolloutRequest, env: Env) -> Begun:
        return begin_choices(env, request.home, request.reset_options, seed=request.env_seed)

    def _read(self, dialogue: Dialogue) -> str:
        return self.chooser.policy.tell(dialogue.trajectory.ids)


def _seen(dialogue: Dialogue) -> tuple[View, ...]:
    """Everything that an episode has shown."""
    assert dialogue.view is not None
    return (*dialogue.trajectory.views, dialogue.view)
