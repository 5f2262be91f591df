"""Trajectories to tensors: the columns a loss reads, split into mini- and micro-batches.

Owns what enters a training step (unscored rollouts and, without a KL term, dead groups leave it),
the broadcast of advantages onto tokens, the token weights, which carry the denominator of a whole
optimiser step and are fixed before any split, and both splits: mini-batches are optimiser steps
of their own, micro-batches change memory only. Only MODEL tokens with a finite sampler log-prob
are trained. The learner is its only caller. Shapes: B rollouts, T tokens of one, N trained tokens
of a micro-batch.
"""

from __future__ import annotations

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
from searchrl.core.trajectory import Author, Origin, TokenColumns, Trajectory, View, is_finite
from searchrl.engine.learning.broadcast import broadcast, check_told
from searchrl.engine.learning.trained import LayOut
from searchrl.engine.model.layout import TokenRow, num_suffix_tokens
from searchrl.engine.model.layout import lay_out as lay_out_tokens
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
    views: tuple[View, ...] = ()
    """What was seen before each choice, of a policy without tokens."""
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
    """Everything one optimiser step trains on, and what left it."""

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

    `layout` is a `BatchLayout`: how the rollouts go through the policy that made it. Its log-probs
    stand in the same order.
    """

    rollouts: tuple[PackedRollout, ...]
    layout: Any
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

    def token_columns(
        self, logp_N: Tensor, entropy_N: Tensor, is_clipped_N: Tensor | None = None
    ) -> dict[str, TokenColumns]:
        """What an update with these figures saw of each rollout, by its name.

        `is_clipped_N`: where the clip took the gradient; None for a loss without one.
        """
        sizes = self.num_tokens
        ratio_N = (logp_N - self.sampler_logp_N).exp()
        found = {}
        clipped = [None] * len(sizes) if is_clipped_N is None else is_clipped_N.split(sizes)
        parts = zip(
            self.rollouts, ratio_N.split(sizes), entropy_N.split(sizes), clipped, strict=True
        )
        for rollout, ratio, entropy, cut in parts:
            found[rollout.rollout_id] = TokenColumns(
                rollout.advantage,
                tuple(ratio.tolist()),
                tuple(entropy.tolist()),
                rollout.weight,
                None if cut is None else tuple(cut.nonzero().flatten().tolist()),
            )
        return found


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
    """Decide advantages, mask, denominator and reduction for one whole optimiser step.

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
    ids = [group.id for group in groups for _ in group.rollouts]
    _ensure_unique("groups", [group.id for group in groups], "put all its rollouts into one group")
    names = [item.trajectory.rollout_id for item in items]
    _ensure_unique("rollouts", names, "give a copy a rollout_id of its own")
    is_scored = [item.reward is not None for item in items]
    turn_scores = [item.turn_scores for item in items]
    rewards = [_reward(item, length_penalty) for item in items]
    scores = StepScores(
        rewards=rewards,
        group_ids=ids,
        is_scored=is_scored,
        turn_scores=[one or () for one in turn_scores] if any(turn_scores) else None,
        num_turns=[len(item.trajectory.turns) for item in items],
        num_tokens=[item.trajectory.num_model_tokens for item in items],
        values=None if critic is None else [critic[name] for name in names],
        turn_rewards=None
        if critic is None
        else [settle(item.turn_rewards, one) for item, one in zip(items, rewards, strict=True)],
        is_cut=None if critic is None else [item.is_cut for item in items],
    )
    aims: Sequence[Advantage | None] = [None] * len(items)
    if targets is not None:
        aims = check_told(targets(scores), items, owner, "target")
    values = check_told(advantages(scores), items, owner)
    dead = dead_groups(values, ids, is_scored)
    in_loss = set(ids) if keep_dead_groups else set(ids) - dead
    held = set(ids) - (dead - solved_groups(scores)) if holds_solved_groups else set()
    entering = in_loss | held
    members: dict[str, list[PackedRollout]] = {group.id: [] for group in groups}
    num_nonfinite = 0
    columns = zip(items, ids, is_scored, values, aims, strict=True)
    for item, group_id, scored, value, aim in columns:
        if not scored or group_id not in entering:
            continue
        trajectory = item.trajectory
        mask = _trained(trajectory)
        num_nonfinite += trajectory.num_model_tokens - sum(mask)
        if not any(mask):
            continue
        logps = zip(trajectory.sampler_logps, mask, strict=True)
        rollout = PackedRollout(
            list(trajectory.ids),
            mask,
            trajectory.num_prompt_tokens,
            trajectory.rollout_id,
            [logp or 0.0 for logp, is_trained in logps if is_trained],
            broadcast(value, trajectory, mask),
            weight=float(group_id in in_loss),
            hold_weight=float(group_id in held),
            views=trajectory.views,
            target=None if aim is None else broadcast(aim, trajectory, mask),
        )
        members[group_id].append(rollout)
    kept = [Group(name, tuple(rollouts)) for name, rollouts in members.items() if rollouts]
    return PackedStep(
        groups=_weighed(kept, reduction, constant),
        num_unscored=is_scored.count(False),
        num_groups=sum(bool(group.rollouts) for group in groups),
        num_dead_groups=len(dead),
        num_nonfinite=num_nonfinite,
    )


def _weighed(
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


def _ensure_unique(what: str, names: Sequence[str], remedy: str) -> None:
    name, count = max(Counter(names).items(), key=lambda pair: pair[1], default=("", 0))
    if count > 1:
        raise ValueError(f"{count} {what} of this step have the id {name!r}: {remedy}")


def without(
    groups: Iterable[Group[PackedRollout]], rollout_ids: Collection[str]
) -> list[Group[PackedRollout]]:
    """What is left of groups when some of their rollouts are done."""
    left = (
        Group(group.id, tuple(r for r in group.rollouts if r.rollout_id not in rollout_ids))
        for group in groups
    )
    return [group for group in left if group.rollouts]


def _reward(item: Trainable, length_penalty: Callable[[int], float] | None) -> float:
    """The reward that is compared. Of an unscored rollout it is 0, and is not read."""
    if item.reward is None or length_penalty is None:
        return item.reward or 0.0
    return item.reward + length_penalty(item.trajectory.num_model_tokens)


def _trained(trajectory: Trajectory) -> list[bool]:
    """True at the tokens the model wrote and whose sampler log-prob is finite."""
    return [
        author is Author.MODEL and is_finite(logp)
        for author, logp in zip(trajectory.authors, trajectory.sampler_logps, strict=True)
    ]


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
        _weighed([group for group in groups if batch_of[group.id] == number], reduction, constant)
        for number in range(count)
    ]


def micro_batches(
    groups: Sequence[Group[PackedRollout]],
    max_tokens: int,
    device: torch.device,
    *,
    is_packed: bool = False,
    lay_out: LayOut = lay_out_tokens,
) -> Iterator[MicroBatch]:
    """Split into batches of at most `max_tokens` tokens that are computed, padding included.

    A rollout longer than `max_tokens` gets a batch of its own. Packed, a group stays together if
    it fits: every part of a group computes the prompt. The split changes no gradient: weights
    were fixed over the whole step. `lay_out` is that of the policy.
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
    for sharing in (one for group in groups for one in _sharing(group)):
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


def _sharing(group: Group[PackedRollout]) -> list[list[PackedRollout]]:
    """The rollouts of a group by prompt: those that are equal to the last token are shared."""
    parts: dict[tuple[int, ...], list[PackedRollout]] = {}
    for rollout in group.rollouts:
        parts.setdefault(tuple(rollout.ids[: rollout.num_prompt]), []).append(rollout)
    return list(parts.values())


def _micro_batch(
    rollouts: Sequence[PackedRollout], device: torch.device, layout: Any
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
