"""Group-relative advantages: how much better a rollout did than its siblings.

    GRPO      A_i = (r_i - mean) / (std + delta)     DeepSeekMath, arXiv 2402.03300, section 4.1.2
    Dr. GRPO  A_i = r_i - mean                       arXiv 2503.20783, section 3.2
    RLOO      A_i = r_i - mean of the others         arXiv 2402.14740 (Kool et al. 2019)
    REINFORCE++-baseline  A_i = (r_i - mean) / (std of the step + delta)        arXiv 2501.03262
    GRPO per turn         A_ij = sum over j' >= j of (s_ij' - mean) / (std + delta)
                          over all turn scores s of the group        arXiv 2402.03300, section 4.1.3

`mean` and `std` run over the *scored* rollouts of one group (one prompt instance). Left out: the
value network (no critic in the core; `StepScores` carries the values of one that is put in, and an
advantage may be a `Column` per turn or per token). Dr. GRPO's other half, dividing by a constant
instead of the length, is `Reduction.CONSTANT` in `core.reduction`.

Plain Python floats (float64) and no torch: a step has tens of rewards, and a mean taken in fp32
gives constant groups a non-zero advantage. Called by `pack_step`, once per training step.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from itertools import accumulate, pairwise

from searchrl.core.group import Trainable

GRPO_DELTA = 1e-6
"""Added to the standard deviation, so that two rewards a rounding error apart stay near 0."""


class Per(StrEnum):
    """Unit of the numbers of a column."""

    ROLLOUT = "rollout"
    TURN = "turn"
    """Turns in the order of the policy's requests."""
    TOKEN = "token"
    """Tokens that the model wrote, turn after turn."""


@dataclass(frozen=True, slots=True)
class Column:
    """Numbers of one rollout: one for all of it, one per turn, or one per token it wrote.

    `per` may be given as text. Raises ValueError for another unit.
    """

    values: Sequence[float]
    per: Per | str = Per.TURN

    def __post_init__(self) -> None:
        object.__setattr__(self, "per", Per(self.per))

    def expected(self, sizes: Sequence[int]) -> int:
        """Return how many numbers a rollout needs whose turns have `sizes` tokens."""
        return {Per.ROLLOUT: 1, Per.TURN: len(sizes), Per.TOKEN: sum(sizes)}[Per(self.per)]

    def over(self, sizes: Sequence[int]) -> list[tuple[float, ...]]:
        """Return, for each turn, one number per token; turns have `sizes` tokens.

        >>> Column([0.5, 2.0], "turn").over([1, 2])
        [(0.5,), (2.0, 2.0)]
        """
        values = tuple(self.values)
        match self.per:
            case Per.ROLLOUT:
                return [values * size for size in sizes]
            case Per.TURN:
                return [(one,) * size for one, size in zip(values, sizes, strict=True)]
        ends = accumulate(sizes, initial=0)
        return [values[start:stop] for start, stop in pairwise(ends)]


@dataclass(frozen=True, slots=True)
class StepScores:
    """The scores of one whole training step, one entry per rollout (B) in every column.

    `group_ids` name the prompt instance, never a dataset index: two data sets share indices. The
    reward of an unscored rollout is never read and may be NaN. The packer always gives `rollouts`
    and `turn_rewards`; a figure that the algorithm does not ask for is None.
    """

    rewards: Sequence[float]
    """Rewards with the length penalty."""
    group_ids: Sequence[str]
    is_scored: Sequence[bool]
    rollouts: Sequence[Trainable] = ()
    """Tokens and turns, the score and weight of every component, the task, and the rest."""
    turn_rewards: Sequence[Sequence[float]] | None = None
    """Process scores, with the outcome in the last; without any, the environment's own rewards and
    the rest of the reward in the last."""
    values: Sequence[Column] | None = None
    """Expectations of a critic before the update, per turn or per token."""
    end_values: Sequence[float | None] | None = None
    """The critic's expectation at the end of an episode that a limit cut; None for others."""
    token_kl: Sequence[Column] | None = None
    """Log-prob minus the reference's, per token."""
    max_updates: int = 1
    """Most optimiser steps that are taken on these rollouts."""

    def __post_init__(self) -> None:
        columns = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "max_updates"}
        if not self.rollouts:
            del columns["rollouts"]
        _ensure_same_length(**{name: one for name, one in columns.items() if one is not None})

    @property
    def turn_sizes(self) -> list[list[int]]:
        """Tokens of each turn that the model wrote, for every rollout."""
        return [[turn.stop - turn.start for turn in r.trajectory.turns] for r in self.rollouts]


Advantage = float | Column
"""Advantage of one rollout: a number for all of it, or a column per turn or per token."""

AdvantageFn = Callable[[StepScores], Sequence[Advantage]]
"""Function of the whole step that returns one advantage per rollout, in order."""

ColumnsFn = Callable[[StepScores], Mapping[str, Sequence[Advantage]]]
"""Function of the whole step that returns further columns for the loss: one entry per rollout."""


def grpo_advantages(step: StepScores, *, delta: float = GRPO_DELTA) -> list[float]:
    """Return (r - mean) / (std + delta) within each group; std is the population's (ddof 0).

    Adding a constant to a group's rewards changes nothing; scaling them by c changes nothing
    beyond `delta` (exactly: it is the same as dividing `delta` by c). Raises ValueError for a
    scored reward that is not finite.

    >>> step = StepScores([1.0, 0.0, 0.0, 1.0], ["q"] * 4, [True] * 4)
    >>> [round(a, 5) for a in grpo_advantages(step)]
    [1.0, -1.0, -1.0, 1.0]
    """
    if not delta > 0:
        raise ValueError(f"delta must be > 0, got {delta!r}: it keeps the division defined")

    def normalise(rewards_G: list[float]) -> list[float]:
        mean = statistics.fmean(rewards_G)
        std = statistics.pstdev(rewards_G)
        return [(reward - mean) / (std + delta) for reward in rewards_G]

    return _per_group(step, normalise)


def dr_grpo_advantages(step: StepScores) -> list[float]:
    """Return r - mean within each group.

    Without the division by std, a prompt that is almost always (or almost never) solved no
    longer weighs more than one solved half of the time.
    """

    def centre(rewards_G: list[float]) -> list[float]:
        mean = statistics.fmean(rewards_G)
        return [reward - mean for reward in rewards_G]

    return _per_group(step, centre)


def rloo_advantages(step: StepScores) -> list[float]:
    """Return r minus the mean reward of the *other* rollouts of the group (leave one out).

    The baseline is independent of the rollout it judges, so the advantage brings no bias. Equal to
    Dr. GRPO's advantage times G / (G - 1).
    """

    def leave_one_out(rewards_G: list[float]) -> list[float]:
        total, num_others = math.fsum(rewards_G), len(rewards_G) - 1
        return [reward - (total - reward) / num_others for reward in rewards_G]

    return _per_group(step, leave_one_out)


def reinforce_pp_baseline_advantages(step: StepScores, *, delta: float = GRPO_DELTA) -> list[float]:
    """Return (r - mean of the group) / (std of the step + delta): REINFORCE++-baseline.

    The std is that of r - mean over all scored rollouts of the step, constant groups included. So
    a group whose rewards hardly differ no longer weighs as much as one that is split. Raises
    ValueError like `grpo_advantages`.

    >>> step = StepScores([2.0, 0.0, 1.0, 1.0], ["p", "p", "q", "q"], [True] * 4)
    >>> [round(a, 5) for a in reinforce_pp_baseline_advantages(step)]
    [1.41421, -1.41421, 0.0, 0.0]
    """
    if not delta > 0:
        raise ValueError(f"delta must be > 0, got {delta!r}: it keeps the division defined")
    centred = dr_grpo_advantages(step)
    scored = [value for value, is_scored in zip(centred, step.is_scored, strict=True) if is_scored]
    std = statistics.pstdev(scored) if scored else 0.0
    return [value / (std + delta) for value in centred]


def turn_advantages(step: StepScores, *, delta: float = GRPO_DELTA) -> list[Advantage]:
    """Return one advantage per turn: the normalised scores of this turn and of all later ones.

    Scores are those of `turn_rewards`, so the outcome is part of the last turn's, and they are
    normalised over all turns of the group's scored rollouts. A turn never pays for an earlier one.
    In a group whose turns no reward scores, this is GRPO.

    >>> from searchrl.core.group import TrainItem
    >>> from searchrl.core.trajectory import Trajectory
    >>> good, bad = (TrainItem(Trajectory(n, "q"), 0.0, turn_scores=(1.0, 1.0)) for n in "ab")
    >>> step = StepScores([2.0, 0.0], ["q", "q"], [True, True], [good, bad],
    ...                   turn_rewards=[[1.0, 1.0], [1.0, -1.0]])
    >>> [[round(a, 3) for a in one.values] for one in turn_advantages(step)]
    [[1.155, 0.577], [-1.155, -1.732]]
    """
    advantages: list[Advantage] = [*grpo_advantages(step, delta=delta)]
    if step.turn_rewards is None:
        return advantages
    for group_id in dict.fromkeys(step.group_ids):
        rows = zip(step.group_ids, step.is_scored, strict=True)
        members = [i for i, row in enumerate(rows) if row == (group_id, True)]
        if not any(step.rollouts[i].turn_scores for i in members):
            continue
        scores_S = [score for i in members for score in step.turn_rewards[i]]
        mean, std = statistics.fmean(scores_S), statistics.pstdev(scores_S)
        mean = mean if std else scores_S[0]  # exactly 0 where all are the same
        for i in members:
            normal = [(score - mean) / (std + delta) for score in step.turn_rewards[i]]
            advantages[i] = Column([math.fsum(normal[turn:]) for turn in range(len(normal))])
    return advantages


def overlong_penalty(num_tokens: int, *, limit: int, buffer: int, weight: float) -> float:
    """Return the penalty of a long rollout, weight * clip(x, -1, 0): at most 0.

    x = (limit - buffer - num_tokens) / buffer: nothing up to limit - buffer tokens written by the
    model, then falling in a straight line to -weight at `limit` (DAPO, arXiv 2503.14476, eq. 13).

    >>> [overlong_penalty(n, limit=100, buffer=20, weight=1.0) for n in (80, 90, 100, 300)]
    [0.0, -0.5, -1.0, -1.0]
    """
    return weight * min(0.0, max(-1.0, (limit - buffer - num_tokens) / buffer))


def dead_groups(
    advantages: Sequence[Advantage], group_ids: Sequence[str], is_scored: Sequence[bool]
) -> set[str]:
    """Return the ids of the groups whose every scored rollout has advantage 0 throughout.

    Only the KL term learns from them. At beta 0 they leave the step before any denominator is
    taken, or their tokens would shrink the loss of the others. A group without a scored rollout is
    dead too.
    """
    _ensure_same_length(advantages=advantages, group_ids=group_ids, is_scored=is_scored)
    alive = {
        group_id
        for advantage, group_id, scored in zip(advantages, group_ids, is_scored, strict=True)
        if scored and (any(advantage.values) if isinstance(advantage, Column) else advantage)
    }
    return set(group_ids) - alive


def _per_group(
    step: StepScores, advantages_of: Callable[[list[float]], list[float]]
) -> list[float]:
    """Apply `advantages_of` to the scored rewards of each group; everything else is exactly 0.

    Groups need not be contiguous. `advantages_of` sees only groups of at least two different
    rewards: equality is tested on the rewards themselves, because a mean of equal floats can
    differ from them in the last bit.
    """
    members: dict[str, list[int]] = {}
    for i, (reward, group_id, scored) in enumerate(
        zip(step.rewards, step.group_ids, step.is_scored, strict=True)
    ):
        if not scored:
            continue
        if not math.isfinite(reward):
            raise ValueError(
                f"rollout {i} of group {group_id!r} is scored but its reward is {reward!r}; "
                "expected a finite number. A reward that cannot score returns Unscored(reason)."
            )
        members.setdefault(group_id, []).append(i)

    advantages = [0.0] * len(step.rewards)
    for indices in members.values():
        rewards_G = [float(step.rewards[i]) for i in indices]
        if max(rewards_G) == min(rewards_G):  # singletons too
            continue
        for i, advantage in zip(indices, advantages_of(rewards_G), strict=True):
            advantages[i] = advantage
    return advantages


def _ensure_same_length(**columns: Sequence[object]) -> None:
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ValueError(f"expected one entry per rollout in every column, got lengths {listed}")
