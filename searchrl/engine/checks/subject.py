"""What is checked: the policy, the learner, the sampler and the task worlds of a run.

Owns the subject and the case: a subject with its trial, packed and computed as the learner does it.
Those of a language model know more (`TextSubject`, `TextCase`); those of a network of choices are
in `choices`. The run's own objects are looked at, not copies made for the purpose. Callers: the
checks, `doctor`. Shapes: N sampled tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from searchrl.config.sections import SamplingConfig
from searchrl.core.advantage import grpo_advantages
from searchrl.core.group import Group, Trainable
from searchrl.core.trajectory import Trajectory
from searchrl.engine.checks.trial import DrawRecord, TextTrial, Trial, drawn_rows
from searchrl.engine.episodes.rollout import RolloutDriver
from searchrl.engine.episodes.world import TaskWorld
from searchrl.engine.learning.learner import Learner
from searchrl.engine.learning.packing import MicroBatch, PackedStep, micro_batches, pack_step
from searchrl.engine.learning.trained import TrainedPolicy
from searchrl.engine.model.policy import Policy
from searchrl.engine.model.tolerance import Tolerance


@dataclass(frozen=True, slots=True)
class Subject:
    """A run that is about to begin. `temperature` is that of its configuration."""

    policy: TrainedPolicy
    learner: Learner
    worlds: Sequence[TaskWorld]
    temperature: float
    tolerance: Tolerance
    seed: int


@dataclass(frozen=True, slots=True)
class TextSubject(Subject):
    """A run of a language model; `sampling` is its configuration's, `draws` watches its sampler."""

    policy: Policy
    sampler: RolloutDriver
    draws: DrawRecord
    sampling: SamplingConfig


class Compared(NamedTuple):
    """A rollout's sampled tokens: where they stand, and what is known of them."""

    trajectory: Trajectory
    places: list[int]
    """Of the tokens with a recorded distribution."""
    sampler_NV: Tensor
    trainer_NV: Tensor
    """Over the whole vocabulary."""
    trainer_N: Tensor
    """Of the tokens drawn, as a loss gets them."""

    @property
    def token_N(self) -> Tensor:
        """The ids that were drawn."""
        ids = self.trajectory.ids
        return torch.tensor([ids[place] for place in self.places])


@dataclass(frozen=True)
class Case:
    """A subject and what it played. `is_thorough`: as many prompts are rendered as make sense."""

    subject: Subject
    trial: Trial
    is_thorough: bool

    def pack(self, groups: Sequence[Group[Trainable]] | None = None) -> PackedStep:
        """The trial, or other groups, as the learner packs a step; every rollout is in it."""
        return pack_step(
            self.trial.groups if groups is None else groups,
            grpo_advantages,
            self.subject.learner.reduction,
            keep_dead_groups=True,
            constant=self.subject.learner.constant,
        )

    def batches(self, packed: PackedStep) -> Iterator[MicroBatch]:
        """A packed trial in the learner's micro-batches."""
        learner = self.subject.learner
        return micro_batches(
            packed.groups,
            learner.micro_batch_tokens,
            self.subject.policy.device,
            is_packed=learner.packing_fault is None,
            lay_out=self.subject.policy.lay_out,
        )


@dataclass(frozen=True)
class TextCase(Case):
    """A case of a language model."""

    subject: TextSubject
    trial: TextTrial

    @cached_property
    def compared(self) -> list[Compared]:
        """Every rollout of the trial with the distributions of sampler and trainer."""
        subject, found = self.subject, []
        heat = subject.learner.temperature
        played = {one.trajectory.rollout_id: one for one in self.trial.played}
        for batch in self.batches(self.pack()) if played else ():
            with subject.learner.computing(), torch.no_grad():
                logp_N = subject.policy.logps(batch.layout, temperature=heat).logp_N.cpu()
                rows_NV = subject.policy.distributions(batch.layout, temperature=heat).cpu()
            columns = (column.split(batch.num_tokens) for column in (logp_N, rows_NV))
            for rollout, own_N, own_NV in zip(batch.rollouts, *columns, strict=True):
                one = played[rollout.rollout_id]
                places = [place for place, is_trained in enumerate(rollout.mask) if is_trained]
                known, sampler_NV = drawn_rows(self.trial.draws, one.key, places)
                if sampler_NV is not None:
                    places = [places[number] for number in known]
                    found.append(
                        Compared(one.trajectory, places, sampler_NV, own_NV[known], own_N[known])
                    )
        return found
