"""Faults put into batches: the check of every batch stops the step, names it, and shows tokens.

Each fault is one that a public project had; those of the sampler are in `test_doctor`. No step is
taken, so weights stay.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from engine_toy import make_trajectory, pack_items
from session_toy import LORA, MakeSession, same_weights

from searchrl.algorithms.record import Hooks
from searchrl.core.advantage import Column
from searchrl.core.excerpt import Excerpt
from searchrl.core.group import Group, TrainItem, make_groups
from searchrl.core.trajectory import Author, Origin, Segment, Trajectory, TurnStop
from searchrl.engine.learning import learner, packing
from searchrl.engine.learning.batch_check import BatchCheck, _is_own
from searchrl.engine.learning.batches import micro_batches
from searchrl.engine.learning.packing import PackedStep
from searchrl.engine.learning.sampled import SampledTokens
from searchrl.engine.learning.step_groups import StepGroups
from searchrl.engine.model.tolerance import Tolerance
from searchrl.errors import CheckError
from searchrl.programs.setup.session import Session

Patch = pytest.MonkeyPatch
Inject = Callable[[Patch, Session, StepGroups], None]


def ledgers(drawn: StepGroups) -> list[Trajectory]:
    return [rollout.trajectory for rollout in drawn.rollouts]


def lose_the_end(patch: Patch, session: Session, drawn: StepGroups) -> None:
    """Everything behind a length is dropped (rllm PR#575)."""

    def short(segment: Segment) -> list[bool]:
        mask = [author is Author.MODEL for author in segment.authors]
        return [m and n < len(mask) - 1 for n, m in enumerate(mask)]

    patch.setattr(Segment, "trained", property(short))


def encode_again(patch: Patch, session: Session, drawn: StepGroups) -> None:
    made = packing.PackedRow

    def make(ids: list[int], *rest: Any, **more: Any) -> Any:
        return made([*ids[:-1], ids[-1] + 1], *rest, **more)

    patch.setattr(packing, "PackedRow", make)


def change_packed(change: Callable[[Any], Any]) -> Inject:
    def inject(patch: Patch, session: Session, drawn: StepGroups) -> None:
        pack_step = learner.pack_step

        def pack(*args: Any, **more: Any) -> Any:
            packed = pack_step(*args, **more)
            groups = tuple(
                Group(group.id, tuple(change(rollout) for rollout in group.rollouts))
                for group in packed.groups
            )
            return dataclasses.replace(packed, groups=groups)

        patch.setattr(learner, "pack_step", pack)

    return inject


def other_logps(row: packing.PackedRow) -> packing.PackedRow:
    turned = Column(row.over_tokens("sampler_logp")[::-1], "token")
    return dataclasses.replace(row, columns={**row.columns, "sampler_logp": turned})


def swap_rollouts(patch: Patch, session: Session, drawn: StepGroups) -> None:
    """Unrelated prompts share a group (two data sets merged; group id = index)."""

    def extend(groups: Sequence[Group[Any]], step: int) -> list[Group[Any]]:
        one, other, *rest = groups
        first = Group(one.id, (other.rollouts[0], *one.rollouts[1:]))
        return [first, Group(other.id, (one.rollouts[0], *other.rollouts[1:])), *rest]

    hooks: Any = Hooks()
    hooks.extend = extend
    session.algorithm = dataclasses.replace(session.algorithm, hooks=hooks)


def record_nan(patch: Patch, session: Session, drawn: StepGroups) -> None:
    trajectory = ledgers(drawn)[0]
    trajectory.segments[0].logps[trajectory.num_prompt_tokens] = math.nan


def add_noise(patch: Patch, session: Session, drawn: StepGroups) -> None:
    """Noise of 1e-2 in the sampler's log-probs: it looks like a healthy run."""
    rng = torch.Generator().manual_seed(0)
    for trajectory in ledgers(drawn):
        trajectory.segments[0].logps = [
            logp if logp is None else logp + 0.01 * float(torch.randn((), generator=rng))
            for logp in trajectory.sampler_logps
        ]


def trainer_overflows(patch: Patch, session: Session, drawn: StepGroups) -> None:
    logps = type(session.policy).logps

    def broken(self: Any, *args: Any, **more: Any) -> Any:
        found = logps(self, *args, **more)
        return found._replace(logp_N=found.logp_N * torch.nan)

    patch.setattr(type(session.policy), "logps", broken)


def dropout_acts(patch: Patch, session: Session, drawn: StepGroups) -> None:
    """LoRA dropout in the update: the ratio is not 1 before any update."""
    for module in session.policy.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.5
            patch.setattr(module, "forward", torch.nn.Dropout(0.5).forward)


FAULTS: dict[str, tuple[str, Inject]] = {
    "the end of a rollout not trained": ("mask", lose_the_end),
    "ids encoded again": ("ids", encode_again),
    "log-probs of other tokens": ("mismatch", change_packed(other_logps)),
    "mixed groups": ("groups", swap_rollouts),
    "NaN log-prob": ("finite", record_nan),
    "the trainer overflows": ("finite", trainer_overflows),
    "sampler noise of 1e-2": ("mismatch", add_noise),
    "dropout in the update": ("mismatch", dropout_acts),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_batch_stops_the_step_and_is_named(
    fault: str, make_session: MakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, inject = FAULTS[fault]
    more = {"model": LORA | {"lora_dropout": 0.5}} if fault == "dropout in the update" else {}
    session = make_session(**more)
    if more:  # a new adapter computes nothing that dropout could change
        with torch.no_grad():
            for parameter in session.policy.parameters:
                parameter.add_(0.3)
    drawn = session.sample(1)
    inject(monkeypatch, session, drawn)
    is_same = same_weights(session)
    with pytest.raises(CheckError) as caught:
        session.update(drawn, 1)
    error = caught.value
    assert error.check == name
    assert f"check '{name}'" in str(error) and len(str(error).split(". ")[0]) > 40
    assert isinstance(error.excerpt, Excerpt)
    assert sum(token.is_fault for token in error.excerpt.tokens) == 1
    assert error.excerpt.title in str(error)
    assert is_same()


def test_a_healthy_step_is_taken_and_says_how_far_sampler_and_trainer_are_apart(
    make_session: MakeSession,
) -> None:
    session = make_session()
    for step in range(3):
        stats = session.update(session.sample(step + 1), step + 1).metrics
        assert 0 <= stats["mismatch"] <= stats["mismatch_max"] < 1e-4


def test_replayed_rollouts_are_not_held_to_the_weights_of_today(make_session: MakeSession) -> None:
    session = make_session()
    drawn = session.sample(1)
    for trajectory in ledgers(drawn):
        trajectory.origin = Origin.REPLAY
        (segment,) = trajectory.segments
        segment.logps = [None if logp is None else logp - 1 for logp in segment.logps]
    assert "mismatch" not in session.update(drawn, 1).metrics


def test_the_limit_of_a_configuration_replaces_that_of_the_dtype(
    make_session: MakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = make_session(engine={"max_mismatch": 0.5})
    drawn = session.sample(1)
    add_noise(monkeypatch, session, drawn)
    assert 0.003 < session.update(drawn, 1).metrics["mismatch"] < 0.03


TURNS = ([4, 5, 6, 7], [-1.0] * 4)


def item(number: int, reward: float | None, *parts: Any, **about: Any) -> TrainItem:
    made = make_trajectory(f"g/{number}", "g", [1, 2, 3], *(parts or [TURNS]), **about)
    return TrainItem(made, reward)


def test_the_mean_of_a_step_is_held_to_its_limit_and_the_worst_token_of_it_is_shown() -> None:
    items = [item(n, float(n)) for n in range(3)]
    packed = pack_items(items)
    check = BatchCheck(str, Tolerance(token=1.0, mean=0.07))
    steps = [[(0, 0.05), (2, 0.6), (1, 0.1)], [(0, 0.1), (3, 0.5), (1, 0.15)]]
    for gaps, limit, is_held in zip(steps, (0.07, 0.06), (True, False), strict=True):
        check.tolerance = Tolerance(token=1.0, mean=limit)
        check.begin(make_groups(items), packed)
        sampled = SampledTokens()
        batches = micro_batches(packed.groups, 1, torch.device("cpu"))
        for batch, (place, gap) in zip(batches, gaps, strict=True):
            logp_N = batch["sampler_logp"].clone()
            logp_N[place] += gap
            sampled += check.look_at(batch, logp_N, 0)
        if is_held:
            check.conclude(sampled)  # 0.75 nats over 12 tokens
            continue
        with pytest.raises(CheckError, match="0.0625 nats apart on average over 12 tokens") as told:
            check.conclude(sampled)
        assert told.value.excerpt is not None and told.value.excerpt.rollout_id == "g/1"
        assert [token.place for token in told.value.excerpt.tokens if token.is_fault] == [3 + 3]


def test_one_token_is_held_to_its_limit_and_tokens_that_are_not_compared_are_not_shown() -> None:
    """`old` was sampled by other weights; the weight of `held` in the loss is 0."""
    own, old, held = (item(n, float(n)) for n in range(3))
    (segment,) = old.trajectory.segments
    segment.versions = [7 if v == 0 else v for v in segment.versions]
    own.trajectory.append_model([], [], version=5, reason=TurnStop.EOS)  # nothing was sampled
    packed = pack_items([own, old, held])
    (batch,) = micro_batches(packed.groups, 10**6, torch.device("cpu"))
    names = [name for name, _ in batch.row_ids]
    weight_N = torch.where(batch.segment_N == names.index("g/2"), 0, batch["weight"])
    batch = dataclasses.replace(batch, columns={**batch.columns, "weight": weight_N})
    gap_N = torch.tensor([{"g/0": 0.0, "g/1": 3.0, "g/2": 4.0}[n] for n in names])
    logp_N = batch["sampler_logp"] + gap_N[batch.segment_N]
    logp_N[4 * names.index("g/0") + 1] += 0.3
    for limit in (0.2, 0.31):
        check = BatchCheck(str, Tolerance(token=limit, mean=1.0))
        check.begin(make_groups([own, old, held]), packed)
        if limit > 0.3:
            assert check.look_at(batch, logp_N, 0).num_tokens == 4
            continue
        with pytest.raises(CheckError, match="0.3 nats apart at one token") as told:
            check.look_at(batch, logp_N, 0)
        assert told.value.excerpt is not None and told.value.excerpt.rollout_id == "g/0"
        assert [one.place for one in told.value.excerpt.tokens if one.is_fault] == [4]


def test_what_is_compared_with_the_trajectories_of_a_step() -> None:
    def begin(items: list[TrainItem], packed: PackedStep | None = None) -> None:
        check = BatchCheck(str, Tolerance(token=1.0, mean=1.0))
        check.begin(make_groups(items), packed or pack_items(items))

    ends_badly = ([4, 5], [-1.0, math.nan])
    sound = [item(0, 0.0), item(1, 1.0)]
    begin([*sound, item(2, None, ends_badly)])  # unscored: nobody trains on it
    with pytest.raises(CheckError) as told:
        begin([*sound, item(2, 0.5, ends_badly)])
    assert told.value.check == "finite"
    other = item(2, 0.5)
    other.trajectory.segments[0].ids[0] += 1  # the task has two prompts
    with pytest.raises(CheckError, match="their prompts differ"):
        begin([*sound, other])
    begin([*sound, dataclasses.replace(other, is_served=True)])  # an agent wrote its own
    for about in ({"env": "other"}, {"task_id": "b"}):
        with pytest.raises(CheckError, match="'g/0' and 'g/2', and their tasks"):
            begin([*sound, item(2, 0.5, **about)])
    (group,) = pack_items(sound).groups
    for number in range(2):
        members = list(group.rollouts)
        members[number] = dataclasses.replace(members[number], ids=[1, 2, 3, 4, 9, 6, 7])
        packed = dataclasses.replace(pack_items(sound), groups=(Group("g", tuple(members)),))
        with pytest.raises(CheckError, match="token 4 was sampled as 5 and packed as 9"):
            begin(sound, packed)


def test_a_rollout_of_two_versions_is_of_neither() -> None:
    mixed = item(0, 1.0, TURNS, [8], TURNS).trajectory
    assert _is_own(mixed, 0)
    mixed.segments[0].versions[-4:] = [7] * 4
    assert not _is_own(mixed, 0) and not _is_own(mixed, 7)
