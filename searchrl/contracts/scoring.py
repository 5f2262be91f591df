"""Contracts of what scores: reward components, group rewards and judges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from searchrl.contracts.traffic import Traffic
from searchrl.core.episode import Episode, JudgeCase, Score, Unscored, Verdict


@runtime_checkable
class Reward(Protocol):
    """One reward component. Pure. `values` is its declared set, or (low, high) with `is_range`.

    It may have a method `applies(task) -> bool`. A task for which that is false has no such term
    in its reward, and no such metric.
    """

    name: str
    values: tuple[float, ...]
    is_range: bool

    def __call__(self, episode: Episode) -> float | Score | Unscored:
        """Score one finished episode."""


@runtime_checkable
class GroupReward(Protocol):
    """A component that scores the episodes of a group together: diversity, pairwise judges.

    Pure, and declared like a `Reward`. A group holds the rollouts of one prompt that did not fail,
    at least one; in an evaluation each prompt is played once, so a group is one episode.
    """

    name: str
    values: tuple[float, ...]
    is_range: bool

    def __call__(self, episodes: Sequence[Episode]) -> Sequence[float | Score | Unscored]:
        """Score the episodes of one group: one result for each, in the order given."""


@runtime_checkable
class Judge(Protocol):
    """Scores answers, by a model or a rule.

    A judge of a special domain may have `examples`, a right and a wrong `JudgeCase`, with which
    `searchrl check` tries it.
    """

    def judge(self, case: JudgeCase) -> Verdict | Unscored:
        """Judge one answer: 0, 0.5 or 1, made of a `number` if the judge gives one; or Unscored.

        Raises on failure, such as an outage or a reply that is no verdict; it never returns 0 for
        an error. Several threads call it at once.
        """


@runtime_checkable
class RankingJudge(Judge, Protocol):
    """A judge that can compare the answers to one question; optional."""

    def rank(self, cases: Sequence[JudgeCase]) -> Sequence[Verdict | Unscored]:
        """Judge the answers of a group together: a score from 0 to 1 for each, in their order.

        All cases have the same question. Equal answers get equal scores.
        """


@runtime_checkable
class PaidJudge(Judge, Protocol):
    """A judge whose calls cost money or time; optional."""

    @property
    def traffic(self) -> Traffic:
        """Requests, tokens and cost so far."""

    def estimate(self, num_groups: int, group_size: int) -> Traffic:
        """Estimate the cost of judging so many groups; size 1: answers one by one.

        It counts no repeated calls. Raises ConfigError if the judge cannot be used at all: this is
        called before anything starts.
        """
