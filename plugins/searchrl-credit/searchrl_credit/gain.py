"""`igpo`: a turn is worth how much more probable it made the gold answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from statistics import fmean
from typing import Annotated, Any, Literal

from pydantic import Field

from searchrl.algorithms import Algorithm, Column, Hooks, Probe, StepScores, Trainer, ppo_clip_loss
from searchrl.contracts import ANSWER
from searchrl_credit.parts import discounted, scored, within

Against = Literal["before", "random"]
_OPENING = 1 << 30
"""Key of the text that opens an answer; others are numbers of turns, ~n with random passages."""


def make_igpo(
    *, gamma: Annotated[float, Field(ge=0, le=1)] = 1.0, against: Against = "before"
) -> Algorithm:
    """IGPO (arXiv 2510.14967): the outcome in the last turn, information gain in the others.

    The reward of a failure should be 0: a part that all rollouts get, such as `format`, is in last
    turns only and counts against the others, so that the policy stops searching.

    Args:
        gamma: discount of a later turn's reward.
        against: `random` takes the probability behind another episode's observation, drawn at
            random, in place of the one before the turn: what a guess gains is then no gain
            (IG-Search, arXiv 2604.15148).
    """
    hooks = Gain(gamma, against)
    return Algorithm("igpo", hooks.advantages, ppo_clip_loss, hooks=hooks)


class Gain(Hooks):
    """Reads gold answers with the model that is trained."""

    trainer: Trainer

    def __init__(self, gamma: float, against: Against) -> None:
        self.gamma, self.against = gamma, against
        self.openings: dict[str, str] = {}

    def begin(self, trainer: Trainer) -> None:
        """Remember the run, and how an answer is opened in each environment."""
        self.trainer, self.rng = trainer, Random(trainer.seed)
        pairs = zip(trainer.env_names, trainer.protocols, strict=True)
        self.openings = {name: protocol.opening(ANSWER) for name, protocol in pairs}

    def advantages(self, step: StepScores) -> list[Column]:
        """Return, per turn, the discounted sum of turn rewards, normalised in their group."""
        rollouts, groups, rewards = scored(step)
        gains = self.gains(rollouts)
        earned = [
            [*own, reward] if one.trajectory.turns else []
            for one, own, reward in zip(rollouts, gains, rewards, strict=True)
        ]
        keys = [group for group, own in zip(groups, earned, strict=True) for _ in own]
        flat = iter(within(keys, [one for own in earned for one in own]))
        made = iter(discounted([next(flat) for _ in own], self.gamma) for own in earned)
        return [
            Column(next(made) if is_in else [0.0] * len(turns))
            for is_in, turns in zip(step.is_scored, step.turn_sizes, strict=True)
        ]

    def gains(self, rollouts: Sequence[Any]) -> list[list[float]]:
        """Return the gain of each turn but the last; zeros where there is no gold answer.

        Of several gold answers it is the one that is likeliest at the end.
        """
        probes, keys = list[Probe](), list[tuple[int, str, int]]()
        for place, rollout in enumerate(rollouts):
            trajectory = rollout.trajectory
            turns = trajectory.turns
            opening = self.openings.get(trajectory.env, "")
            # Turns of an agent that forks do not follow from each other.
            is_forked = rollout.is_served and len(trajectory.segments) > 1
            answers = rollout.task.answers if rollout.task and not is_forked else ()
            for answer in answers if len(turns) > 1 else ():
                # The opening alone says where the answer begins in its tokens.
                texts = [(turns[0], turns[0].start, opening, _OPENING)]
                texts += [(turn, turn.start, f"{opening} {answer}", turn.index) for turn in turns]
                if self.against == "random":
                    for turn in turns[:-1]:
                        text = f"{self.draw(rollouts, place)}{opening} {answer}"
                        texts.append((turn, turn.stop, text, ~turn.index))
                for turn, stop, text, key in texts:
                    probes.append(Probe(trajectory, stop, text, segment=turn.segment))
                    keys.append((place, answer, key))
        if not probes:
            return [[0.0] * max(0, len(one.trajectory.turns) - 1) for one in rollouts]
        read = dict(zip(keys, (one.logps for one in self.trainer.read(probes)), strict=True))
        likely: dict[tuple[int, str, int], float] = {}
        for (place, answer, key), logps in read.items():
            if key != _OPENING:
                size = len(read[place, answer, 0]) - len(read[place, answer, _OPENING])
                likely[place, answer, key] = math.exp(fmean(logps[-size:]))
        return [self._of_turns(place, one, likely) for place, one in enumerate(rollouts)]

    def draw(self, rollouts: Sequence[Any], place: int) -> str:
        """The observation of another episode, drawn at random; "" where none has any."""
        others = [one for n, one in enumerate(rollouts) if n != place]
        shown = [turn.observation for one in others for turn in one.episode.turns]
        shown = [one for one in shown if one]
        return self.rng.choice(shown) if shown else ""

    def _of_turns(
        self, place: int, rollout: Any, likely: dict[tuple[int, str, int], float]
    ) -> list[float]:
        last = len(rollout.trajectory.turns) - 1
        known = [
            one
            for one in (rollout.task.answers if rollout.task else ())
            if (place, one, last) in likely
        ]
        if not known:
            return [0.0] * max(0, last)
        best = max(known, key=lambda one: likely[place, one, last])
        behind = [likely[place, best, turn] for turn in range(last + 1)]
        before = (
            [likely[place, best, ~turn] for turn in range(last)]
            if self.against == "random"
            else behind
        )
        return [after - one for after, one in zip(behind[1:], before, strict=False)]
