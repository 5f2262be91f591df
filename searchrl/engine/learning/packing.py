"""Rows of a step: which tokens of its rollouts are trained, and with which columns.

Owns what enters a training step (unscored rollouts and, without a KL term, groups of one reward
leave it), the spread of columns over tokens, and the token weights, which carry the denominator of
a whole optimiser step and are fixed before any split (`batches`). Only MODEL tokens with a finite
sampler log-prob are trained; those of a demonstration have the log-prob 0.
"""

from __future__ import annotations

import math
import numbers
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from searchrl.algorithms.record import Algorithm
from searchrl.core.advantage import Column, Per, StepScores, dead_groups
from searchrl.core.group import Group, Trainable
from searchrl.core.reduction import LossSettings, Reduction, token_weights
from searchrl.core.trajectory import Origin, RowId, Trajectory
from searchrl.engine.model.layout import TokenRow
from searchrl.errors import PluginError

R = TypeVar("R")

ADVANTAGE, WEIGHT, LOGP = "advantage", "weight", "sampler_logp"
"""Columns of every row; the algorithm adds others."""
TURN = "turn"
"""Number of a token's turn, where a critic has one value per turn."""


@dataclass(frozen=True, slots=True)
class PackedRow(TokenRow):
    """One segment of a rollout: `ids` and `mask` over its tokens, columns over the trained ones.

    `mask` marks the trained tokens. A column is one number, or one per trained token.
    """

    rollout_id: str
    segment: int = 0
    """Its number among those of the rollout, from 0."""
    is_off: bool = False
    """True for a demonstration or a replay: not sampled in this step."""
    columns: Mapping[str, Column] = field(default_factory=dict)
    terms: Sequence[str] = ()
    """Columns that weigh a term of the loss; 0: the token is not in that term."""

    @property
    def row_id(self) -> RowId:
        """Its name within a step."""
        return self.rollout_id, self.segment

    @property
    def num_trained(self) -> int:
        """Trained tokens."""
        return sum(self.mask)

    def over_tokens(self, name: str) -> tuple[float, ...]:
        """Return a column with one number per trained token."""
        return self.columns[name].over([self.num_trained])[0]


class Known(NamedTuple):
    """Figures of each rollout of a step that an algorithm asked for, before the first update."""

    values: Sequence[Column] | None = None
    end_values: Sequence[float | None] | None = None
    token_kl: Sequence[Column] | None = None


@dataclass(frozen=True, slots=True)
class PackedStep:
    """Everything one training step trains on, and counts of what it dropped."""

    groups: tuple[Group[PackedRow], ...]
    num_unscored: int
    num_groups: int
    num_dead_groups: int
    num_nonfinite: int

    @property
    def rows(self) -> list[PackedRow]:
        """The rows of all groups."""
        return members(self.groups)


def pack_step(
    groups: Sequence[Group[Trainable]],
    algorithm: Algorithm,
    settings: LossSettings,
    *,
    constant: int = 4096,
    known: Known = Known(),  # noqa: B008  (immutable)
    max_updates: int = 1,
) -> PackedStep:
    """Decide advantages, mask, denominator and reduction for one whole training step.

    Args:
        groups: all groups of the step, of any size.
        algorithm: its advantages and columns see every score of the step at once.
        settings: `algorithm.resolve` of the run. With a KL term groups of one reward stay.
        constant: token budget for the constant reduction and the length penalty.
        known: figures of the rollouts that the algorithm asked for.
        max_updates: most optimiser steps on these rollouts.

    Raises:
        ValueError: if a demonstration is offered (it has no sampler log-probs) and the algorithm is
            not `off_policy`, or two groups or two rollouts have one id.
        PluginError: if `groups` holds something else, or columns do not fit the rollouts.
    """
    owner = f"algorithm '{algorithm.name}'"
    items = _select(groups, owner, algorithm.off_policy)
    penalty = algorithm.length_penalty_of(constant)
    added = [0.0 if penalty is None else penalty(i.trajectory.num_model_tokens) for i in items]
    rewards = [(item.reward or 0.0) + more for item, more in zip(items, added, strict=True)]
    scores = StepScores(
        rewards=rewards,
        group_ids=[group.id for group in groups for _ in group.rollouts],
        is_scored=[item.reward is not None for item in items],
        rollouts=items,
        turn_rewards=[
            (*earned[:-1], earned[-1] + more) if earned else ()
            for item, more in zip(items, added, strict=True)
            for earned in [item.turn_scores or item.turn_rewards]
        ],
        max_updates=max_updates,
        **known._asdict(),
    )
    advantages = _checked(algorithm.advantages(scores), scores, owner, ADVANTAGE)
    extra = {
        name: _checked(columns, scores, owner, name)
        for name, columns in algorithm.columns(scores).items()
    }
    if taken := {LOGP, ADVANTAGE, WEIGHT, TURN} & extra.keys():
        raise PluginError(f"{owner}: its column '{taken.pop()}' is the learner's; rename it")
    for term in algorithm.terms if extra else ():
        if any(
            one not in (0, 1) for flags in extra.get(term, [Column([-1])]) for one in flags.values
        ):
            raise PluginError(
                f"{owner}: its term '{term}' must be a column of 0 and 1; it adds {[*extra]}"
            )
    if algorithm.critic is not None and not algorithm.critic.per_token:
        extra[TURN] = [Column(range(len(item.trajectory.turns))) for item in items]
    plain = [one.values[0] if one.per is Per.ROLLOUT else one for one in advantages]
    dead = dead_groups(plain, scores.group_ids, scores.is_scored)
    keeps_dead = settings.beta > 0 or algorithm.critic is not None
    weights = [
        Column([float(keeps_dead or name not in dead)], Per.ROLLOUT) for name in scores.group_ids
    ]
    terms = [WEIGHT, *(name for name in algorithm.terms if name in extra)]
    columns = {ADVANTAGE: advantages, WEIGHT: weights, **extra}
    packed: dict[str, list[PackedRow]] = {group.id: [] for group in groups}
    num_nonfinite = 0
    for number, (item, name) in enumerate(zip(items, scores.group_ids, strict=True)):
        values = {key: column[number] for key, column in columns.items()}
        if item.reward is None or not any(any(values[term].values) for term in terms):
            continue
        rows = _rows(item.trajectory, values, terms)
        num_nonfinite += item.trajectory.num_model_tokens - sum(row.num_trained for row in rows)
        packed[name] += [row for row in rows if row.num_trained]
    kept = [Group(name, tuple(rows)) for name, rows in packed.items() if rows]
    return PackedStep(
        groups=weigh(kept, Reduction(settings.reduction), constant),
        num_unscored=scores.is_scored.count(False),
        num_groups=sum(bool(group.rollouts) for group in groups),
        num_dead_groups=len(dead),
        num_nonfinite=num_nonfinite,
    )


def _select(groups: Sequence[Group[Trainable]], owner: str, off_policy: bool) -> list[Trainable]:
    """Return the rollouts of a step in order; raise for any that cannot enter a ratio."""
    if strange := [group for group in groups if not isinstance(group, Group)]:
        raise PluginError(
            f"{owner}: its extend() returned a {type(strange[0]).__name__} among its groups; "
            "expected groups as they were handed to it, with other rollouts (dataclasses.replace)"
        )
    items = members(groups)
    for item in items:
        if item.trajectory.origin is Origin.DEMONSTRATION and not off_policy:
            raise ValueError(
                f"rollout {item.trajectory.rollout_id} is a demonstration: it has no sampler "
                "log-probs and cannot enter a ratio; use sft, or an algorithm that is off_policy"
            )
    for what, names, remedy in (
        ("groups", [group.id for group in groups], "put all its rollouts into one group"),
        (
            "rollouts",
            [i.trajectory.rollout_id for i in items],
            "give a copy a rollout_id of its own",
        ),
    ):
        name, count = max(Counter(names).items(), key=lambda pair: pair[1], default=("", 0))
        if count > 1:
            raise ValueError(f"{count} {what} of this step have the id {name!r}: {remedy}")
    return items


def _rows(
    trajectory: Trajectory, columns: Mapping[str, Column], terms: Sequence[str]
) -> list[PackedRow]:
    sizes = [turn.stop - turn.start for turn in trajectory.turns]
    spread = {name: one.over(sizes) for name, one in columns.items() if one.per is not Per.ROLLOUT}
    rows = []
    for number, (segment, turns) in enumerate(trajectory.by_segment()):
        trained = segment.trained
        kept = [
            (turn.index, place - turn.start, place)
            for turn in turns
            for place in range(turn.start, turn.stop)
            if trained[place]
        ]
        over = {
            name: Column([parts[turn][at] for turn, at, _ in kept], Per.TOKEN)
            for name, parts in spread.items()
        }
        over[LOGP] = Column([segment.logps[place] or 0.0 for *_, place in kept], Per.TOKEN)
        rows.append(
            PackedRow(
                list(segment.ids),
                trained,
                trajectory.rollout_id,
                number,
                trajectory.origin is not Origin.SAMPLED,
                {**columns, **over},
                terms,
            )
        )
    return rows


def _checked(values: Any, scores: StepScores, owner: str, what: str) -> list[Column]:
    """Check a column of the algorithm against the rollouts. Unscored ones get 0."""
    values = values.tolist() if hasattr(values, "tolist") else values
    count = len(scores.rollouts)
    if not isinstance(values, list | tuple) or len(values) != count:
        got = len(values) if isinstance(values, list | tuple) else type(values).__name__
        raise PluginError(f"{owner}: expected {count} {what}s, one per rollout, got {got}")
    checked: list[Column] = []
    for value, rollout, sizes in zip(values, scores.rollouts, scores.turn_sizes, strict=True):
        if rollout.reward is None:
            checked.append(Column([0.0], Per.ROLLOUT))
            continue
        name = rollout.trajectory.rollout_id
        value = value.tolist() if hasattr(value, "tolist") else value
        column = value if isinstance(value, Column) else Column([value], Per.ROLLOUT)
        given = [one.tolist() if hasattr(one, "tolist") else one for one in column.values]
        for one in given:
            if not isinstance(one, numbers.Real) or not math.isfinite(one):
                raise PluginError(
                    f"{owner}: the {what} of {name} is {one!r}; expected a number, or a Column of "
                    "numbers per turn or per token"
                )
        if len(given) != (expected := column.expected(sizes)):
            raise PluginError(
                f"{owner}: {len(given)} {what}s for {name}; expected {expected}, one per "
                f"{column.per}"
            )
        checked.append(Column([float(one) for one in given], column.per))
    return checked


def weigh(
    groups: Sequence[Group[PackedRow]], reduction: Reduction, constant: int
) -> tuple[Group[PackedRow], ...]:
    """The groups of one optimiser step with their weights: one denominator for each term.

    A weight of 0 stays 0: the token is not in that term.
    """
    rows = members(groups)
    weights: dict[str, dict[str, float]] = {}
    for term in dict.fromkeys(term for row in rows for term in row.terms):
        counts: Counter[str] = Counter()
        for row in rows:
            counts[row.rollout_id] += sum(one > 0 for one in row.over_tokens(term))
        each = token_weights([*counts.values()], reduction, constant=constant)
        weights[term] = dict(zip(counts, each, strict=True))

    def weighed(row: PackedRow) -> PackedRow:
        reweighed = {
            term: Column([weights[term][row.rollout_id] if v > 0 else 0.0 for v in old.values], per)
            for term in row.terms
            for old in [row.columns[term]]
            for per in [old.per]
        }
        return replace(row, columns={**row.columns, **reweighed})

    return tuple(Group(group.id, tuple(map(weighed, group.rollouts))) for group in groups)


def members(groups: Iterable[Group[R]]) -> list[R]:
    """The rollouts of all groups, in order."""
    return [rollout for group in groups for rollout in group.rollouts]
