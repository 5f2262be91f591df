"""Several updates per step, memory that runs out, float16: the gradient is the one asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from engine_toy import caught_step, micro_policy, pack_items
from packed_toy import (
    caught_gradients,
    is_close,
    make_items,
    make_learner,
    make_policy,
    spy_on_losses,
)
from torch import nn

from searchrl.algorithms.builtin import make_grpo, make_tis
from searchrl.core.group import TrainItem, make_groups
from searchrl.core.reduction import Reduction
from searchrl.engine.learning.batches import share_groups
from searchrl.engine.learning.learner import Learner
from searchrl.engine.learning.updater import is_out_of_memory, mini_batches
from searchrl.engine.model.policy import Policy
from searchrl.errors import PolicyError

REDUCTIONS = list(Reduction)


def offered() -> list[TrainItem]:
    """The rollouts of the groups that have an advantage."""
    return [item for item in make_items() if item.trajectory.group_id != "c"]


def of_groups(items: list[TrainItem], names: set[str]) -> list[TrainItem]:
    return [item for item in items if item.trajectory.group_id in names]


class TestMiniBatches:
    @pytest.mark.parametrize("reduction", REDUCTIONS)
    def test_each_is_the_step_of_its_groups_alone(self, micro_model: Path, reduction: Reduction):
        policy, items = make_policy(micro_model), offered()
        grpo = replace(make_grpo(), reduction=reduction.value)
        learner = make_learner(policy, mini_batches=3, algorithm=grpo)
        caught, told = caught_step(learner, items)
        grads = [grad.double() for grad in caught]
        mean_norm = sum(float(grad.norm()) for grad in grads) / 3
        assert told["grad_norm"] == pytest.approx(mean_norm, rel=1e-9)
        alone = [
            caught_gradients(make_learner(policy, algorithm=grpo), of_groups(items, {name}))[0]
            for name in "abd"
        ]
        assert len(grads) == 3
        for grad in grads:
            assert sum(is_close(grad, one, 1e-10) for one in alone) == 1

    def test_they_share_all_groups_and_depend_on_the_key_alone(self):
        groups = pack_items(make_items()).groups
        seen = set()
        for key in range(12):
            first, second = (
                mini_batches(groups, 2, Reduction.TOKEN_MEAN, constant=1, key=key) for _ in range(2)
            )
            assert first == second and len(first) == 2
            members = [sorted(group.id for group in batch) for batch in first]
            assert sorted(name for names in members for name in names) == ["a", "b", "c", "d"]
            assert [len(names) for names in members] == [2, 2]
            seen.add(str(members))
            for batch in first:
                members_of = [r for group in batch for r in group.rollouts]
                assert sum(sum(r.over_tokens("weight")) for r in members_of) == pytest.approx(1.0)
        assert len(seen) > 2
        many = mini_batches(groups, 9, Reduction.TOKEN_MEAN, constant=1, key=0)
        assert [len(batch) for batch in many] == [1] * 4
        assert mini_batches((), 3, Reduction.TOKEN_MEAN, constant=1, key=0) == []

    def test_a_step_counts_once_in_the_schedule_and_each_update_in_the_version(
        self, micro_model: Path
    ):
        policy = make_policy(micro_model)
        learner = make_learner(policy, mini_batches=3, epochs=2)
        when: list[str] = []
        learner.ensure_same_weights = when.append  # type: ignore[method-assign]
        stats, columns = learner.train_step(make_groups(offered()))
        assert (learner.step, policy.version) == (1, 6) and when == ["after step 1"]
        assert all(p.grad is None for p in learner.parameters), "nothing is left in memory"
        assert learner.describe().startswith("up to 6 per step") and not learner.is_halfway
        assert stats["num_updates"] == 6 and stats["skipped_steps"] == 0
        assert len(columns) == stats["num_rollouts"]
        once = make_learner(make_policy(micro_model)).train_step(make_groups(offered())).metrics
        assert stats["num_tokens"] == 6 / 3 * once["num_tokens"]
        assert stats["approx_kl"] > once["approx_kl"]

    def test_an_update_that_was_skipped_is_in_no_mean(self, micro_model: Path):
        policy = make_policy(micro_model)
        learner = make_learner(policy, mini_batches=3)
        norms = [float(one.norm()) for one in caught_gradients(learner, offered())]
        learner, calls = make_learner(policy, mini_batches=3, lr=0.0), []
        accumulate = learner.accumulate

        def spoil(groups: Any, compute: Any) -> Any:
            made = accumulate(groups, compute)
            calls.append(compute.keywords)
            if len(calls) > 1:
                learner.parameters[0].grad = learner.parameters[0] * torch.nan
            return made

        learner.accumulate = spoil  # type: ignore[method-assign]
        before = policy.version
        told = learner.train_step(make_groups(offered())).metrics
        assert calls == [{"is_at_start": not n, "is_first": True} for n in range(3)]
        assert told["grad_norm"] == pytest.approx(norms[0], rel=1e-6)
        assert (told["num_updates"], told["skipped_steps"]) == (1, 2)
        assert (policy.version - before, learner.step) == (1, 1)

    def test_a_step_that_breaks_off_after_an_update_is_half_way(self, micro_model: Path):
        learner = make_learner(make_policy(micro_model), mini_batches=2)
        accumulate = learner.accumulate

        def fail(groups: Any, compute: Any) -> Any:
            if compute.keywords["is_at_start"] == (where == 0):
                raise ZeroDivisionError
            return accumulate(groups, compute)

        learner.accumulate = fail  # type: ignore[method-assign]
        for where in range(2):
            with pytest.raises(ZeroDivisionError):
                learner.train_step(make_groups(offered()))
            assert learner.is_halfway == (where > 0)

    def test_seed_step_and_epoch_decide_which_groups_meet(
        self, micro_model: Path, monkeypatch: pytest.MonkeyPatch
    ):
        def spy(*args: Any, key: int, **more: Any) -> Any:
            keys.append(key)
            return mini_batches(*args, key=key, **more)

        keys: list[int] = []
        monkeypatch.setattr("searchrl.engine.learning.learner.mini_batches", spy)
        for seed in (0, 0, 1):
            learner = make_learner(make_policy(micro_model), epochs=2, lr=0.0)
            learner.seed = seed
            for _ in range(2):
                learner.train_step(make_groups(offered()))
        assert keys[:4] == keys[4:8] and len({*keys}) == 8

    def test_the_first_epoch_ends_with_the_last_mini_batch_that_there_is(self, micro_model: Path):
        learner = make_learner(make_policy(micro_model), mini_batches=9, epochs=2, lr=0.0)
        accumulate, calls = learner.accumulate, []
        spy = lambda g, c: (calls.append(c.keywords), accumulate(g, c))[1]  # noqa: E731
        learner.accumulate = spy  # type: ignore[method-assign]
        learner.train_step(make_groups(offered()))
        assert calls == [{"is_at_start": n == 0, "is_first": n < 3} for n in range(6)]


@pytest.mark.parametrize(
    ("is_packed", "expected"), [(True, [["b"], ["a", "c", "d"]]), (False, [["b", "c"], ["a", "d"]])]
)
def test_processes_share_the_groups_even_in_tokens(is_packed: bool, expected: list[list[str]]):
    """Packed, `b` has the most tokens; padded, each of the many rollouts of `d` has its prompt."""
    groups = pack_items(make_items()).groups
    shares = []
    for rank in range(2):
        workers: Any = SimpleNamespace(size=2, rank=rank)
        shares.append([group.id for group in share_groups(groups, workers, is_packed=is_packed)])
    assert sorted(shares) == sorted(expected)
    sizes = {"a": 3, "b": 10, "c": 4, "d": 3}
    groups: Any = [
        SimpleNamespace(id=name, rollouts=[SimpleNamespace(ids=[0] * size)])
        for name, size in sizes.items()
    ]
    other: Any = SimpleNamespace(size=2, rank=1)
    assert [one.id for one in share_groups(groups, other, is_packed=False)] == ["a", "c", "d"]


class TestOldLogprobs:
    @pytest.mark.parametrize("epochs", [1, 2])
    def test_an_algorithm_that_needs_the_trainers_gets_them_beside_the_samplers(
        self, micro_model: Path, epochs: int
    ):
        policy, items = make_policy(micro_model), offered()
        learner = make_learner(policy, algorithm=make_tis(), epochs=epochs)
        learner.temperature = 0.7
        seen = spy_on_losses(learner, items)
        assert len(seen) == epochs
        for update in seen:
            # The items' sampler log-probs are 0.3 nats off, on purpose.
            assert (update.old_logp_T - update.sampler_logp_T).abs().mean() > 0.1
            assert torch.equal(update.sampler_logp_T, seen[0].sampler_logp_T)
            assert torch.equal(update.old_logp_T, seen[0].old_logp_T)
        assert torch.equal(seen[0].logp_T, seen[0].old_logp_T)
        if epochs == 1:  # and no pass of the model is made for them
            plain = count_forwards(policy, make_learner(policy), items)
            assert (
                count_forwards(policy, make_learner(policy, algorithm=make_tis()), items) == plain
            )
        if epochs == 2:
            assert (seen[1].logp_T - seen[1].old_logp_T).abs().max() > 1e-3


def out_of_memory(kind: str) -> RuntimeError:
    if kind == "cuda":
        return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
    return RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried …")


class TestMemoryRunsOut:
    @pytest.mark.parametrize("kind", ["cuda", "cpu"])
    @pytest.mark.parametrize("where", ["forward", "backward"])
    @pytest.mark.parametrize("is_packed", [True, False])
    def test_the_micro_batch_is_split_and_the_gradient_is_the_same(
        self,
        device: torch.device,
        micro_model: Path,
        monkeypatch: pytest.MonkeyPatch,
        is_packed: bool,
        where: str,
        kind: str,
    ):
        emptied = Mock()
        monkeypatch.setattr(torch.cuda, "empty_cache", emptied)
        policy, items = make_policy(micro_model, device=device), offered()
        (expected,) = caught_gradients(make_learner(policy, is_packed=is_packed), items)
        learner = make_learner(policy, is_packed=is_packed, micro_batch_tokens=500)
        num_batches = count_forwards(policy, learner, items)
        restore = fail_above(policy, 350, where, lambda: out_of_memory(kind))
        (grad,), stats = caught_step(learner, items)
        restore()
        assert is_close(grad.double(), expected, 1e-10) and stats["oom_splits"] >= 1
        assert learner.micro_batch_tokens <= 250 and emptied.call_count == stats["oom_splits"]
        assert count_forwards(policy, learner, items) > num_batches  # smaller from now on

    def test_every_split_is_counted_that_of_old_log_probs_too(self, micro_model: Path):
        policy, calls = make_policy(micro_model), []

        def fail() -> RuntimeError:
            calls.append(1)
            return out_of_memory("cpu")

        learner = make_learner(policy, algorithm=make_tis(), epochs=2, is_packed=False)
        restore = fail_above(policy, 350, "forward", fail)
        told = learner.train_step(make_groups(offered())).metrics
        restore()
        # Halved from what was computed, not from what was allowed.
        assert told["oom_splits"] == len(calls) == 3 and learner.micro_batch_tokens == 321

    def test_a_single_rollout_that_does_not_fit_says_what_to_do(self, micro_model: Path):
        policy = make_policy(micro_model)
        learner = make_learner(policy)
        restore = fail_above(policy, 30, "forward", lambda: out_of_memory("cpu"))
        message = "single rollout .*model.gradient_checkpointing: true"
        with pytest.raises(PolicyError, match=message):
            learner.train_step(make_groups(offered()))
        restore()

    def test_other_errors_are_not_taken_for_it(self, micro_model: Path):
        policy = make_policy(micro_model)
        learner = make_learner(policy)
        restore = fail_above(policy, 30, "forward", lambda: RuntimeError("shapes do not fit"))
        with pytest.raises(RuntimeError, match="shapes do not fit"):
            learner.train_step(make_groups(offered()))
        restore()
        assert not is_out_of_memory(RuntimeError("shapes do not fit"))
        assert is_out_of_memory(RuntimeError("not enough memory: you tried to allocate 9 bytes"))


def fail_above(
    policy: Policy, num_tokens: int, where: str, make: Callable[[], RuntimeError]
) -> Callable[[], None]:
    """Raise in the forward or backward pass of rows with more tokens than that."""

    def fail(module: nn.Module, args: Any, output: torch.Tensor) -> None:
        if output.shape[:-1].numel() <= num_tokens:
            return
        if where == "forward":
            raise make()
        if output.requires_grad:

            def fail_backward(grad: torch.Tensor) -> None:
                raise make()

            output.register_hook(fail_backward)

    # The first layer's: by then the backward pass has left gradients in the last ones.
    layer = policy.model.get_decoder().layers[0].input_layernorm
    return layer.register_forward_hook(fail).remove  # type: ignore[no-any-return]


def count_forwards(policy: Policy, learner: Learner, items: list[TrainItem]) -> int:
    calls: list[None] = []
    handle = policy.model.get_decoder().register_forward_hook(lambda *_: calls.append(None))
    caught_gradients(learner, items)
    handle.remove()
    return len(calls)


def scaled(exponent: int) -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu", init_scale=2.0**exponent)


class TestHalfPrecision:
    def test_float16_scales_the_loss_and_not_the_gradient(self, micro_model: Path):
        full = make_learner(micro_policy(micro_model, adapter="lora", lora_r=4))
        half = make_learner(micro_policy(micro_model, adapter="lora", lora_r=4, dtype="float16"))
        assert half.loss_scale.get_scale() == 2.0**16 and full.loss_scale.get_scale() == 1.0
        (exact,), (rounded,) = (caught_gradients(each, offered()) for each in (full, half))
        assert is_close(rounded, exact, 2e-2)
        assert all(p.dtype == torch.float32 for p in half.parameters)

    def test_an_overflow_skips_the_step_halves_the_scale_and_keeps_the_schedule(
        self, micro_model: Path
    ):
        policy = micro_policy(micro_model, adapter="lora", lora_r=4, dtype="float16")
        learner = make_learner(policy, warmup_steps=5)
        learner.loss_scale = scaled(40)
        before = [p.detach().clone() for p in policy.parameters]
        stats = learner.train_step(make_groups(offered())).metrics
        assert stats["skipped_steps"] == 1 and stats["loss_scale"] == 2.0**39
        assert learner.step == 0 and policy.version == 0
        assert all(torch.equal(p, old) for p, old in zip(policy.parameters, before, strict=True))
        learner.loss_scale = scaled(10)
        again = learner.train_step(make_groups(offered())).metrics
        assert again["skipped_steps"] == 0 and again["lr"] == stats["lr"] and learner.step == 1

    def test_the_scale_has_a_floor(self, micro_model: Path):
        """At 0, which halving reaches, every later gradient would be NaN."""
        learner = make_learner(micro_policy(micro_model, adapter="lora", lora_r=4))
        learner.loss_scale = scaled(-14)
        learner.loss_scale.scale(torch.ones(()))
        for parameter in learner.parameters:
            parameter.grad = torch.full_like(parameter, torch.inf)
        assert not learner.take_step()[1] and learner.loss_scale.get_scale() == 2.0**-14

    def test_the_scale_survives_a_checkpoint(self, micro_model: Path):
        learner, other = (
            make_learner(micro_policy(micro_model, adapter="lora", lora_r=4, dtype="float16"))
            for _ in range(2)
        )
        learner.loss_scale = scaled(9)
        learner.train_step(make_groups(offered()))
        other.load_state_dict(learner.state_dict())
        state = other.loss_scale.state_dict()
        assert (state["scale"], state["_growth_tracker"]) == (2.0**9, 1)
