"""The check of every batch: what is trained is what was sampled, token by token.

Owns the comparison of packed rollouts with the trajectories, and that of the trainer's log-probs
with the sampler's at the start of a step. It repairs nothing: a violation raises before weights
change, with the tokens around the place. Where the sampler's weights were others, as in replayed
rollouts, log-probs may differ and are not compared. Shapes: N trained tokens of a micro-batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NoReturn

import torch
from torch import Tensor

from searchrl.core.excerpt import Excerpt, take_excerpt
from searchrl.core.group import Group, Trainable
from searchrl.core.trajectory import Origin, RowId, Trajectory
from searchrl.engine.learning.batches import MicroBatch
from searchrl.engine.learning.packing import (
    ADVANTAGE,
    LOGP,
    WEIGHT,
    PackedRow,
    PackedStep,
)
from searchrl.engine.learning.sampled import SampledTokens
from searchrl.engine.model.tolerance import Tolerance
from searchrl.errors import CheckError

_FIX = (
    "`searchrl doctor` with the same flags looks for what differs. If the sampler computes in "
    "another precision on purpose, set engine.max_mismatch"
)


class BatchCheck:
    """Checks step after step.

    Args:
        decode: ids to text, for pictures.
        tolerance: largest difference of log-probs.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], tolerance: Tolerance) -> None:
        self.decode = decode
        self.tolerance = tolerance
        self._recorded: dict[RowId, Trajectory] = {}
        self._worst: tuple[float, Excerpt] | None = None

    def begin(self, groups: Sequence[Group[Trainable]], packed: PackedStep) -> None:
        """Compare the packed rollouts of a step with the trajectories.

        Raises:
            CheckError: `finite`, `groups`, `ids` or `mask`.
        """
        self._recorded, self._worst = {}, None
        for group in groups:
            scored = [item for item in group.rollouts if item.reward is not None]
            every = [item.trajectory for item in group.rollouts]
            roots = [one for one in every if not one.parent] or every
            for item in scored:
                trajectory = item.trajectory
                for number in range(len(trajectory.segments)):
                    self._recorded[trajectory.rollout_id, number] = trajectory
                self._check_finite(trajectory)
                self._check_task(group.id, roots[0], item)
        for row in packed.rows:
            self._check_packed(row, self._recorded[row.row_id])

    def look_at(self, batch: MicroBatch, logp_N: Tensor, version: int) -> SampledTokens:
        """Compare the trainer's log-probs with the sampler's record.

        Args:
            batch: of the step that `begin` has seen, before its first update.
            logp_N: the trainer's log-probs.
            version: of the weights that they are computed with.

        Raises:
            CheckError: `finite` or `mismatch` (a single token).
        """
        batch, logp_N = batch.host or batch, logp_N.detach().cpu()
        is_own = [_is_own(self._recorded[name], version) for name in batch.row_ids]
        is_own_N = torch.tensor(is_own)[batch.segment_N]
        columns = batch[LOGP], batch[ADVANTAGE], batch[WEIGHT]
        sampled = SampledTokens.measure(logp_N, *columns, is_own_N, batch.is_off_N)
        gap = sampled.max_gap
        if self._worst is None or gap > self._worst[0]:
            self._worst = gap, self._worst_of(batch, logp_N, is_own_N)
        if not math.isfinite(gap):
            raise CheckError(
                "the trainer's log-prob of a sampled token is not a finite number, and the "
                "sampler's is. Train in float32 (--set model.dtype=float32), or find out what "
                "makes the weights or the forward pass of the trainer overflow",
                "finite",
                self._worst[1],
            )
        if gap > self.tolerance.token:
            raise CheckError(
                f"trainer and sampler are {gap:.3g} nats apart at one token, with the weights "
                f"that sampled it (limit {self.tolerance.token:g}). {_FIX}",
                "mismatch",
                self._worst[1],
            )
        return sampled

    def conclude(self, sampled: SampledTokens) -> None:
        """Check the differences of the whole step, before its first update.

        Raises:
            CheckError: `mismatch`, if their mean is above the limit.
        """
        if sampled.mean_gap > self.tolerance.mean:
            raise CheckError(
                f"trainer and sampler are {sampled.mean_gap:.3g} nats apart on average over "
                f"{sampled.num_tokens:,.0f} tokens, with the weights that sampled them (limit "
                f"{self.tolerance.mean:g}): the ratio of this step does not begin at 1. {_FIX}",
                "mismatch",
                None if self._worst is None else self._worst[1],  # another process may have it
            )

    def _check_finite(self, trajectory: Trajectory) -> None:
        if trajectory.origin is Origin.DEMONSTRATION:
            return
        for number, segment in enumerate(trajectory.segments):
            for place in _model_places(trajectory, number):
                logp = segment.logps[place]
                if logp is None or not math.isfinite(logp):
                    self._fail(
                        "finite",
                        f"the sampler recorded the log-prob {logp} for a token that it drew; no "
                        "ratio can be taken of it. The generator is at fault: a token that was "
                        "drawn has a probability above 0",
                        trajectory,
                        number,
                        place,
                    )

    def _check_task(self, group: str, first: Trajectory, item: Trainable) -> None:
        other = item.trajectory
        tasks = [(one.env, one.task_id) for one in (first, other)]
        prompts = [one.segments[0].prompt for one in (first, other)]
        if other.parent:  # what it continues is part of its prompt
            prompts[1] = prompts[1][: len(prompts[0])]
        is_other_prompt = not item.is_served and prompts[0] != prompts[1]
        if is_other_prompt or tasks[0] != tasks[1]:
            what = "prompts" if is_other_prompt else f"tasks ({tasks[0]} and {tasks[1]})"
            self._fail(
                "groups",
                f"group {group!r} holds {first.rollout_id!r} and {other.rollout_id!r}, and their "
                f"{what} differ. Rewards are compared within a group, so it must be one prompt of "
                "one task; look at the algorithm's extend()",
                other,
                0,
                first_difference(prompts[1], prompts[0]),
            )

    def _check_packed(self, row: PackedRow, trajectory: Trajectory) -> None:
        ids = trajectory.segments[row.segment].ids
        if row.ids != ids:
            place = first_difference(row.ids, ids)
            was, now = (x[place] if place < len(x) else "nothing" for x in (ids, row.ids))
            self._fail(
                "ids",
                f"token {place} was sampled as {was} and packed as {now}: what would be trained is "
                "not what was sampled",
                trajectory,
                row.segment,
                place,
            )
        written = set(_model_places(trajectory, row.segment))
        mask = [place in written for place in range(len(ids))]
        if row.mask != mask:
            place = first_difference(row.mask, mask)
            what = "not trained and was" if place in written else "trained and was not"
            what = f"token {place} is {what} written by the model"
            self._fail("mask", what, trajectory, row.segment, place, row.mask)

    def _worst_of(self, batch: MicroBatch, logp_N: Tensor, is_own_N: Tensor) -> Excerpt:
        gap_N = (logp_N - batch[LOGP]).abs().nan_to_num(torch.inf, torch.inf)
        number = int(torch.where((batch[WEIGHT] > 0) & is_own_N, gap_N, -1.0).argmax())
        owner = int(batch.segment_N[number])
        row = batch.rows[owner]
        places = [place for place, is_trained in enumerate(row.mask) if is_trained]
        known = dict(zip(places, logp_N.split(batch.num_tokens)[owner].tolist(), strict=True))
        return take_excerpt(
            self._recorded[row.row_id],
            places[number - sum(batch.num_tokens[:owner])],
            self.decode,
            segment=row.segment,
            is_trained=row.mask,
            trainer_logps=known,
        )

    def _fail(
        self,
        check: str,
        what: str,
        trajectory: Trajectory,
        segment: int,
        place: int,
        is_trained: Sequence[bool] | None = None,
    ) -> NoReturn:
        shown = take_excerpt(trajectory, place, self.decode, segment=segment, is_trained=is_trained)
        raise CheckError(what, check, shown)


def _model_places(trajectory: Trajectory, segment: int) -> list[int]:
    """Places of the tokens of turns: from the turns, not from the authors that packing reads."""
    turns = (turn for turn in trajectory.turns if turn.segment == segment)
    return [place for turn in turns for place in range(turn.start, turn.stop)]


def _is_own(trajectory: Trajectory, version: int) -> bool:
    return trajectory.origin is Origin.SAMPLED and all(
        trajectory.segments[turn.segment].versions[turn.start] == version
        for turn in trajectory.turns
        if turn.stop > turn.start
    )


def first_difference(have: Sequence[object], want: Sequence[object]) -> int:
    """Return the first place at which two sequences differ, at most the end of the shorter one."""
    pairs = zip(have, want, strict=False)
    shortest = min(len(have), len(want))
    return next((n for n, (one, other) in enumerate(pairs) if one != other), shortest)
