"""The work that every side of a benchmark does, and our side of it.

A step samples `num_prompts * group_size` rollouts of `num_turns` turns of exactly `turn_tokens`
tokens, with `observation_tokens` random tokens between two turns, and updates the policy once.
No environment: the reward of a rollout is a hash of its text, so that hardly any group is dead
and all sides train on everything. Lengths are forced, so that all sides compute the same number
of tokens whatever their draws.
"""

from __future__ import annotations

import math
import random
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from transformers import Qwen3Config, Qwen3ForCausalLM

from searchrl.algorithms.builtin import make_grpo
from searchrl.config import build_config
from searchrl.config.sections import AlgorithmConfig, OptimConfig
from searchrl.core.group import Group, TrainItem, make_groups
from searchrl.core.trajectory import Trajectory, TurnStop
from searchrl.engine.learning.batches import micro_batches
from searchrl.engine.learning.learner import Learner
from searchrl.engine.learning.packing import pack_step
from searchrl.engine.model.loading import TINY_PATH, load_policy, resolve_model
from searchrl.engine.model.policy import Policy
from searchrl.engine.sampling.generator import Generator, Handle, Sampling, mix_key
from searchrl.engine.sampling.hf_generator import HFGenerator
from searchrl.engine.sampling.slot_generator import SlotGenerator, SlotStats

LEARNING_RATE = 1e-5
MAX_GRAD_NORM = 0.5
_WORDS = (
    "school handbook library teacher lesson lunch music sports exam locker trip room club office "
    "morning evening rule student parent fee day week open close before after how many when where"
).split()


@dataclass(frozen=True, slots=True)
class Workload:
    """Sizes of a step."""

    num_prompts: int = 8
    group_size: int = 8
    prompt_tokens: int = 64
    turn_tokens: int = 96
    num_turns: int = 1
    observation_tokens: int = 0
    is_skewed: bool = False
    """Turn lengths are drawn, most of them short, a few up to four times `turn_tokens`."""

    @property
    def num_rollouts(self) -> int:
        """Completions of a step."""
        return self.num_prompts * self.group_size

    @property
    def num_model_tokens(self) -> int:
        """Sampled tokens of a step."""
        return self.num_rollouts * self.num_turns * self.turn_tokens

    @property
    def max_length(self) -> int:
        """Tokens of a rollout, prompt included."""
        between = (self.num_turns - 1) * self.observation_tokens
        longest = self.turn_tokens * (4 if self.is_skewed else 1)
        return self.prompt_tokens + self.num_turns * longest + between

    def draw_tokens(self, *key: int) -> int:
        """Tokens of one turn."""
        if not self.is_skewed:
            return self.turn_tokens
        drawn = random.Random(mix_key(*key)).expovariate(1 / self.turn_tokens)
        return max(1, min(4 * self.turn_tokens, round(drawn)))


def make_prompts(tokenizer: Any, work: Workload, seed: int) -> list[str]:
    """Texts of exactly `prompt_tokens` tokens, all different.

    Raises:
        RuntimeError: if texts of this tokenizer cannot be cut to a length.
    """
    rng = random.Random(seed)
    prompts: list[str] = []
    for _ in range(100 * work.num_prompts):
        ids = tokenizer(" ".join(rng.choice(_WORDS) for _ in range(work.prompt_tokens))).input_ids
        text = tokenizer.decode(ids[: work.prompt_tokens])
        is_whole = len(tokenizer(text).input_ids) == work.prompt_tokens
        if is_whole and text not in prompts:
            prompts.append(text)
        if len(prompts) == work.num_prompts:
            return prompts
    raise RuntimeError(f"found no {work.num_prompts} prompts of {work.prompt_tokens} tokens")


def ordinary_ids(tokenizer: Any) -> list[int]:
    """Token ids that control nothing."""
    added = tokenizer.added_tokens_decoder
    return [number for number in range(len(tokenizer)) if number not in added]


def observe(tokenizer: Any, count: int, *key: int) -> list[int]:
    """`count` random ids: what an environment might have said."""
    return random.Random(mix_key(*key)).choices(ordinary_ids(tokenizer), k=count)


def reward_text(text: str) -> float:
    """A reward in [0, 1) that hardly any two texts share."""
    return zlib.crc32(text.encode()) % 1009 / 1009


def load_bench_policy(name: str, device: str = "cpu", *, trainable: bool = True) -> Policy:
    """A policy by name, all weights trained, in fp32."""
    config = build_config({"model": {"name": name, "adapter": "full", "dtype": "float32"}})
    target = torch.device(device)
    resolved = resolve_model(name, target)
    policy = load_policy(config.model, resolved, target, trainable=trainable)
    policy.eos_ids = frozenset()  # lengths are forced
    return policy


def make_random_policy(
    config: Qwen3Config,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    *,
    lora: bool = False,
    checkpointing: bool = False,
) -> Policy:
    """A Qwen3 with random weights, made on the device, behind the embedded model's tokenizer."""
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            model: Any = Qwen3ForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    source = load_bench_policy(str(TINY_PATH), trainable=False)
    if lora:
        from peft import LoraConfig, get_peft_model

        settings = LoraConfig(
            r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"
        )
        model = get_peft_model(model, settings)
    if checkpointing:
        base = model.get_base_model() if lora else model
        base.gradient_checkpointing_enable({"use_reentrant": False})
        if lora:
            base.enable_input_require_grads()
    return Policy(
        model=model.eval(),
        tokenizer=source.tokenizer,
        renderer=source.renderer,
        device=torch.device(device),
        is_lora=lora,
        source="random weights",
        eos_ids=frozenset(),
    )


def make_trajectories(work: Workload, vocab_size: int, seed: int) -> list[Trajectory]:
    """Rollouts of random ids, for updates that need no sampling before them."""
    rng = random.Random(seed)
    made = []
    for number in range(work.num_prompts):
        prompt = rng.choices(range(vocab_size), k=work.prompt_tokens)
        for place in range(work.group_size):
            trajectory = Trajectory(f"{number}/{place}", str(number))
            trajectory.append_prompt(prompt)
            for turn in range(work.num_turns):
                if turn:
                    said = rng.choices(range(vocab_size), k=work.observation_tokens)
                    trajectory.append_env(said)
                count = work.draw_tokens(seed, number, place, turn)
                ids = rng.choices(range(vocab_size), k=count)
                logps = [-math.log(vocab_size)] * len(ids)
                trajectory.append_model(ids, logps, version=0, reason=TurnStop.MAX_TOKENS)
            made.append(trajectory)
    return made


class OurSide:
    """One training step after another with the slot engine and the packed learner.

    `is_plain`: with the plain generator and padded rollouts instead, our own reference.
    """

    def __init__(
        self,
        policy: Policy,
        work: Workload,
        prompts: list[str],
        *,
        num_slots: int = 64,
        micro_batch_tokens: int = 1024,
        is_plain: bool = False,
        seed: int = 0,
    ) -> None:
        self.policy = policy
        self.work = work
        self.prompt_ids = [policy.tokenizer(text).input_ids for text in prompts]
        self.seed = seed
        self.num_steps = 0
        self.sample_s = self.update_s = self.sample_cpu_s = 0.0
        """Of the last step."""
        self.generator: Generator = (
            HFGenerator(policy, Sampling(1.0), num_slots)
            if is_plain
            else SlotGenerator(policy, Sampling(1.0), num_slots, work.max_length)
        )
        optim = OptimConfig(
            lr=LEARNING_RATE,
            warmup_steps=0,
            max_grad_norm=MAX_GRAD_NORM,
            micro_batch_tokens=micro_batch_tokens,
        )
        algorithm = AlgorithmConfig(beta=0.0)
        self.learner = Learner(policy, make_grpo(), algorithm, optim, max_steps=1 << 30)
        if is_plain:
            self.learner.packing_fault = "measured without"

    def step(self) -> float:
        """Sample and update; seconds."""
        started, began = time.perf_counter(), time.process_time()
        trajectories = self.sample()
        wait_for(self.policy.device)
        sampled = time.perf_counter()
        self.sample_cpu_s = time.process_time() - began
        self.update(trajectories)
        wait_for(self.policy.device)
        updated = time.perf_counter()
        self.sample_s, self.update_s = sampled - started, updated - sampled
        self.num_steps += 1
        return updated - started

    def sample(self) -> list[Trajectory]:
        """The rollouts of a step, each turn submitted as soon as the one before is back."""
        work, generator = self.work, self.generator
        open_: dict[Handle, Trajectory] = {}
        for number, ids in enumerate(self.prompt_ids):
            keys = [mix_key(self.seed, self.num_steps, number, g) for g in range(work.group_size)]
            for place, handle in enumerate(generator.open(ids, work.group_size, keys)):
                trajectory = Trajectory(f"{self.num_steps}/{number}/{place}", str(number))
                trajectory.append_prompt(ids)
                open_[handle] = trajectory
                count = work.draw_tokens(self.num_steps, number, place)
                generator.submit(handle, (), (), count)
        return self._finish(open_)

    def _finish(self, open_: dict[Handle, Trajectory]) -> list[Trajectory]:
        """The trajectories when all of their turns have been sampled."""
        work, generator = self.work, self.generator
        trajectories = list(open_.values())
        while open_:
            finished = generator.poll()
            assert finished, "the generator stopped before every turn was back"
            for turn in finished:
                trajectory = open_[turn.handle]
                trajectory.append_model(
                    turn.ids, turn.logps, version=turn.version, reason=turn.reason
                )
                if trajectory.num_kept + len(trajectory.turns) == work.num_turns:
                    generator.close(turn.handle)
                    del open_[turn.handle]
                    continue
                said = observe(
                    self.policy.tokenizer, work.observation_tokens, len(trajectory), turn.ids[-1]
                )
                trajectory.append_env(said)
                count = work.draw_tokens(len(trajectory), turn.ids[-1])
                generator.submit(turn.handle, said, (), count)
        return trajectories

    def update(self, trajectories: list[Trajectory]) -> dict[str, float]:
        """Score what was sampled and take one optimiser step."""
        return self.learner.train_step(self._score(trajectories)).metrics

    def _score(self, trajectories: list[Trajectory]) -> list[Group[TrainItem]]:
        items = []
        for trajectory in trajectories:
            written = trajectory.ids[trajectory.num_prompt_tokens :]
            text = self.policy.tokenizer.decode(written)
            items.append(TrainItem(trajectory, reward_text(text)))
        return make_groups(items)

    def num_trained(self, trajectories: list[Trajectory]) -> int:
        """Tokens that an update on them computes, padding included."""
        learner = self.learner
        step = pack_step(self._score(trajectories), learner.algorithm, learner.loss_settings)
        batches = micro_batches(
            step.groups,
            self.learner.micro_batch_tokens,
            self.policy.device,
            is_packed=self.learner.packing_fault is None,
        )
        return sum(batch.layout.ids_BT.numel() for batch in batches)

    def take_stats(self) -> SlotStats:
        """What the slot engine has computed since it was last asked."""
        assert isinstance(self.generator, SlotGenerator)
        stats = replace(self.generator.stats)
        self.generator.stats.restart()
        return stats


def wait_for(device: torch.device) -> None:
    """Wait until the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def fastest(device: torch.device, work: Callable[[], object], repeat: int = 1) -> float:
    """Seconds of the fastest of some runs, after one that is not timed if there are several."""
    if repeat > 1:
        work()
    best = float("inf")
    for _ in range(repeat):
        wait_for(device)
        began = time.perf_counter()
        work()
        wait_for(device)
        best = min(best, time.perf_counter() - began)
    return best


def num_weights(model: nn.Module) -> int:
    """Weights of a model."""
    return sum(p.numel() for p in model.parameters())
