"""The numbers of a step: learning rate, reference, updates, GSPO's old log-probs, LLDS groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from engine_toy import make_trajectory
from packed_toy import (
    caught_gradients,
    is_close,
    make_items,
    make_learner,
    make_policy,
    spy_on_losses,
    with_own_logps,
)

from searchrl.algorithms.builtin import make_dapo, make_gspo, make_llds
from searchrl.core.group import Group, TrainItem, make_groups
from searchrl.core.reduction import LossSettings, Reduction
from searchrl.engine.learning.packing import PackedRow, PackedStep, pack_step
from searchrl.engine.learning.step_groups import (
    StepGroups,
    is_constant,
    sample_groups,
    sampler_metrics,
    update_metrics,
)
from searchrl.engine.learning.updater import mini_batches
from searchrl.engine.learning.workers import ALONE
from searchrl.engine.model.optimizers import learning_rate
from searchrl.engine.sampling.slot_generator import SlotStats
from searchrl.statistics import exact, mean, proportion


def test_the_learning_rate_of_the_schedule_reaches_the_optimiser(micro_model: Path) -> None:
    learner = make_learner(make_policy(micro_model), lr=1e-2, warmup_steps=2, schedule="cosine")
    learner.lr_scale, learner.max_steps = 0.5, 7  # 0.5: after a rollback
    used: list[float] = []
    step = learner.optimizer.step

    def spy(*args: Any) -> None:
        used.extend(group["lr"] for group in learner.optimizer.param_groups)
        step()

    learner.optimizer.step = spy  # type: ignore[method-assign]
    told = [learner.train_step(make_groups(make_items())).metrics["lr"] for _ in range(4)]
    expected = [learning_rate(5e-3, n, learner.optim, 7) for n in range(4)]
    assert used == told == expected and len(set(expected)) == 4


def test_the_optimiser_is_the_one_asked_for(
    micro_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Mock(return_value=Mock(param_groups=[]))
    monkeypatch.setattr("searchrl.engine.learning.learner.make_optimizer", made)
    policy = make_policy(micro_model)
    make_learner(policy, lr=3e-4, optimizer="adamw8bit")
    made.assert_called_once_with("adamw8bit", [{"params": policy.parameters, "lr": 3e-4}])


def test_a_length_penalty_tells_rollouts_of_one_reward_apart(micro_model: Path) -> None:
    """The budget is 100: nothing up to 80 tokens, half at 90, and 1 from 100 on."""
    learner = make_learner(make_policy(micro_model), algorithm=make_dapo())
    members = [rollout(f"g{n}", length, 0.5) for n, length in enumerate((80, 90, 100, 120))]
    learned = learner.train_step(make_groups(members))
    advantages = [learned.tokens[f"g{n}", 0].advantage for n in range(4)]
    deviations = [0.625, 0.125, -0.375, -0.375]
    scale = advantages[0] / deviations[0]  # type: ignore[operator]
    assert advantages == pytest.approx([scale * one for one in deviations])
    assert learned.metrics["num_dead_groups"] == 0


@pytest.mark.parametrize("temperature", [0.6, 1.0])
def test_the_reference_is_asked_at_the_sampling_temperature(micro_model: Path, temperature: float):
    """Before the first update it is the policy itself: any other temperature shows as a KL."""
    policy = make_policy(micro_model)
    for parameter in policy.parameters:
        parameter.data *= 3  # far from uniform, where temperatures agree
    learner = make_learner(policy, beta=0.1)
    learner.temperature = temperature
    assert learner.train_step(make_groups(make_items())).metrics["kl"] == pytest.approx(
        0, abs=1e-12
    )


def test_the_loss_of_a_step_is_the_mean_over_its_updates(micro_model: Path) -> None:
    """Three groups make three mini-batches, however many are asked for."""
    learner = make_learner(make_policy(micro_model), mini_batches=9)
    losses: list[float] = []
    loss_fn = learner.algorithm.loss

    def spy(*args: Any) -> Any:
        loss, stats = loss_fn(*args)
        losses.append(loss.item())
        return loss, stats

    learner.algorithm = replace(learner.algorithm, loss=spy)
    told = learner.train_step(make_groups(make_items())).metrics["loss"]
    assert len(losses) == 3 and abs(losses[0] - losses[1]) > 1e-3
    assert told == pytest.approx(sum(losses) / 3, rel=1e-6)


def test_the_figures_of_an_update_and_of_its_sampler() -> None:
    stats = {"num_tokens": 30.0, "num_groups": 4.0, "num_dead_groups": 1.0, "loss": 0.5}
    told = update_metrics(stats | {"kl": math.nan}, StepGroups((), num_refills=2), None, 3, 100)
    assert told == {
        "dead_groups": proportion(1, 4),
        "loss": exact(0.5, 30),
        "nonfinite_figures": exact(1, 30),
        "refills": exact(2),
    }
    nobody = update_metrics(stats, StepGroups(()), lambda count: -1.0, None, 100)
    assert not {"refills", "overlong"} & set(nobody)
    assert update_metrics(stats, StepGroups(()), None, 0, 100)["refills"] == exact(0)
    driver: Any = SimpleNamespace(
        stats=SlotStats(num_decoded=30, num_row_ticks=40, sum_log_mass=-6.0)
    )
    expected = {"slot_use": exact(0.75, 40), "log_kept_mass": exact(-0.2)}
    assert [sampler_metrics(driver, ALONE) for _ in range(2)] == [expected, {}], "counted anew"
    assert sampler_metrics(SimpleNamespace(stats=None), ALONE) == {}  # type: ignore[arg-type]
    rewards = {(1.0, None): True, (None, None): True, (1.0, 1.0): True, (0.0, None, 0.5): False}
    for given, is_alike in rewards.items():
        members = tuple(rollout(f"g{n}", 1, reward) for n, reward in enumerate(given))
        assert is_constant(Group("g", members)) is is_alike


def test_the_length_penalty_of_a_step_is_a_mean_over_its_scored_rollouts() -> None:
    members = [(5, True, "g0"), (90, True, "g0"), (99, False, "g0"), (10, True, "g1")]
    groups = [
        SimpleNamespace(
            is_scored=is_scored,
            reward=0.75 if is_scored else None,
            episode_scores=(0.5, 0.5, count / 100) if group == "g0" else None,
            trajectory=SimpleNamespace(num_model_tokens=count, num_kept_tokens=0, group_id=group),
        )
        for count, is_scored, group in members
    ]
    drawn = StepGroups((Group("g0", tuple(groups[:3])),), (Group("g1", tuple(groups[3:])),))  # type: ignore[arg-type]
    stats = {"num_tokens": 0.0, "num_groups": 0.0, "num_dead_groups": 0.0, "loss": 2.0}
    told = update_metrics(stats, drawn, lambda count: -count / 100, None, 200)
    assert told["loss"] == exact(2.0, 1) and "dead_groups" not in told
    assert told["overlong"] == mean([-0.05, -0.9, -0.1], (-2.0, 0.0), ["g0", "g0", "g1"])
    # 1.05 and 1.9 where 0.75 is the reward; the others have no scores of turns, or no reward.
    assert told["turn_surplus"] == mean([0.3, 1.15], (-math.inf, math.inf), ["g0", "g0"])
    least = update_metrics(stats, drawn, lambda count: -count / 100, None, 50)["overlong"]
    assert least == mean([-0.05, -0.9, -0.1], (-0.9, 0.0), ["g0", "g0", "g1"])


def test_only_the_places_without_contrast_are_asked_for_again() -> None:
    asked: list[tuple[int, int, list[int]]] = []
    outcomes = {
        (0, 0): (1.0, 0.0), (0, 1): (0.0, 0.0), (0, 2): (1.0, 1.0), (1, 1): (0.0, 0.0),
        (1, 2): (0.0, 1.0), (2, 1): (1.0, 0.0),
    }  # fmt: skip
    groups: Any = {
        key: Group(str(key), tuple(rollout(f"{key}{n}", 1, one) for n, one in enumerate(rewards)))
        for key, rewards in outcomes.items()
    }

    class Prompts:
        prompts_per_step = 3

        def requests(self, step: int, refill: int, places: Any) -> list[Any]:
            asked.append((step, refill, list(places)))
            return [SimpleNamespace(key=(refill, one), samples=range(2)) for one in places]

    def run(requests: Any, **heard: Any) -> Any:
        assert heard == {"on_progress": print, "should_stop": any}
        return [groups[one.key] for one in requests]

    def drawn(max_refills: int) -> StepGroups:
        told: Any = {"max_refills": max_refills, "on_progress": print, "should_stop": any}
        return sample_groups(SimpleNamespace(run=run), Prompts(), 7, **told)  # type: ignore[arg-type]

    whole = drawn(3)
    assert asked == [(7, 0, [0, 1, 2]), (7, 1, [1, 2]), (7, 2, [1])] and whole.num_refills == 2
    assert whole.groups == (groups[0, 0], groups[2, 1], groups[1, 2])
    assert whole.replaced == (groups[0, 1], groups[0, 2], groups[1, 1])
    assert len(whole.rollouts) == 12 and whole.num_late == 0
    assert drawn(1).groups == (groups[0, 0], groups[1, 1], groups[1, 2])
    assert (drawn(0).num_refills, drawn(0).replaced) == (0, ())


# --- GSPO against another precision --------------------------------------------------------------
def test_gspo_clips_nothing_at_the_first_update_whatever_the_sampler_wrote(micro_model: Path):
    """The items' sampler log-probs are 0.3 nats off; its range is 3e-4."""
    policy, items = make_policy(micro_model), make_items()
    learner = make_learner(policy, algorithm=make_gspo(), clip=None)
    (columns,) = spy_on_losses(learner, items)
    assert (columns.sampler_logp_T - columns.old_logp_T).abs().mean() > 0.1
    policy = make_policy(micro_model)
    (gradient,) = caught_gradients(make_learner(policy, algorithm=make_gspo(), clip=None), items)
    exact = with_own_logps(policy, make_items())
    (expected,) = caught_gradients(make_learner(policy, algorithm=make_gspo(), clip=None), exact)
    assert is_close(gradient, expected, 1e-6)
    stats = (
        make_learner(policy, algorithm=make_gspo(), clip=None)
        .train_step(make_groups(items))
        .metrics
    )
    assert (stats["clip_frac"], stats["ratio_mean"]) == (0.0, 1.0)


# --- LLDS and groups without contrast ------------------------------------------------------------
def rollout(name: str, length: int, reward: float | None) -> TrainItem:
    turn = ([3] * length, [-1.0] * length)
    return TrainItem(make_trajectory(name, name[0], [1, 2], turn), reward)


def live_solved_and_failed() -> list[TrainItem]:
    """A live group, an all-correct one (a rollout of it unscored) and an all-wrong one."""
    lengths = {"l0": 2, "l1": 3, "s0": 4, "s1": 1, "s2": 7, "w0": 5, "w1": 5}
    rewards = {"l0": 1.0, "l1": 0.0, "s0": 1.0, "s1": 1.0, "s2": None, "w0": 0.0, "w1": 0.0}
    return [rollout(name, length, rewards[name]) for name, length in lengths.items()]


def pack(
    items: Sequence[TrainItem], reduction: Reduction, *, holds: bool = True, beta: float = 0.0
) -> PackedStep:
    settings = LossSettings(beta=beta, reduction=reduction)
    updates = 2 if holds else 1
    return pack_step(make_groups(items), make_llds(), settings, constant=10, max_updates=updates)


def weights_of(packed: PackedStep) -> dict[str, tuple[float, list[float]]]:
    def held(row: PackedRow) -> list[float]:
        return [*row.over_tokens("hold")] if "hold" in row.terms else [0.0] * row.num_trained

    return {r.rollout_id: (r.columns["weight"].values[0], held(r)) for r in packed.rows}


@pytest.mark.parametrize(
    ("reduction", "live", "held"),
    [
        # Live: 2 + 3 tokens of 2 rollouts. Held: 2 + 4 + 1 tokens of 3 rollouts, A >= 0 each.
        (Reduction.TOKEN_MEAN, (1 / 5, 1 / 5), (1 / 7, 1 / 7, 1 / 7)),
        (Reduction.SEQUENCE_MEAN, (1 / 4, 1 / 6), (1 / 6, 1 / 12, 1 / 3)),
        (Reduction.CONSTANT, (1 / 20, 1 / 20), (1 / 30, 1 / 30, 1 / 30)),
    ],
)
def test_all_correct_groups_enter_the_llds_term_alone_with_its_own_denominator(
    reduction: Reduction, live: tuple[float, float], held: tuple[float, float, float]
) -> None:
    found = weights_of(pack(live_solved_and_failed(), reduction))
    assert found == {
        "l0": (live[0], pytest.approx([held[0]] * 2)),
        "l1": (live[1], [0.0] * 3),
        "s0": (0.0, pytest.approx([held[1]] * 4)),
        "s1": (0.0, pytest.approx([held[2]])),
    }
    others = weights_of(pack(live_solved_and_failed(), reduction, holds=False))
    assert others == {"l0": (live[0], [0.0] * 2), "l1": (live[1], [0.0] * 3)}


def test_with_a_kl_term_dead_groups_stay_and_all_wrong_ones_are_still_not_held() -> None:
    found = weights_of(pack(live_solved_and_failed(), Reduction.TOKEN_MEAN, beta=0.1))
    assert {name: weight for name, (weight, _) in found.items()} == dict.fromkeys(
        ("l0", "l1", "s0", "s1", "w0", "w1"), 1 / 20
    )
    assert {name for name, (_, weights) in found.items() if any(weights)} == {"l0", "s0", "s1"}
    assert found["s0"][1] == pytest.approx([1 / 7] * 4)


def test_groups_that_llds_alone_watches_make_no_update_of_their_own() -> None:
    items = [*live_solved_and_failed(), *(rollout(f"t{i}", 2, 1.0) for i in range(2))]

    def batches(items: list[TrainItem], count: int) -> list[tuple[Group[PackedRow], ...]]:
        groups = pack(items, Reduction.TOKEN_MEAN).groups
        return mini_batches(groups, count, Reduction.TOKEN_MEAN, constant=10, key=0)

    for count in (1, 3):
        (batch,) = batches(items, count)
        assert [group.id for group in batch] == ["l", "s", "t"]
    of_two = batches([*items, rollout("m0", 6, 1.0), rollout("m1", 1, 0.0)], 2)
    assert sorted(group.id for batch in of_two for group in batch) == ["l", "m", "s", "t"]
    for part in (batch, *of_two):
        members = [r for group in part for r in group.rollouts]
        for term in ("weight", "hold"):
            assert sum(sum(r.over_tokens(term)) for r in members) == pytest.approx(1.0)
    assert batches([item for item in items if item.trajectory.group_id in "stw"], 1) == []


def test_llds_pulls_all_correct_groups_up_from_the_second_update_on(micro_model: Path) -> None:
    """The second gradient is that of the live groups plus coefficient * d drop of the held ones."""
    rewards = {"a": None, "b": 1.0, "c": 0.0, "d": 0.0}
    items = [
        replace(item, reward=float(i % 2) if given is None else given)
        for i, item in enumerate(make_items())
        for given in [rewards[item.trajectory.group_id]]
    ]
    items = [item for item in items if item.trajectory.num_model_tokens]

    def step(coefficient: float, **options: Any) -> tuple[list[torch.Tensor], dict[str, float]]:
        learner = make_learner(
            make_policy(micro_model), algorithm=make_llds(coefficient=coefficient), **options
        )
        taken: list[torch.Tensor] = []
        update = learner.optimizer.step

        def spy() -> None:
            taken.append(torch.cat([p.grad.flatten() for p in learner.parameters]))  # type: ignore[union-attr]
            update()

        learner.optimizer.step = spy  # type: ignore[method-assign]
        return taken, learner.train_step(make_groups(items)).metrics

    algorithm = make_llds(coefficient=0.1)
    columns = make_learner(make_policy(micro_model), algorithm=algorithm).train_step(
        make_groups(items)
    )
    assert {name[0] for name, _ in columns.tokens} == {"a"}, "one update: nothing to hold"
    plain, _ = step(0.0, epochs=2)
    weak, told = step(0.1, epochs=2)
    strong, _ = step(0.3, epochs=2)
    assert torch.equal(plain[0], weak[0]) and torch.equal(plain[0], strong[0])
    assert is_close(strong[1] - plain[1], 3 * (weak[1] - plain[1]), 1e-5)
    live = sum(i.trajectory.num_model_tokens for i in items if i.trajectory.group_id == "a")
    assert (told["num_tokens"], told["num_rollouts"]) == (2 * live, 3)
    assert told["likelihood_drop"] > 0
    _, once = step(0.1)
    assert (once["num_tokens"], once["likelihood_drop"]) == (live, 0.0)
    # Entropy is a mean over the tokens of the loss: those that are only held are not among them.
    _, still = step(0.1, epochs=2, lr=1e-12)
    assert still["num_tokens"] == 2 * live
    assert still["entropy"] == pytest.approx(once["entropy"], rel=1e-6)
