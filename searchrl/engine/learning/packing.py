"""Trajectories to tensors: the columns a loss reads, split into mini- and micro-batches.

Owns what enters a training step (unscored rollouts and, without a KL term, groups of one reward
leave it), the broadcast of advantages onto tokens, the token weights, which carry the denominator
of a whole optimiser step and are fixed before any split, and both splits: mini-batches are
optimiser steps of their own, micro-batches change memory only. Only MODEL tokens with a finite
sampler log-prob are trained. Shapes: B rollouts, T tokens of one, N trained tokens of a
micro-batch.
"""

from __future__ import annotations

import math
import numbers
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

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
from searchrl.core.trajectory import Author, Origin, Trajectory, is_finite
from searchrl.engine.model.layout import Layout, TokenRow, lay_out, num_suffix_tokens
from searchrl.errors import PluginError

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class PackedRollout(TokenRow):
    """One rollout: `ids` and `mask` over all its tokens, the other columns over the trained ones.

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
        return _members(self.groups)


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Some rollouts and the columns that a loss reads: one entry per trained token, in order.

    `layout` is how the rollouts go through the policy; its log-probs stand in the same order.
    """

    rollouts: tuple[PackedRollout, ...]
    layout: Layout
    sampler_logp_N: Tensor
    adv_N: Tensor
    weight_N: Tensor
    hold_weight_N: Tensor
    rollout_N: Tensor
    """Position in `rollouts` of the rollout that a token belongs to."""
    target_N: Tensor | None = None
    """What values are to become; None: nobody says."""

    @property
    def rollout_ids(self) -> tuple[str, ...]:
        """Names of the rollouts, in order."""
        return tuple(rollout.rollout_id for rollout in self.rollouts)

    @property
    def num_tokens(self) -> list[int]:
        """Trained tokens of each rollout: how to split a column."""
        return [len(rollout.sampler_logp) for rollout in self.rollouts]


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
    targets: TargetFn | None = None,
    owner: str = "the algorithm",
) -> PackedStep:
    """Decide advantages, mask, denominator and reduction for one whole training step.

    GRPO uses neither `critic`, `targets`, `holds_solved_groups` nor `length_penalty`.

    Args:
        groups: all groups of the step, of any size.
        advantages: sees every score of the step at once.
        reduction: how tokens become one number.
        keep_dead_groups: True when beta > 0: the KL term still has a gradient there.
        constant: token budget for the constant reduction.
        holds_solved_groups: True where LLDS may act: good rollouts get a `hold_weight`, those of
            all-correct groups too, which are dead and may be in no other term.
        length_penalty: of the tokens the model wrote; added to the reward before anything is
            compared with it.
        critic: of each rollout, by its name, the values of its turns; None: there is no critic.
        targets: what values are to become; with a `critic`.
        owner: who is named for advantages that fit no rollout.

    Raises:
        ValueError: if a demonstration is offered (it has no sampler log-probs), or two groups or
            two rollouts have one id.
        PluginError: if a group is none, or the advantages are not one per rollout, per turn or per
            token.
    """
    items = _select(groups, owner)
    names = [item.trajectory.rollout_id for item in items]
    rewards = [item.reward or 0.0 for item in items]  # of an unscored rollout it is not read
    if length_penalty is not None:
        lengths = [item.trajectory.num_model_tokens for item in items]
        rewards = [one + length_penalty(n) for one, n in zip(rewards, lengths, strict=True)]
    turn_scores = [item.turn_scores for item in items]
    settled = [settle(item.turn_rewards, one) for item, one in zip(items, rewards, strict=True)]
    scores = StepScores(
        rewards=rewards,
        group_ids=[group.id for group in groups for _ in group.rollouts],
        is_scored=[item.reward is not None for item in items],
        turn_scores=[one or () for one in turn_scores] if any(turn_scores) else None,
        num_turns=[len(item.trajectory.turns) for item in items],
        num_tokens=[item.trajectory.num_model_tokens for item in items],
        values=None if critic is None else [critic[name] for name in names],
        turn_rewards=None if critic is None else settled,
        is_cut=None if critic is None else [item.is_cut for item in items],
    )
    found = _checked(advantages(scores), items, owner)
    aims: Sequence[Advantage | None] = [None] * len(items)
    if targets is not None:
        aims = _checked(targets(scores), items, owner, "target")
    dead = dead_groups(found, scores.group_ids, scores.is_scored)
    in_loss = set(scores.group_ids) - (set() if keep_dead_groups else dead)
    held = set(scores.group_ids) - (dead - solved_groups(scores)) if holds_solved_groups else set()
    credited: dict[str, list[PackedRollout]] = {group.id: [] for group in groups}
    num_nonfinite = 0
    for item, name, value, aim in zip(items, scores.group_ids, found, aims, strict=True):
        if item.reward is None or name not in in_loss | held:
            continue
        rollout = _credit(item.trajectory, value, aim, name in in_loss, name in held)
        num_nonfinite += item.trajectory.num_model_tokens - sum(rollout.mask)
        credited[name] += [rollout] if any(rollout.mask) else []
    kept = [Group(name, tuple(rollouts)) for name, rollouts in credited.items() if rollouts]
    return PackedStep(
        groups=_weigh(kept, reduction, constant),
        num_unscored=scores.is_scored.count(False),
        num_groups=sum(bool(group.rollouts) for group in groups),
        num_dead_groups=len(dead),
        num_nonfinite=num_nonfinite,
    )


def _select(groups: Sequence[Group[Trainable]], owner: str) -> list[Trainable]:
    """The rollouts of a step, group after group; whatever cannot enter a ratio is refused."""
    if strange := [group for group in groups if not isinstance(group, Group)]:
        raise PluginError(
            f"{owner}: its extend() returned a {type(strange[0]).__name__} among its groups; "
            "expected searchrl.core.group.Group(id, rollouts)"
        )
    items = _members(groups)
    for item in items:
        if item.trajectory.origin is Origin.DEMONSTRATION:
            raise ValueError(
                f"rollout {item.trajectory.rollout_id} is a demonstration: it has no sampler "
                "log-probs and cannot enter a ratio; use sft"
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
    is_in_loss: bool,
    is_held: bool,
) -> PackedRollout:
    """A rollout with what was said of it on its trained tokens.

    A weight is 1 or 0 here: whether it is in that term.
    """
    mask = _trained(trajectory)
    logps = zip(trajectory.sampler_logps, mask, strict=True)
    return PackedRollout(
        list(trajectory.ids),
        mask,
        trajectory.num_prompt_tokens,
        trajectory.rollout_id,
        [logp or 0.0 for logp, is_trained in logps if is_trained],
        _broadcast(value, trajectory, mask),
        weight=float(is_in_loss),
        hold_weight=float(is_held),
        target=None if aim is None else _broadcast(aim, trajectory, mask),
    )


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
        turns = zip(trajectory.turns_of, mask, strict=True)
        return tuple(value[turn] for turn, is_trained in turns if is_trained)
    authors = zip(trajectory.authors, mask, strict=True)
    of_model = (is_trained for author, is_trained in authors if author is Author.MODEL)
    return tuple(one for one, is_trained in zip(value, of_model, strict=True) if is_trained)


def _trained(trajectory: Trajectory) -> list[bool]:
    """True at the tokens the model wrote and whose sampler log-prob is finite."""
    return [
        author is Author.MODEL and is_finite(logp)
        for author, logp in zip(trajectory.authors, trajectory.sampler_logps, strict=True)
    ]


def _weigh(
    groups: Sequence[Group[PackedRollout]], reduction: Reduction, constant: int
) -> tuple[Group[PackedRollout], ...]:
    """The groups of one optimiser step with their weights: one denominator for each term.

    A weight of 0 stays 0: the rollout is not in that term.
    """
    rollouts = _members(groups)
    in_loss = [len(r.sampler_logp) if r.weight else 0 for r in rollouts]
    held = [sum(weight > 0 for weight in r.hold_weights) for r in rollouts]
    columns = (token_weights(counts, reduction, constant=constant) for counts in (in_loss, held))
    weighed = (
        replace(rollout, weight=weight, hold_weight=hold_weight)
        for rollout, weight, hold_weight in zip(rollouts, *columns, strict=True)
    )
    return tuple(Group(group.id, tuple(next(weighed) for _ in group.rollouts)) for group in groups)


def _members(groups: Iterable[Group[R]]) -> list[R]:
    return [rollout for group in groups for rollout in group.rollouts]


def without(
    groups: Iterable[Group[PackedRollout]], rollout_ids: Collection[str]
) -> list[Group[PackedRollout]]:
    """What is left of groups when some of their rollouts are done."""
    left = (
        Group(group.id, tuple(r for r in group.rollouts if r.rollout_id not in rollout_ids))
        for group in groups
    )
    return [group for group in left if group.rollouts]


def mini_batches(
    groups: Sequence[Group[PackedRollout]],
    num_batches: int,
    reduction: Reduction,
    *,
    constant: int,
    key: int,
) -> list[tuple[Group[PackedRollout], ...]]:
    """Split a training step into optimiser steps of whole groups, each with its own denominator.

    At most `num_batches`, and as even as groups are; which groups meet is a function of `key`.
    Groups that only LLDS watches go with the others and make no step of their own.
    """
    in_loss = [group.id for group in groups if any(r.weight for r in group.rollouts)]
    held = [group.id for group in groups if group.id not in set(in_loss)]
    if num_batches == 1 or not in_loss:
        return [tuple(groups)] if in_loss else []
    rng = random.Random(key)
    count = min(num_batches, len(in_loss))
    batch_of: dict[str, int] = {}
    for part in (in_loss, held):
        rng.shuffle(part)
        batch_of |= {name: number * count // len(part) for number, name in enumerate(part)}
    return [
        _weigh([group for group in groups if batch_of[group.id] == number], reduction, constant)
        for number in range(count)
    ]


def micro_batches(
    groups: Sequence[Group[PackedRollout]],
    max_tokens: int,
    device: torch.device,
    *,
    is_packed: bool = False,
) -> Iterator[MicroBatch]:
    """Split into batches of at most `max_tokens` tokens that are computed, padding included.

    A rollout longer than `max_tokens` gets a batch of its own. Packed, a group stays together if
    it fits: every part of a group computes the prompt. The split changes no gradient: weights
    were fixed over the whole step.
    """
    parts = _packs(groups, max_tokens) if is_packed else _pads(_members(groups), max_tokens)
    return (
        _micro_batch(part, device, lay_out(part, device, is_packed=is_packed)) for part in parts
    )


def _pads(rollouts: Sequence[PackedRollout], max_tokens: int) -> Iterator[list[PackedRollout]]:
    """Longest first: neighbours of like length need little padding."""
    ordered = sorted(rollouts, key=lambda r: -len(r.ids))
    start = 0
    while start < len(ordered):
        stop = start + max(1, max_tokens // len(ordered[start].ids))
        yield ordered[start:stop]
        start = stop


def _packs(
    groups: Sequence[Group[PackedRollout]], max_tokens: int
) -> Iterator[list[PackedRollout]]:
    """Group after group."""
    part: list[PackedRollout] = []
    num_tokens = 0
    # The rollouts of a group by prompt: those that are equal to the last token are shared.
    by_prompt: dict[tuple[str, tuple[int, ...]], list[PackedRollout]] = {}
    for group in groups:
        for rollout in group.rollouts:
            key = (group.id, tuple(rollout.ids[: rollout.num_prompt]))
            by_prompt.setdefault(key, []).append(rollout)
    for sharing in by_prompt.values():
        num_suffixes = [num_suffix_tokens(rollout) for rollout in sharing]
        num_prompt = sharing[0].num_prompt
        if part and num_tokens + num_prompt + sum(num_suffixes) > max_tokens:
            yield part
            part, num_tokens = [], 0
        num_tokens += num_prompt
        for rollout, num_suffix in zip(sharing, num_suffixes, strict=True):
            if part and num_tokens + num_suffix > max_tokens:
                yield part
                part, num_tokens = [], num_prompt
            part.append(rollout)
            num_tokens += num_suffix
    if part:
        yield part


def _micro_batch(
    rollouts: Sequence[PackedRollout], device: torch.device, layout: Layout
) -> MicroBatch:
    columns: list[list[float]] = [[], [], [], [], []]
    owners: list[int] = []
    for number, rollout in enumerate(rollouts):
        num_tokens, advantage = len(rollout.sampler_logp), rollout.advantage
        columns[0] += rollout.sampler_logp
        columns[1] += advantage if isinstance(advantage, tuple) else [advantage] * num_tokens
        columns[2] += [rollout.weight] * num_tokens
        columns[3] += rollout.hold_weights
        if (aim := rollout.target) is not None:
            columns[4] += aim if isinstance(aim, tuple) else [aim] * num_tokens
        owners += [number] * num_tokens
    logp_N, adv_N, weight_N, hold_weight_N, target_N = (
        torch.tensor(column, dtype=torch.float32, device=device) for column in columns
    )
    rollout_N = torch.tensor(owners, dtype=torch.long, device=device)
    own = (layout, logp_N, adv_N, weight_N, hold_weight_N, rollout_N)
    return MicroBatch(tuple(rollouts), *own, target_N if columns[4] else None)
