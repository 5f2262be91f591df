"""The subject of the checks where the policy is a network of choices, and its trial.

Owns what is recorded beside the ledger: what the sampler was shown, and what it chose. An episode
ends after a few choices, and nothing is scored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from searchrl.core.episode import StopReason
from searchrl.core.trajectory import Trajectory, View
from searchrl.engine.checks.subject import Case, Subject
from searchrl.engine.checks.trial import Played, Size, Trial, Unscored, make_requests, tell_failure
from searchrl.engine.choosing.chooser import Chooser, Chose
from searchrl.engine.choosing.policy import Choices
from searchrl.engine.choosing.rollout import ChoiceDriver
from searchrl.engine.episodes.boundary import Stepped
from searchrl.engine.episodes.dialogue import Dialogue, Limits
from searchrl.engine.episodes.world import TaskWorld


@dataclass(frozen=True, slots=True)
class ChoiceSubject(Subject):
    """A run of a network of choices; `remake` makes its network again, with weights of a folder."""

    policy: Choices
    sampler: ChoiceDriver
    remake: Callable[[Path], Choices]


class Draw(NamedTuple):
    """A choice as it left the sampler: from everything that was seen, by the key of its episode."""

    seen: tuple[View, ...]
    key: int
    chose: Chose


class RecordingChooser(Chooser):
    """Hands everything on to a chooser, and keeps what it was shown and what it chose."""

    def __init__(self, inner: Chooser) -> None:
        super().__init__(inner.policy, inner.temperature)
        self.inner = inner
        self.draws: dict[int, list[Draw]] = {}
        """Choice after choice, by the key of the episode."""

    def choose(self, seen: Sequence[Sequence[View]], keys: Sequence[int]) -> list[Chose]:
        """See `Chooser.choose`."""
        chosen = self.inner.choose(seen, keys)
        for views, key, chose in zip(seen, keys, chosen, strict=True):
            self.draws.setdefault(key, []).append(Draw(tuple(views), key, chose))
        return chosen


class _ShortDriver(Unscored, ChoiceDriver):
    """A driver that plays a few choices of an episode."""

    def __init__(self, chooser: Chooser, limits: Limits, num_choices: int) -> None:
        super().__init__(chooser, limits)
        self.num_choices = num_choices

    def _advance(self, dialogue: Dialogue, name: str, made: Stepped) -> None:
        super()._advance(dialogue, name, made)
        if dialogue.stop is None and len(dialogue.trajectory) >= self.num_choices:
            dialogue.stop = StopReason.TURN_LIMIT


@dataclass(frozen=True, slots=True)
class ChoicePlayed(Played):
    """One episode of the trial, and every draw of it."""

    draws: tuple[Draw, ...]


@dataclass(frozen=True, slots=True)
class ChoiceTrial(Trial):
    """What a network played."""

    played: tuple[ChoicePlayed, ...]


class Pair(NamedTuple):
    """A choice of the trial on both sides: who drew it and who learns from it."""

    trajectory: Trajectory
    place: int
    view: View
    trainer_A: Tensor
    """Log-probs of all actions, as the learner computes them."""
    legal_A: Tensor
    """What the layout of the update says is legal."""
    trainer: float
    """Log-prob of the action that was chosen, as a loss gets it."""


@dataclass(frozen=True)
class ChoiceCase(Case):
    """A case of a network of choices."""

    subject: ChoiceSubject
    trial: ChoiceTrial

    @cached_property
    def pairs(self) -> list[Pair]:
        """Every trained choice of the trial with what the learner computes for it."""
        subject, found = self.subject, []
        heat = subject.learner.temperature
        ledgers = {one.trajectory.rollout_id: one.trajectory for one in self.trial.played}
        for batch in self.batches(self.pack()) if ledgers else ():
            with subject.learner.computing(), torch.no_grad():
                logp_N = subject.policy.logps(batch.layout, temperature=heat).logp_N.tolist()
                rows_NA = subject.policy.distributions(batch.layout, temperature=heat).cpu()
            legal_NA = batch.layout.legal_BSA.flatten(0, 1)[batch.layout.row_N].cpu()
            places = [
                (ledgers[rollout.rollout_id], place)
                for rollout in batch.rollouts
                for place, is_trained in enumerate(rollout.mask)
                if is_trained
            ]
            columns = zip(places, rows_NA, legal_NA, logp_N, strict=True)
            for (ledger, place), trainer_A, legal_A, logp in columns:
                view = ledger.views[place]
                found.append(Pair(ledger, place, view, trainer_A, legal_A, logp))
        return found


def play_choices(
    driver: ChoiceDriver, worlds: Sequence[TaskWorld], size: Size, seed: int
) -> ChoiceTrial:
    """Play the first choices of a few episodes of every world; `seed` is that of all draws."""
    chooser = RecordingChooser(driver.chooser)
    player = _ShortDriver(chooser, driver.limits, size.num_turns)
    requests = make_requests(worlds, size, seed)
    groups = player.run(requests)
    played, failures = [], []
    for request, group in zip(requests, groups, strict=True):
        for key, rollout in zip(request.rng_keys, group.rollouts, strict=True):
            if (failure := rollout.episode.failure) is not None:
                failures.append(tell_failure(failure))
            draws = tuple(chooser.draws.get(key, ()))
            if draws:
                ids, logps = [d.chose.action for d in draws], [d.chose.logp for d in draws]
                played.append(ChoicePlayed(rollout, key, ids, logps, draws))
    return ChoiceTrial(tuple(played), tuple(failures))
