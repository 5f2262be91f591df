"""One optimiser step: any split gives one gradient, and what leaves the step leaves it whole."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import engine_toy
import pytest
import torch
from engine_toy import caught_step, enlarge_lora, micro_policy, near_items, pack_items, play
from packed_toy import make_policy

from searchrl.algorithms.builtin import make_dr_grpo, make_grpo
from searchrl.algorithms.record import Algorithm, Ask
from searchrl.core.group import TrainItem, make_groups
from searchrl.core.loss import Reduction
from searchrl.core.trajectory import Trajectory, TurnStop
from searchrl.engine.learning.batches import micro_batches
from searchrl.engine.learning.learner import Learner
from searchrl.engine.model.policy import Policy

CPU = torch.device("cpu")
Items = list[TrainItem]
REDUCTIONS = ["token-mean", "sequence-mean", "constant"]
make_learner = partial(engine_toy.make_learner, constant=100, max_grad_norm=1e9)


@pytest.fixture(scope="module")
def items(micro_model: Path) -> list[TrainItem]:
    """Rollouts of unequal length in four groups, the last of them dead."""
    lengths = [[5, 40, 11], [3, 3, 90], [27, 8, 1], [30, 12, 6]]
    rewards = [[0.0, 1.0, 0.5], [1.0, 0.0, 0.0], [0.2, 0.9, 0.0], [1.0, 1.0, 1.0]]
    return near_items(micro_policy(micro_model), lengths, rewards)


def gradient(items: Sequence[TrainItem], learner: Learner) -> tuple[torch.Tensor, dict[str, float]]:
    """The gradient that a step of one update would use, and its metrics; the weights stay."""
    (caught,), stats = caught_step(learner, items)
    return caught, stats


class TestMicroBatchSplit:
    """Scale that changes with accumulation is the classic silent bug: here nothing changes."""

    @pytest.mark.parametrize("reduction", REDUCTIONS)
    @pytest.mark.parametrize("beta", [0.0, 0.05])
    def test_any_split_gives_one_gradient(
        self, policy: Policy, items: Items, reduction: str, beta: float
    ):
        grads, losses = [], []
        for size in (64, 512, 10**6):
            learner = make_learner(policy, reduction=reduction, beta=beta, micro_batch_tokens=size)
            grad, stats = gradient(items, learner)
            grads.append(grad)
            losses.append(stats["loss"])
        assert len({len(list(_batches(items, size))) for size in (64, 512, 10**6)}) == 3
        for grad, loss in zip(grads[1:], losses[1:], strict=True):
            assert (grad - grads[0]).norm() <= 1e-5 * grads[0].norm()
            assert loss == pytest.approx(losses[0], rel=1e-5, abs=1e-7)
        assert grads[0].norm() > 1e-3

    def test_gradient_is_that_of_the_written_formula(self, policy: Policy, items: Items):
        # By hand, rollout by rollout, unpadded: sequence-mean of token-mean (GRPO, eq. 3).
        grad, _ = gradient(items, make_learner(policy, micro_batch_tokens=64))
        policy.model.zero_grad()
        total = torch.zeros(())
        live = items[:9]
        for start in range(0, 9, 3):
            group = live[start : start + 3]
            rewards = [item.reward or 0.0 for item in group]
            mean = sum(rewards) / 3
            std = math.sqrt(sum((r - mean) ** 2 for r in rewards) / 3)
            for item, reward in zip(group, rewards, strict=True):
                advantage = (reward - mean) / (std + 1e-6)
                logits = policy.model(input_ids=torch.tensor([item.trajectory.ids])).logits[0]
                logp = torch.log_softmax(logits, dim=-1)
                terms = []
                for t, old in enumerate(item.trajectory.sampler_logps):
                    if old is not None:
                        ratio = (logp[t - 1, item.trajectory.ids[t]] - old).exp()
                        clipped = ratio.clamp(0.8, 1.2)
                        terms.append(torch.minimum(ratio * advantage, clipped * advantage))
                total = total - torch.stack(terms).mean() / 9
        total.backward()
        expected = torch.cat([p.grad.flatten() for p in policy.parameters if p.grad is not None])
        policy.model.zero_grad()
        assert (grad - expected).norm() <= 1e-5 * expected.norm()

    def test_a_rollout_longer_than_the_budget_gets_a_batch_of_its_own(self, items: Items):
        batches = list(_batches(items, 10))
        assert [len(batch.rows) for batch in batches] == [1] * 9
        for batch in _batches(items, 300):
            assert batch.layout.ids_BT.numel() <= 300


def _batches(items: Sequence[TrainItem], size: int) -> Any:
    packed = pack_items(items, keep_dead_groups=False)
    return micro_batches(packed.groups, size, CPU)


class TestWhatLeavesTheStep:
    @pytest.mark.parametrize("reduction", REDUCTIONS)
    def test_dead_groups_leave_the_denominators_at_beta_zero(
        self, policy: Policy, items: Items, reduction: str
    ):
        with_dead, stats = gradient(items, make_learner(policy, reduction=reduction))
        without, _ = gradient(items[:9], make_learner(policy, reduction=reduction))
        assert torch.equal(with_dead, without)
        assert stats["num_dead_groups"] == 1 and stats["num_groups"] == 4
        assert stats["num_rollouts"] == 9

    def test_dead_groups_stay_when_there_is_a_kl_term(self, policy: Policy, items: Items):
        learner = make_learner(policy, beta=0.1)
        with torch.no_grad():  # leave the reference, or k3 has no gradient
            for parameter in policy.parameters:
                parameter.add_(0.05)
        with_dead, stats = gradient(items, learner)
        without, _ = gradient(items[:9], learner)
        assert stats["num_dead_groups"] == 1 and stats["num_rollouts"] == 12
        assert (with_dead - without).norm() > 1e-3 * without.norm()

    def test_unscored_rollouts_are_excluded_and_counted(self, policy: Policy, items: Items):
        # Unscored is not zero: the group's mean and the denominators are those of the others.
        none = [replace(items[n], reward=None) for n in (0, 4)]
        grad, stats = gradient([none[0], *items[1:4], none[1], *items[5:]], make_learner(policy))
        others, _ = gradient([*items[1:4], *items[5:]], make_learner(policy))
        as_zero, _ = gradient(items, make_learner(policy))
        assert torch.equal(grad, others) and not torch.equal(grad, as_zero)
        assert (stats["num_unscored"], stats["num_dead_groups"]) == (2, 1)
        assert stats["num_rollouts"] == 7

    def test_rollout_without_a_model_token_enters_no_denominator(
        self, policy: Policy, items: Items
    ):
        empty = Trajectory("empty", "g0")
        empty.append_prompt([1, 2, 3])
        # In the advantages it counts (its reward is real); in the loss it has nothing to train.
        offered = [*items, TrainItem(empty, 0.5)]
        packed = pack_items(offered, reduction=Reduction.SEQUENCE_MEAN, keep_dead_groups=False)
        names = [item.trajectory.rollout_id for item in items[:9]]
        assert [r.rollout_id for r in packed.rows] == names
        assert sum(sum(r.over_tokens("weight")) for r in packed.rows) == pytest.approx(1.0)

    @pytest.mark.parametrize("why", ["no items", "all dead", "all unscored"])
    def test_empty_step_does_nothing_and_reports_what_it_counted(
        self, policy: Policy, items: Items, why: str
    ):
        offered = {
            "no items": [],
            "all dead": items[9:],
            "all unscored": [replace(item, reward=None) for item in items],
        }[why]
        learner = make_learner(policy)
        # AdamW has momentum now: a step with zero gradients would move.
        learner.train_step(make_groups(items))
        before = [p.detach().clone() for p in policy.parameters]
        state = copy.deepcopy(learner.optimizer.state_dict()["state"])
        version, step = policy.version, learner.step
        stats = learner.train_step(make_groups(offered)).metrics
        assert all(torch.equal(*pair) for pair in zip(policy.parameters, before, strict=True))
        after = learner.optimizer.state_dict()["state"]
        assert all(torch.equal(after[k]["exp_avg"], state[k]["exp_avg"]) for k in state)
        assert (policy.version, learner.step) == (version, step)
        about_the_step = {"num_unscored", "num_groups", "num_dead_groups", "lr"}
        nothing = {"num_tokens", "num_rollouts", "num_nonfinite", "skipped_steps"}
        assert stats.keys() == about_the_step | nothing, "what was not measured is absent"
        assert not any(stats[name] for name in nothing)


def test_shuffled_rewards_are_what_is_trained_and_a_resumed_learner_shuffles_alike(
    policy: Policy, items: Items
):
    settings: dict[str, Any] = {"algorithm": make_dr_grpo(), "control": "shuffled"}
    learner = make_learner(policy, **settings)
    other = make_learner(copy.deepcopy(policy), **settings)
    assert "shuffled within each group" in learner.describe()

    def trained(learner: Learner) -> list[list[float]]:
        """The advantages of each group that is not dead, by rollout."""
        columns = learner.train_step(make_groups(items)).tokens
        values = [columns[item.trajectory.rollout_id, 0].advantage for item in items[:9]]
        return [[round(float(v), 5) for v in values[n : n + 3]] for n in (0, 3, 6)]  # type: ignore

    earned = trained(make_learner(copy.deepcopy(policy), make_dr_grpo()))
    first, state = trained(learner), copy.deepcopy(learner.state_dict())
    second = trained(learner)
    assert [sorted(group) for group in first] == [sorted(group) for group in earned]
    assert earned != first != second
    other.load_state_dict(state)
    assert trained(other) == second
    assert [item.reward for item in items[:3]] == [0.0, 1.0, 0.5], "the record stays true"


class TestNonFinite:
    def test_non_finite_gradient_skips_the_step_and_not_the_schedule(
        self, policy: Policy, items: Items
    ):
        learner = make_learner(policy, warmup_steps=5)
        learner.train_step(make_groups(items))
        before = [p.detach().clone() for p in policy.parameters]
        handle = policy.parameters[0].register_hook(lambda grad: grad * math.nan)
        stats = learner.train_step(make_groups(items)).metrics
        handle.remove()
        assert stats["skipped_steps"] == 1 and "grad_norm" not in stats
        assert all(torch.equal(*pair) for pair in zip(policy.parameters, before, strict=True))
        assert (policy.version, learner.step) == (1, 1)
        again = learner.train_step(make_groups(items)).metrics
        assert again["lr"] == stats["lr"] == pytest.approx(1e-2 * 2 / 6)
        assert again["skipped_steps"] == 0 and learner.step == 2
        assert all(torch.isfinite(p).all() for p in policy.parameters)

    def test_one_bad_sampler_logprob_does_not_spoil_the_step(self, policy: Policy, items: Items):
        bad = Trajectory("bad", "g0")
        bad.append_prompt([1, 2])
        bad.append_model([3, 4], [math.nan, -3.0], version=0, reason=TurnStop.STOP_STRING)
        grad, stats = gradient([*items, TrainItem(bad, 0.9)], make_learner(policy))
        assert torch.isfinite(grad).all() and stats["num_nonfinite"] == 1

    def test_a_log_prob_that_the_trainer_cannot_say_is_counted(
        self, policy: Policy, items: Items, monkeypatch: pytest.MonkeyPatch
    ):
        logps, entropies = type(policy).logps, list[torch.Tensor]()

        def broken(self: Policy, *args: Any, **asked: Any) -> Any:
            found = logps(self, *args, **asked)
            first_N = torch.arange(len(found.logp_N)) == 0
            entropies.append(found.entropy_N.sum() - found.entropy_N[0])
            return found._replace(
                logp_N=found.logp_N.masked_fill(first_N, math.nan),
                entropy_N=found.entropy_N.masked_fill(first_N, math.nan),
            )

        learner = make_learner(policy, micro_batch_tokens=10**6)
        monkeypatch.setattr(type(policy), "logps", broken)
        grad, stats = gradient(items, learner)
        assert torch.isfinite(grad).all() and stats["num_nonfinite"] == 1
        assert stats["entropy"] == pytest.approx(entropies[0].item() / stats["num_tokens"])


class TestAlgorithms:
    def test_gradient_clip_bounds_the_update_and_reports_the_norm_before(
        self, policy: Policy, items: Items
    ):
        norms = []
        learner = make_learner(policy, max_grad_norm=1e-3)
        step = learner.optimizer.step

        def measure(*args: Any, **kwargs: Any) -> None:
            grads = [p.grad.flatten() for p in policy.parameters if p.grad is not None]
            norms.append(float(torch.cat(grads).norm()))

        learner.optimizer.step = measure  # type: ignore[method-assign]
        stats = learner.train_step(make_groups(items)).metrics
        learner.optimizer.step = step  # type: ignore[method-assign]
        assert norms[0] == pytest.approx(1e-3, rel=1e-3) and stats["grad_norm"] > 2e-3


def test_a_second_update_moves_the_ratio_and_measures_it(policy: Policy, short_world: Any):
    groups = make_groups(play(policy, short_world))
    learner = make_learner(policy, beta=0.01)
    first, second = (learner.train_step(groups).metrics for _ in range(2))
    assert first["approx_kl"] < 1e-9 < 1e-4 < second["approx_kl"]
    assert first["kl"] == pytest.approx(0, abs=1e-9) and second["kl"] > 1e-4
    assert first["ratio_mean"] == pytest.approx(1, abs=1e-5)
    # "Loss is 0, is it broken?" With centred advantages and ratio 1 it is 0, and still teaches.
    assert first["loss"] == pytest.approx(0, abs=1e-5) and first["grad_norm"] > 1e-3


@pytest.mark.parametrize("adapter", ["full", "lora"])
def test_a_device_has_the_gradient_that_a_cpu_has_in_float64(
    device: torch.device, micro_model: Path, items: Items, adapter: str
):
    policy = micro_policy(micro_model, device=device, adapter=adapter, lora_r=4)
    if adapter == "lora":
        enlarge_lora(policy, 0.1)
    ours, _ = gradient(items, make_learner(policy))
    exact, _ = gradient(items, make_learner(make_policy(micro_model, adapter, lora_r=4)))
    assert ours.dtype == torch.float32 and ours.device.type == device.type
    assert (ours.cpu() - exact).norm() <= 1e-3 * exact.norm()


def _entropy_bonus(trains_entropy: bool, bonus: float) -> Algorithm:
    def loss(columns: Any, settings: Any) -> Any:
        seen.append(columns.entropy_T.requires_grad)
        ratio_T = torch.exp(columns.logp_T - columns.old_logp_T)
        return columns.reduce(ratio_T * columns.adv_T + bonus * columns.entropy_T, ratio_T)

    seen: list[bool] = []
    grpo = make_grpo()
    asks = [Ask.ENTROPY] if trains_entropy else []
    return Algorithm("bonus", grpo.advantages, loss, asks=asks)


def test_an_entropy_bonus_moves_the_weights_only_where_the_algorithm_trains_it(
    policy: Policy, items: Items
):
    """A loss reads entropies in any case; gradients through them are asked for."""

    def of(trains_entropy: bool, bonus: float) -> torch.Tensor:
        return gradient(items, make_learner(policy, _entropy_bonus(trains_entropy, bonus)))[0]

    plain = of(False, 0.0)
    assert torch.equal(of(False, 100.0), plain)
    assert (of(True, 0.0) - plain).norm() <= 1e-4 * plain.norm()
    # The weights are random, so the entropy is near its maximum and its slope is small.
    once, twice = of(True, 100.0) - plain, of(True, 200.0) - plain
    assert once.norm() > 0.1 * plain.norm()
    assert (twice - 2 * once).norm() <= 1e-3 * twice.norm()
