"""What of the trajectories of a step is trained on, and with which numbers.

Owns what enters a training step (unscored rollouts and, without a KL term, groups of one reward
leave it), the broadcast of advantages onto tokens, and the token weights, which carry the
denominator of a whole optimiser step and are fixed before any split (`batches`). Only MODEL tokens
with a finite sampler log-prob are trained; those of a demonstration have the log-prob 0.
"""

from __future__ import annotations

import math
import numbers
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, pairwise
from typing import Any, TypeVar

from searchrl.core.advantage import (
    Advantage,
    AdvantageFn,
    StepScores,
    TargetFn,
    dead_groups,
    solved_groups,
)
from searchrl.core.group import Group, Trainable, settle
from searchrl.core.reduction import Reduction, token_weights
from searchrl.core.trajectory import Author, Origin, Trajectory
from searchrl.engine.model.layout import TokenRow
from searchrl.errors import PluginError

R = TypeVar("R")

RowId = tuple[str, int]
"""A rollout by its name, and the number of a segment."""


@dataclass(frozen=True, slots=True)
class PackedRollout(TokenRow):
    """One segment of a rollout: `ids` and `mask` over its tokens, other columns over the trained.

    `mask` marks the tokens that are trained. `advantage` is one number where the algorithm gave
    one, else a column.
    """

    rollout_id: str
    sampler_logp: list[float]
    advantage: float | tuple[float, ...]
    weight: float
    """Of a token in the loss; 0: the rollout is here for LLDS alone."""
    hold_weight: float = 0.0
    """Of a token with A >= 0 in the LLDS term; 0: LLDS does not watch this rollout."""
    target: float | tuple[float, ...] | None = None
    """What the values of its tokens are to become; None: nobody says."""
    old_value: float | tuple[float, ...] | None = None
    """What a critic expected of its tokens before the step; None: there is none."""
    points: tuple[int, ...] | None = None
    """Of each trained token, the first one of its turn, where a value is that of a turn."""
    is_off: bool = False
    """Whether it is a demonstration or replayed: not sampled in this step."""
    segment: int = 0
    """Its number among those of the rollout, from 0."""

    @property
    def row_id(self) -> RowId:
        """Names it within a step."""
        return self.rollout_id, self.segment

    @property
    def hold_weights(self) -> list[float]:
        """The LLDS weight of each trained token."""
        column = self.advantage
        if not isinstance(column, tuple):
            column = (column,) * len(self.sampler_logp)
        return [self.hold_weight if value >= 0 else 0.0 for value in column]


@dataclass(frozen=True, slots=True)
class PackedStep:
    """Everything one training step trains on, and what left it."""

    groups: tuple[Group[PackedRollout], ...]
    num_unscored: int
    num_groups: int
    num_dead_groups: int
    num_nonfinite: int

    @property
    def rollouts(self) -> list[PackedRollout]:
        """The rollouts of all groups."""
        return members(self.groups)


def pack_step(
    groups: Sequence[Group[Trainable]],
    advantages: AdvantageFn,
    reduction: Reduction,
    *,
    keep_dead_groups: bool,
    constant: int,
    holds_solved_groups: bool = False,
    length_penalty: Callable[[int], float] | None = None,
    critic: Mapping[str, Sequence[float]] | None = None,
    per_token: bool = False,
    token_kl: Mapping[str, Sequence[float]] | None = None,
    targets: TargetFn | None = None,
    off_policy: bool = False,
    owner: str = "the algorithm",
) -> PackedStep:
    """Decide advantages, mask, denominator and reduction for one whole training step.

    GRPO uses neither `critic`, `targets`, `holds_solved_groups` nor `length_penalty`.

    Args:
        groups: all groups of the step, of any size.
        advantages: sees every score of the step at once.
        reduction: how tokens become one number.
        keep_dead_groups: True where something else has a gradient there: the KL term, a critic.
        constant: token budget for the constant reduction.
        holds_solved_groups: True where LLDS may act: good rollouts get a `hold_weight`, those of
            all-correct groups too, which are dead and may be in no other term.
        length_penalty: of the tokens the model wrote; added to the reward before anything is
            compared with it.
        critic: of each rollout, by its name, the values of its turns or tokens, as these stand in
            the record, then that of the end where it was cut; None: there is no critic.
        per_token: whether these are of tokens.
        token_kl: of each rollout, by its name, log-prob minus that of the reference; None: nobody
            asked.
        targets: what values are to become; with a `critic`.
        off_policy: whether the loss can take demonstrations.
        owner: who is named for advantages that fit no rollout.

    Raises:
        ValueError: if a demonstration is offered (it has no sampler log-probs) and not
            `off_policy`, or two groups or two rollouts have one id.
        PluginError: if a group is none, or the advantages are not one per rollout, per turn or per
            token.
    """
    items = _select(groups, owner, off_policy)
    num_tokens = [item.trajectory.num_model_tokens for item in items]
    added = [0.0 if length_penalty is None else length_penalty(count) for count in num_tokens]
    # Of an unscored rollout the reward is not read.
    rewards = [(item.reward or 0.0) + more for item, more in zip(items, added, strict=True)]
    turn_scores = [item.turn_scores for item in items]
    earned = [
        (*own[:-1], own[-1] + more) if own else settle(item.turn_rewards, reward)
        for own, more, item, reward in zip(turn_scores, added, items, rewards, strict=True)
    ]
    values = None if critic is None else _by_turns(critic, items, per_token)
    scores = StepScores(
        rewards=rewards,
        group_ids=[group.id for group in groups for _ in group.rollouts],
        is_scored=[item.reward is not None for item in items],
        turn_scores=[one or () for one in turn_scores] if any(turn_scores) else None,
        num_turns=[len(item.trajectory.turns) for item in items],
        num_tokens=num_tokens,
        turn_tokens=[[turn.stop - turn.start for turn in i.trajectory.turns] for i in items],
        turn_rewards=earned,
        is_cut=[item.is_cut for item in items],
        values=values,
        token_kl=None if token_kl is None else _by_turns(token_kl, items, True),
    )
    found = _checked(advantages(scores), items, owner)
    aims: Sequence[Advantage | None] = [None] * len(items)
    olds: Sequence[Advantage | None] = [None] * len(items)
    if targets is not None:
        aims = _checked(targets(scores), items, owner, "target")
    if values is not None:
        # Without the value of what was seen at the end of a cut episode.
        olds = [v[: len(v) - item.is_cut] for v, item in zip(values, items, strict=True)]
    dead = dead_groups(found, scores.group_ids, scores.is_scored)
    in_loss = set(scores.group_ids) - (set() if keep_dead_groups else dead)
    held = set(scores.group_ids) - (dead - solved_groups(scores)) if holds_solved_groups else set()
    credited: dict[str, list[PackedRollout]] = {group.id: [] for group in groups}
    num_nonfinite = 0
    said = zip(items, scores.group_ids, found, aims, olds, strict=True)
    for item, name, value, aim, old in said:
        if item.reward is None or name not in in_loss | held:
            continue
        rows = _credit(item.trajectory, value, aim, old, name in in_loss, name in held)
        num_nonfinite += item.trajectory.num_model_tokens - sum(sum(row.mask) for row in rows)
        credited[name] += [row for row in rows if any(row.mask)]
    kept = [Group(name, tuple(rollouts)) for name, rollouts in credited.items() if rollouts]
    return PackedStep(
        groups=weigh(kept, reduction, constant),
        num_unscored=scores.is_scored.count(False),
        num_groups=sum(bool(group.rollouts) for group in groups),
        num_dead_groups=len(dead),
        num_nonfinite=num_nonfinite,
    )


def _select(groups: Sequence[Group[Trainable]], owner: str, off_policy: bool) -> list[Trainable]:
    """The rollouts of a step, group after group; whatever cannot enter a ratio is refused."""
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


def _credit(
    trajectory: Trajectory,
    value: Advantage,
    aim: Advantage | None,
    old_value: Advantage | None,
    is_in_loss: bool,
    is_held: bool,
) -> list[PackedRollout]:
    """The segments of a rollout with what was said of it on its trained tokens.

    A weight is 1 or 0 here: whether it is in that term.
    """
    mask = trajectory.trained
    logps = zip(trajectory.sampler_logps, mask, strict=True)
    whole = PackedRollout(
        list(trajectory.ids),
        mask,
        trajectory.num_prompt_tokens,
        trajectory.rollout_id,
        [logp or 0.0 for logp, is_trained in logps if is_trained],
        _broadcast(value, trajectory, mask),
        weight=float(is_in_loss),
        hold_weight=float(is_held),
        target=None if aim is None else _broadcast(aim, trajectory, mask),
        old_value=None if old_value is None else _broadcast(old_value, trajectory, mask),
        points=_points(old_value, trajectory, mask),
        is_off=trajectory.origin is not Origin.SAMPLED,
    )
    return _split(whole, trajectory.starts)


def _split(row: PackedRollout, starts: Sequence[int]) -> list[PackedRollout]:
    """A row for each segment of a rollout: what the model saw at once."""
    if len(starts) == 1:
        return [row]
    rows = []
    for number, (start, stop) in enumerate(pairwise((*starts, len(row.ids)))):
        mask, at = row.mask[start:stop], sum(row.mask[:start])
        trained = slice(at, at + sum(mask))

        rows.append(
            replace(
                row,
                ids=row.ids[start:stop],
                mask=mask,
                num_prompt=mask.index(True) if any(mask) else stop - start,
                sampler_logp=row.sampler_logp[trained],
                advantage=_cut(row.advantage, trained),
                target=row.target and _cut(row.target, trained),
                old_value=row.old_value and _cut(row.old_value, trained),
                points=row.points and tuple(point - at for point in row.points[trained]),
                segment=number,
            )
        )
    return rows


def _cut(said: float | tuple[float, ...], part: slice) -> float | tuple[float, ...]:
    return said[part] if isinstance(said, tuple) else said


def _points(
    values: Advantage | None, trajectory: Trajectory, mask: Sequence[bool]
) -> tuple[int, ...] | None:
    """Of each trained token the first one of its turn; None: values are not those of turns."""
    if not isinstance(values, Sequence) or len(values) != len(trajectory.turns):
        return None
    return _over_trained([sum(mask[: turn.start]) for turn in trajectory.turns], trajectory, mask)


def last_segment(trajectory: Trajectory) -> int:
    """The number of the segment that was asked last."""
    return bisect_right(trajectory.starts, trajectory.turns[-1].start) - 1


def point_rows(
    groups: Sequence[Group[Trainable]], *, per_token: bool, with_end: bool
) -> list[Group[PackedRollout]]:
    """The rollouts, marked where a critic is asked: before each turn or token the model wrote.

    Where the episode was cut and `with_end`, one more id is behind the segment that was asked last:
    what was seen there is before it.
    """

    def rows(item: Trainable) -> list[PackedRollout]:
        trajectory = item.trajectory
        starts = {turn.start for turn in trajectory.turns}
        mask = [
            author is Author.MODEL and (per_token or place in starts)
            for place, author in enumerate(trajectory.authors)
        ]
        ids, begins = [*trajectory.ids], trajectory.starts
        if with_end and item.is_cut and starts:
            last = last_segment(trajectory)
            stop = trajectory.segments[last].stop
            ids.insert(stop, 1)
            mask.insert(stop, True)
            begins = tuple(start + (number > last) for number, start in enumerate(begins))
        own = (trajectory.num_prompt_tokens, trajectory.rollout_id, [0.0] * sum(mask))
        return _split(PackedRollout(ids, mask, *own, advantage=0.0, weight=1.0), begins)

    return [Group(group.id, tuple(chain(*map(rows, group.rollouts)))) for group in groups]


def _checked(
    values: Any, items: Sequence[Trainable], owner: str, what: str = "advantage"
) -> list[Advantage]:
    """The advantages (or targets) as plain numbers and tuples, each fit for its rollout.

    Whatever an unscored rollout was given is not read; its advantage becomes 0.
    """
    values = _plain(values)
    if not isinstance(values, list) or len(values) != len(items):
        got = len(values) if isinstance(values, list) else type(values).__name__
        raise PluginError(f"{owner}: expected {len(items)} {what}s, one per rollout, got {got}")
    checked: list[Advantage] = []
    for value, item in zip(map(_plain, values), items, strict=True):
        if item.reward is None:
            checked.append(0.0)
            continue
        name, trajectory = item.trajectory.rollout_id, item.trajectory
        given = [_plain(one) for one in value] if isinstance(value, list) else [value]
        for one in given:
            if not isinstance(one, numbers.Real) or not math.isfinite(one):
                raise PluginError(f"{owner}: the {what} of {name} is {one!r}; expected a number")
        turns, tokens = len(trajectory.turns), trajectory.num_model_tokens
        if isinstance(value, list) and len(value) not in (turns, tokens):
            raise PluginError(
                f"{owner}: {len(value)} {what}s for {name}; expected one number, {turns} (one "
                f"per turn) or {tokens} (one per token the model wrote)"
            )
        column = tuple(float(one) for one in given)
        checked.append(column if isinstance(value, list) else column[0])
    return checked


def _plain(value: Any) -> Any:
    """Lists for tuples, arrays and tensors; anything else as it is."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return list(value) if isinstance(value, tuple) else value


def _broadcast(
    value: Advantage, trajectory: Trajectory, mask: Sequence[bool]
) -> float | tuple[float, ...]:
    """One number as it is; one per turn or per model token as a column over the trained tokens."""
    if not isinstance(value, Sequence):
        return value
    # As many turns as tokens: every turn is one token, and both readings agree.
    if len(value) == len(trajectory.turns):
        return _over_trained(value, trajectory, mask)
    lengths = [turn.stop - turn.start for turn in trajectory.turns]
    behind = list(accumulate(lengths, initial=0))
    said = {
        place: value[before + number]
        for turn, before in zip(trajectory.turns, behind, strict=False)
        for number, place in enumerate(range(turn.start, turn.stop))
    }
    return tuple(said[place] for place, is_trained in enumerate(mask) if is_trained)


def _over_trained(
    per_turn: Sequence[R], trajectory: Trajectory, mask: Sequence[bool]
) -> tuple[R, ...]:
    """What is said of each turn as a column over the trained tokens."""
    turns = zip(trajectory.turns_of, mask, strict=True)
    return tuple(per_turn[turn] for turn, is_trained in turns if is_trained)


def _by_turns(
    columns: Mapping[str, Sequence[float]], items: Sequence[Trainable], per_token: bool
) -> list[Sequence[float]]:
    """Columns over tokens or turns as they stand, in the order of turns: segments may alternate."""
    found: list[Sequence[float]] = []
    for item in items:
        column, turns = columns[item.trajectory.rollout_id], item.trajectory.turns
        if len(item.trajectory.starts) == 1:
            found.append(column)
            continue
        sizes = {t.index: t.stop - t.start if per_token else 1 for t in turns}
        starts, at = {}, 0
        for turn in sorted(turns, key=lambda one: one.start):
            starts[turn.index], at = at, at + sizes[turn.index]
        own = [column[starts[n] : starts[n] + sizes[n]] for n in range(len(turns))]
        found.append([*chain(*own), *column[at:]])
    return found


def weigh(
    groups: Sequence[Group[PackedRollout]], reduction: Reduction, constant: int
) -> tuple[Group[PackedRollout], ...]:
    """The groups of one optimiser step with their weights: one denominator for each term.

    A weight of 0 stays 0: the rollout is not in that term.
    """
    in_loss: Counter[str] = Counter()
    held: Counter[str] = Counter()
    for row in members(groups):
        in_loss[row.rollout_id] += len(row.sampler_logp) if row.weight else 0
        held[row.rollout_id] += sum(weight > 0 for weight in row.hold_weights)

    def weights_of(counts: Counter[str]) -> dict[str, float]:
        each = token_weights([*counts.values()], reduction, constant=constant)
        return dict(zip(counts, each, strict=True))

    weights, holds = weights_of(in_loss), weights_of(held)

    def weighed(row: PackedRollout) -> PackedRollout:
        name = row.rollout_id
        return replace(row, weight=weights[name], hold_weight=holds[name])

    return tuple(Group(group.id, tuple(map(weighed, group.rollouts))) for group in groups)


def members(groups: Iterable[Group[R]]) -> list[R]:
    """The rollouts of all groups, in order."""
    return [rollout for group in groups for rollout in group.rollouts]
