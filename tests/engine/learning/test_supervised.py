"""The supervised learner: which tokens it learns, and steps that are those of Adam."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_toy import lora_policy
from packed_toy import make_policy

from searchrl.config.sft import SftStage
from searchrl.core.trajectory import Author, Origin, Trajectory, TurnStop
from searchrl.engine.learning.supervised import SupervisedLearner
from searchrl.engine.model.layout import Layout
from searchrl.engine.model.policy import Policy

MODEL = SftStage(lr=1e-2, warmup_steps=0, schedule="constant")
ALL = MODEL.model_copy(update={"loss_on": "all"})


def demonstration(seed: int, answer: int = 50) -> Trajectory:
    generator = torch.Generator().manual_seed(seed)

    def some(n: int) -> list[int]:
        return torch.randint(1, 290, (n,), generator=generator).tolist()

    trajectory = Trajectory(f"d{seed}", f"d{seed}", origin=Origin.DEMONSTRATION)
    trajectory.append_prompt(some(5 + seed % 3))
    trajectory.append_model(some(4), None, version=-1, reason=TurnStop.STOP_STRING)
    trajectory.append_env(some(6 + seed % 5))
    trajectory.append_model([answer, 60], None, version=-1, reason=TurnStop.STOP_STRING)
    return trajectory


class TestLoss:
    @pytest.mark.parametrize("stage", [MODEL, ALL])
    def test_segments_are_learned_as_demonstrations_of_their_own(
        self, micro_model: Path, stage: SftStage
    ):
        apart = [demonstration(0), demonstration(1)]
        joined, other = demonstration(0), apart[1]
        joined.segments += other.segments
        joined.turns += [replace(turn, index=turn.index + 2, segment=1) for turn in other.turns]
        first, second = (
            SupervisedLearner(make_policy(micro_model), 1.0, 10**6).train_step(batch, stage, 0)
            for batch in (apart, [joined])
        )
        assert first == pytest.approx(second)
        # All but the first token of a segment, prompt and observations too.
        assert first["num_tokens"] == (12 if stage is MODEL else sum(map(len, apart)) - 2)


class TestSteps:
    def test_steps_are_those_of_adam_with_the_rate_and_the_clip_that_were_asked_for(
        self, micro_model: Path
    ):
        ours, by_hand = make_policy(micro_model), make_policy(micro_model)
        learner = SupervisedLearner(ours, 0.05, 25)
        adam = torch.optim.Adam(by_hand.parameters, betas=(0.9, 0.999))
        stage = SftStage(lr=3e-2, warmup_steps=1, schedule="cosine", steps=9)
        batch = [demonstration(seed) for seed in (3, 0)]
        accuracy = 0.0
        for number, at in enumerate((0, 1, 2, 4, 6, 7)):
            lr = 3e-2 * (0.5 if at < 1 else 0.5 + 0.5 * math.cos(math.pi * (at - 1) / 8))
            adam.param_groups[0]["lr"] = lr
            adam.zero_grad()
            logps, is_right = [], []
            for one in batch:
                logits = by_hand.model(input_ids=torch.tensor([one.ids])).logits[0, :-1]
                ids = torch.tensor(one.ids[1:])
                chosen = torch.tensor([author is Author.MODEL for author in one.authors[1:]])
                picked = torch.log_softmax(logits, -1).gather(-1, ids[:, None])[chosen, 0]
                logps.append(picked)
                is_right += (logits.argmax(-1) == ids)[chosen].tolist()
            loss = -torch.cat(logps).mean()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(by_hand.parameters, 0.05)
            adam.step()
            stats = learner.train_step(batch, stage, at)
            accuracy = stats["token_accuracy"]
            assert accuracy == sum(is_right) / len(is_right)
            assert stats["loss"] == pytest.approx(loss.item(), rel=1e-4)
            assert stats["grad_norm"] == pytest.approx(float(norm), rel=1e-4) and norm > 0.05
            assert stats["lr"] == pytest.approx(lr) and stats["num_tokens"] == 12
            assert (learner.step, ours.version) == (number + 1, number + 1)
            assert not ours.model.training and all(p.grad is None for p in ours.parameters)
        assert accuracy > 0.3
        for left, right in zip(ours.parameters, by_hand.parameters, strict=True):
            assert (left - right).abs().max() < 1e-4

    def test_a_pass_has_as_many_tokens_as_it_may_the_longest_first(
        self, policy: Policy, monkeypatch: pytest.MonkeyPatch
    ):
        shapes: list[tuple[int, ...]] = []
        logps = type(policy).logps

        def spy(self: Policy, layout: Layout, **asked: Any) -> Any:
            shapes.append(tuple(layout.ids_BT.shape))
            if layout.num_computed > limit:
                raise RuntimeError("not enough memory: you tried to allocate 9 bytes")
            return logps(self, layout, **asked)

        monkeypatch.setattr(type(policy), "logps", spy)
        batch = [demonstration(seed) for seed in range(6)]
        assert [len(one) for one in batch] == [17, 19, 21, 20, 22, 19]
        for size, limit, expected in (
            (42, 99, [(1, 22), (2, 21), (2, 19), (1, 17)]),
            (10, 99, [(1, n) for n in (22, 21, 20, 19, 19, 17)]),
            (99, 50, [(4, 22), (2, 22), (2, 20), (2, 19)]),
        ):
            stats = SupervisedLearner(policy, 1.0, size).train_step(batch, MODEL, 0)
            assert shapes == expected and stats.get("oom_splits", 0) == (limit == 50)
            shapes.clear()

    @pytest.mark.parametrize("what", ["gradient", "loss"])
    def test_non_finite_step_updates_nothing_and_is_counted(
        self, policy: Policy, what: str, monkeypatch: pytest.MonkeyPatch
    ):
        learner = SupervisedLearner(policy, 1.0, 10**6)
        learner.train_step([demonstration(0)], MODEL, 0)
        before = [p.detach().clone() for p in policy.parameters]
        logps = type(policy).logps

        def broken(self: Policy, *args: Any, **asked: Any) -> Any:
            found = logps(self, *args, **asked)
            return found._replace(logp_N=found.logp_N - math.inf)

        with monkeypatch.context() as patch:
            if what == "loss":
                patch.setattr(type(policy), "logps", broken)
            else:
                hook = policy.parameters[0].register_hook(lambda grad: grad * math.inf)
            stats = learner.train_step([demonstration(1)], MODEL, 1)
        if what == "gradient":
            hook.remove()
        assert stats["skipped_steps"] == 1 and all(math.isfinite(v) for v in stats.values())
        assert ("grad_norm" in stats, "loss" in stats) == (what == "loss", what == "gradient")
        assert all(torch.equal(*pair) for pair in zip(policy.parameters, before, strict=True))
        assert (learner.step, policy.version) == (2, 1)
        assert learner.train_step([demonstration(1)], MODEL, 2)["skipped_steps"] == 0

    def test_nothing_to_learn_from_changes_nothing(self, policy: Policy):
        learner = SupervisedLearner(policy, 1.0, 10**6)
        learner.train_step([demonstration(0)], MODEL, 0)
        before = [p.detach().clone() for p in policy.parameters]
        empty = Trajectory("e", "e", origin=Origin.DEMONSTRATION)
        empty.append_prompt([1, 2, 3])
        stats = learner.train_step([empty], MODEL, 1)
        assert stats["num_tokens"] == 0 and not {"loss", "token_accuracy", "grad_norm"} & set(stats)
        assert all(torch.equal(*pair) for pair in zip(policy.parameters, before, strict=True))
        assert (learner.step, policy.version, stats["skipped_steps"]) == (2, 1, 0)

    def test_lora_dropout_acts_here_and_is_drawn_from_the_seed(self, micro_model: Path):
        losses = {}
        for dropout, seed in ((0.0, 1), (0.5, 1), (0.5, 2)):
            for repeat in range(2):
                policy = lora_policy(micro_model, lora_dropout=dropout)
                torch.manual_seed(repeat)  # whatever was drawn before does not matter
                learner = SupervisedLearner(policy, 1.0, 10**6)
                stats = learner.train_step([demonstration(0)], MODEL, 0, seed=seed)
                losses[dropout, seed, repeat] = stats["loss"]
        assert losses[0.5, 1, 0] == losses[0.5, 1, 1]
        assert len({losses[0.0, 1, 0], losses[0.5, 1, 0], losses[0.5, 2, 0]}) == 3
