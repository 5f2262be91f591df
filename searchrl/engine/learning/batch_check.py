"""The check of every batch: what is trained is what was sampled, token by token.

Owns the comparison of packed rollouts and of the layout they go through the model in with the
ledger, and that of the trainer's log-probs with the sampler's at the start of a step. It repairs
nothing: a violation raises before weights change, with the tokens around the place. Where the
sampler's weights were others, as in replayed rollouts, log-probs may differ and are not compared.
The learner is the caller, and the doctor. Shapes: N trained tokens of a micro-batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

import torch
from torch import Tensor

from searchrl.core.excerpt import take_excerpt
from searchrl.core.group import Group, Trainable
from searchrl.core.trajectory import Author, Origin, Trajectory
from searchrl.engine.learning.packing import MicroBatch, PackedRollout, PackedStep
from searchrl.engine.learning.sampled import SampledTokens
from searchrl.engine.model.tolerance import Tolerance
from searchrl.errors import CheckError

_REPORT = "The run stops before an update: report it with this picture, or look at what you changed"

MISMATCH_FIX = (
    "`searchrl doctor` with the same flags finds what differs (temperature, cache, dropout, the "
    "record). If the sampler computes in another precision on purpose, set engine.max_mismatch"
)


@dataclass(frozen=True, slots=True)
class _Place:
    """The token with the largest difference: which of a micro-batch, and its log-probs."""

    gap: float
    batch: MicroBatch
    logp_N: Tensor
    is_own_N: Tensor | None


class BatchCheck:
    """Checks batch after batch.

    Args:
        decode: ids to text, for pictures.
        tolerance: how far log-probs may be apart.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], tolerance: Tolerance) -> None:
        self.decode = decode
        self.tolerance = tolerance
        self._ledger: dict[str, Trajectory] = {}
        self._worst: _Place | None = None

    def begin(self, groups: Sequence[Group[Trainable]], packed: PackedStep) -> None:
        """Compare the packed rollouts of a step with the ledger.

        Raises:
            CheckError: `ledger`, `finite`, `groups`, `ids`, `mask`, `views` or `rows`.
        """
        self._ledger, self._worst = {}, None
        group_of = {}
        for group in groups:
            for item in group.rollouts:
                trajectory = item.trajectory
                self._ledger[trajectory.rollout_id] = trajectory
                group_of[trajectory.rollout_id] = group.id
                if item.reward is not None:
                    self._check_ledger(trajectory)
            self._check_group(group)
        for packed_group in packed.groups:
            for rollout in packed_group.rollouts:
                self._check_rollout(rollout, group_of.get(rollout.rollout_id), packed_group.id)

    def look(self, batch: MicroBatch, version: int) -> Tensor | None:
        """Compare the layout of a micro-batch with the ledger.

        Args:
            batch: of the step that `begin` has seen, before its first update.
            version: of the weights it is computed with.

        Returns:
            Which of its tokens these weights sampled; None: all of them.

        Raises:
            CheckError: `layout`.
        """
        self._check_layout(batch)
        is_own = [self._is_own(self._ledger[name], version) for name in batch.rollout_ids]
        if all(is_own):
            return None
        return torch.tensor(is_own, device=batch.rollout_N.device)[batch.rollout_N]

    def compare(
        self, batch: MicroBatch, logp_N: Tensor, is_own_N: Tensor | None, sampled: SampledTokens
    ) -> None:
        """Look at what the trainer computed of a micro-batch, and at what was measured of it.

        Raises:
            CheckError: `finite` or `mismatch` (a single token).
        """
        gap = sampled.max_gap
        if self._worst is None or gap > self._worst.gap:
            self._worst = _Place(gap, batch, logp_N.detach(), is_own_N)
        if not math.isfinite(gap):
            self._fail_at_worst(
                "finite",
                "the trainer's log-prob of a sampled token is not a finite number, and the "
                "sampler's is. Train in float32 (--set model.dtype=float32), or find out what "
                "makes the weights or the forward pass of the trainer overflow",
            )
        if gap > self.tolerance.token:
            self._fail_at_worst(
                "mismatch",
                f"trainer and sampler are {gap:.3g} nats apart at one token, with the weights "
                f"that sampled it (limit {self.tolerance.token:g}). {MISMATCH_FIX}",
            )

    def conclude(self, sampled: SampledTokens) -> None:
        """Look at the differences of the whole step, before its first update.

        Raises:
            CheckError: `mismatch`, if their mean is above the limit.
        """
        if sampled.mean_gap <= self.tolerance.mean:
            return
        self._fail_at_worst(
            "mismatch",
            f"trainer and sampler are {sampled.mean_gap:.3g} nats apart on average over "
            f"{sampled.num_tokens:,.0f} tokens, with the weights that sampled them (limit "
            f"{self.tolerance.mean:g}): the ratio of this step does not begin at 1. {MISMATCH_FIX}",
        )

    def _check_ledger(self, trajectory: Trajectory) -> None:
        """The columns of a rollout agree: turns, authors and log-probs."""
        authors, logps = trajectory.authors, trajectory.sampler_logps
        expected = _mask(trajectory)
        is_model = [author is Author.MODEL for author in authors]
        if is_model != expected:
            self._fail(
                "ledger",
                "the tokens of its turns are not those with the author MODEL",
                trajectory,
                _first_difference(is_model, expected),
                is_model,
            )
        for turn in trajectory.turns:
            values = logps[turn.start : turn.stop]
            if all(value is not None and math.isfinite(value) for value in values):
                continue
            place = next(n for n, v in enumerate(values) if v is None or not math.isfinite(v))
            self._fail(
                "finite",
                f"the sampler recorded the log-prob {values[place]} for a token that it drew; no "
                "ratio can be taken of it. The generator is at fault: a token that was drawn has "
                "a probability above 0",
                trajectory,
                turn.start + place,
            )

    def _check_group(self, group: Group[Trainable]) -> None:
        """The rollouts of a group answer one prompt of one task."""
        scored = [item.trajectory for item in group.rollouts if item.reward is not None]
        for trajectory in scored[1:]:
            first = scored[0]
            prompts = [_beginning(one) for one in (first, trajectory)]
            tasks = [(one.env, one.task_id) for one in (first, trajectory)]
            if prompts[0] == prompts[1] and tasks[0] == tasks[1]:
                continue
            what = (
                _tell_prompts(first, trajectory)
                if prompts[0] != prompts[1]
                else f"their tasks are {tasks[0][1]!r} and {tasks[1][1]!r}"
            )
            self._fail(
                "groups",
                f"group {group.id!r} holds {first.rollout_id!r} and {trajectory.rollout_id!r}, but "
                f"{what}. Rewards are compared within a group, so it must be one prompt of one "
                "task; look at the algorithm's extend()",
                trajectory,
                _first_difference(prompts[1], prompts[0]),
            )

    def _check_rollout(self, rollout: PackedRollout, group: str | None, packed_in: str) -> None:
        """A packed rollout has the ids, the mask and the log-probs of the ledger."""
        trajectory = self._ledger.get(rollout.rollout_id)
        if trajectory is None or group != packed_in:
            raise CheckError(
                f"rollout {rollout.rollout_id!r} of group {group!r} was packed into group "
                f"{packed_in!r}. {_REPORT}",
                "groups",
            )
        mask, ids = _mask(trajectory), list(trajectory.ids)
        if rollout.ids != ids:
            place = _first_difference(rollout.ids, ids)
            there = rollout.ids[place] if place < len(rollout.ids) else "nothing"
            self._fail(
                "ids",
                f"token {place} was sampled as {ids[place] if place < len(ids) else 'nothing'} and "
                f"packed as {there}: what would be trained is not what was sampled",
                trajectory,
                place,
            )
        if rollout.mask != mask:
            place = _first_difference(rollout.mask, mask)
            wrong = "trained and the model did not write it"
            if place < len(mask) and mask[place]:
                wrong = "written by the model and not trained"
            self._fail("mask", f"token {place} is {wrong}", trajectory, place, rollout.mask)
        if rollout.views != trajectory.views:
            place = _first_difference(rollout.views, trajectory.views)
            self._fail("views", f"choice {place} has another view than it had", trajectory, place)
        logps = trajectory.sampler_logps
        recorded = [logps[n] for turn in trajectory.turns for n in range(turn.start, turn.stop)]
        column = rollout.advantage
        is_column = not isinstance(column, tuple) or len(column) == len(recorded)
        has_prompt = rollout.num_prompt == trajectory.num_prompt_tokens
        if recorded == rollout.sampler_logp and is_column and has_prompt:
            return
        trained = [n for n, is_trained in enumerate(mask) if is_trained]
        place = _first_difference(rollout.sampler_logp, recorded)
        self._fail(
            "rows",
            "the columns of a packed rollout (sampler log-probs, advantages, length of the prompt) "
            "do not belong to its tokens",
            trajectory,
            trained[min(place, len(trained) - 1)] if trained else 0,
        )

    def _check_layout(self, batch: MicroBatch) -> None:
        """Each log-prob is that of a trained token, predicted from the token before it."""
        ledgers = [self._ledger[name] for name in batch.rollout_ids]
        places = [
            [n for turn in ledger.turns for n in range(turn.start, turn.stop)] for ledger in ledgers
        ]
        expected = batch.layout.expected(ledgers, places)
        for (name, have), want in zip(batch.layout.found(), expected, strict=True):
            if have == want:
                continue
            number = _first_difference(have, want)
            owner, at = _locate(number, places)
            self._fail(
                "layout",
                f"the log-prob of token {at} is computed from another place: the {name} is not "
                "that of the rollout",
                ledgers[owner],
                at,
            )

    def _is_own(self, trajectory: Trajectory, version: int) -> bool:
        """Whether weights of this version sampled every token of a rollout."""
        if trajectory.origin is not Origin.SAMPLED:
            return False
        versions = trajectory.policy_versions
        return all(
            versions[turn.start] == version for turn in trajectory.turns if turn.stop > turn.start
        )

    def _fail_at_worst(self, check: str, what: str) -> NoReturn:
        if self._worst is None:  # another process has seen it
            raise CheckError(what, check)
        batch, logp_N, is_own_N = self._worst.batch, self._worst.logp_N, self._worst.is_own_N
        gap_N = (logp_N - batch.sampler_logp_N).abs().nan_to_num(torch.inf, torch.inf)
        is_seen_N = batch.weight_N > 0 if is_own_N is None else (batch.weight_N > 0) & is_own_N
        number = int(torch.where(is_seen_N, gap_N, -1.0).argmax())
        places = [[n for n, m in enumerate(rollout.mask) if m] for rollout in batch.rollouts]
        owner, at = _locate(number, places)
        trajectory = self._ledger[batch.rollouts[owner].rollout_id]
        own_N = logp_N.split(batch.num_tokens)[owner]
        known = dict(zip(places[owner], own_N.tolist(), strict=True))
        mask = batch.rollouts[owner].mask
        shown = take_excerpt(trajectory, at, self.decode, is_trained=mask, trainer_logps=known)
        raise CheckError(what, check, shown)

    def _fail(
        self,
        check: str,
        what: str,
        trajectory: Trajectory,
        place: int,
        is_trained: Sequence[bool] | None = None,
    ) -> NoReturn:
        shown = take_excerpt(trajectory, place, self.decode, is_trained=is_trained)
        raise CheckError(f"{what}. {_REPORT}", check, shown)


def look_at(
    batch: MicroBatch, logp_N: Tensor, check: BatchCheck | None, version: int
) -> SampledTokens:
    """What is to be known of a micro-batch before the first update of its step.

    `logp_N` are the trainer's log-probs, computed with the weights of `version`. A check raises
    where it does not hold.
    """
    is_own_N = None if check is None else check.look(batch, version)
    columns = batch.sampler_logp_N, batch.adv_N, batch.weight_N
    sampled = SampledTokens.measure(logp_N, *columns, is_own_N)
    if check is not None:
        check.compare(batch, logp_N, is_own_N, sampled)
    return sampled


def _beginning(trajectory: Trajectory) -> Sequence[object]:
    """What an episode begins with: its prompt, or what was seen before the first choice."""
    return trajectory.views[:1] or trajectory.ids[: trajectory.num_prompt_tokens]


def _tell_prompts(one: Trajectory, other: Trajectory) -> str:
    if one.views or other.views:
        return "what is seen first differs"
    counts = one.num_prompt_tokens, other.num_prompt_tokens
    return f"their prompts differ ({counts[0]} and {counts[1]} tokens)"


def _mask(trajectory: Trajectory) -> list[bool]:
    """True at the tokens of turns: from the turns, not from the authors that the packer reads."""
    mask = [False] * len(trajectory)
    for turn in trajectory.turns:
        mask[turn.start : turn.stop] = [True] * (turn.stop - turn.start)
    return mask


def _first_difference(have: Sequence[object], want: Sequence[object]) -> int:
    pairs = zip(have, want, strict=False)
    shortest = min(len(have), len(want))
    return next((n for n, (one, other) in enumerate(pairs) if one != other), shortest)


def _locate(number: int, places: Sequence[Sequence[int]]) -> tuple[int, int]:
    """Which rollout the N-th trained token of a micro-batch belongs to, and its place there."""
    for owner, of in enumerate(places):
        if number < len(of):
            return owner, of[number]
        number -= len(of)
    raise IndexError(number)
