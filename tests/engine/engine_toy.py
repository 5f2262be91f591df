"""What the engine's tests share: micro policies, played episodes, a generator with a script."""

import json
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from searchrl.algorithms.builtin import make_grpo
from searchrl.algorithms.record import Algorithm, Critic
from searchrl.config import RunConfig, build_config
from searchrl.config.sections import AlgorithmConfig, OptimConfig
from searchrl.core.advantage import AdvantageFn, Column, StepScores, grpo_advantages
from searchrl.core.columns import LossColumns, LossStats
from searchrl.core.group import Trainable, TrainItem, make_groups
from searchrl.core.reduction import LossSettings, Reduction
from searchrl.core.trajectory import Trajectory, TurnStop
from searchrl.engine.learning.learner import Learner
from searchrl.engine.learning.packing import PackedStep, pack_step
from searchrl.engine.learning.workers import ALONE, Workers
from searchrl.engine.model.layout import padded_layout
from searchrl.engine.model.loading import ResolvedModel, load_policy
from searchrl.engine.model.policy import Policy
from searchrl.engine.rollout.dialogue import Limits, RolloutRequest
from searchrl.engine.rollout.rollout import Rollout, RolloutDriver
from searchrl.engine.rollout.world import TaskWorld
from searchrl.engine.sampling.generator import FinishedTurn, Handle, Sampling
from searchrl.engine.sampling.hf_generator import HFGenerator

CPU = torch.device("cpu")
TOY_PLUGIN = Path(__file__).resolve().parent.parent / "fixtures" / "toy_world.py"


def micro_policy(
    folder: Path, *, trainable: bool = True, device: torch.device = CPU, **model: Any
) -> Policy:
    """A copy of a micro model, loaded once: full tuning unless `adapter` says otherwise."""
    return deepcopy(_loaded(folder, trainable, device, json.dumps(model, sort_keys=True)))


@cache
def _loaded(folder: Path, trainable: bool, device: torch.device, model: str) -> Policy:
    settings = {"name": str(folder), "adapter": "full", "dtype": "float32", **json.loads(model)}
    config: RunConfig = build_config({"model": settings})
    torch.manual_seed(0)
    resolved = ResolvedModel(str(folder), None, is_tiny=False)
    return load_policy(config.model, resolved, device, trainable=trainable)


def enlarge_lora(policy: Policy, scale: float = 0.3) -> Policy:
    """Give a fresh adapter (whose B is zero) weights that matter."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in policy.parameters:
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
    return policy


def lora_policy(folder: Path, scale: float = 0.3, **model: Any) -> Policy:
    """A micro policy with an adapter of rank 4 that matters."""
    return enlarge_lora(micro_policy(folder, adapter="lora", lora_r=4, **model), scale)


SEEN: list[StepScores] = []


def returns(step: StepScores) -> dict[str, list[Column]]:
    SEEN.append(step)
    assert step.turn_rewards is not None
    sums = [[sum(own[turn:]) for turn in range(len(own))] for own in step.turn_rewards]
    return {"target": [Column(own) for own in sums]}


def gains(step: StepScores) -> list[Column]:
    assert step.values is not None
    pairs = zip(returns(step)["target"], step.values, strict=True)
    return [
        Column([got - value for got, value in zip(own.values, values.values, strict=True)])
        for own, values in pairs
    ]


def zeros(step: StepScores) -> list[float]:
    return [0.0] * len(step.rewards)


def critic_loss(columns: LossColumns, settings: LossSettings) -> tuple[Tensor, LossStats]:
    assert columns.value_T is not None
    ratio_T = torch.exp(columns.logp_T - columns.old_logp_T)
    errors_T = (columns["target"] - columns.value_T).square()
    extra = 0.5 * (columns.weight_T * errors_T).sum()
    return columns.reduce(ratio_T * columns.adv_T, ratio_T, extra_loss=extra)


def actor_critic(**settings: Any) -> Algorithm:
    def make(width: int) -> nn.Module:
        head = nn.Linear(width, 1)
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
        return nn.Sequential(head, nn.Flatten(0))

    return Algorithm(
        "actor_critic", gains, critic_loss, "token-mean", beta=0.0,
        critic=Critic(make, **{"lr": 0.05} | settings), columns=returns,
    )  # fmt: skip


def make_learner(
    policy: Policy,
    algorithm: Algorithm | None = None,
    *,
    beta: float | None = 0.0,
    clip: float | None = None,
    temperature: float = 1.0,
    max_steps: int = 10,
    constant: int | None = None,
    reduction: Any = "auto",
    control: Any = "none",
    workers: Workers = ALONE,
    is_packed: bool | None = None,
    **optim: Any,
) -> Learner:
    """A learner, GRPO by default, without a warm-up; `is_packed` None: as the model can."""
    learner = Learner(
        policy,
        algorithm or make_grpo(),
        AlgorithmConfig(
            beta=beta, clip_low=clip, clip_high=clip, reduction=reduction, control=control
        ),
        OptimConfig(**{"lr": 1e-2, "warmup_steps": 0} | optim),
        max_steps=max_steps,
        temperature=temperature,
        constant=constant,
        workers=workers,
    )
    if is_packed is not None:
        assert learner.packing_fault is None
        learner.packing_fault = None if is_packed else "not in this test"
    return learner


def make_trajectory(
    name: str, group: str, prompt: Sequence[int], *parts: Any, **about: Any
) -> Trajectory:
    """A trajectory: (ids, log-probs) are a model turn, a list of ids is an observation."""
    trajectory = Trajectory(name, group, **about)
    trajectory.append_prompt(prompt)
    for part in parts:
        if isinstance(part, tuple):
            trajectory.append_model(*part, version=0, reason=TurnStop.STOP_STRING)
        else:
            trajectory.append_env(part)
    return trajectory


def near_items(
    policy: Policy, lengths: Sequence[Sequence[int]], rewards: Sequence[Sequence[float | None]]
) -> list[TrainItem]:
    """Groups of rollouts of two turns whose sampler was almost the policy: ratios around 1.

    `lengths` are the tokens per turn, by group and rollout.
    """
    items = []
    for g, (sizes, scores) in enumerate(zip(lengths, rewards, strict=True)):
        generator = torch.Generator().manual_seed(g)
        prompt = torch.randint(1, 290, (7 + 5 * g,), generator=generator).tolist()
        for i, (n, reward) in enumerate(zip(sizes, scores, strict=True)):
            first, between, last = (
                torch.randint(1, 290, (size,), generator=generator).tolist() for size in (n, 9, n)
            )
            ids_BT = torch.tensor([[*prompt, *first, *between, *last]])
            chosen_BT = torch.ones_like(ids_BT, dtype=torch.bool)
            chosen_BT[0, : len(prompt)] = False
            chosen_BT[0, len(prompt) + n : len(prompt) + n + 9] = False
            with torch.no_grad():
                logp_N = token_logps(policy, ids_BT, chosen_BT)
            noise_N = 0.2 * torch.randn(len(logp_N), generator=generator)
            logps = (logp_N.cpu() + noise_N).tolist()
            turns = ((first, logps[:n]), between, (last, logps[n:]))
            trajectory = make_trajectory(f"g{g}/{i}", f"g{g}", prompt, *turns)
            items.append(TrainItem(trajectory, reward))
    return items


def caught_step(
    learner: Learner, items: Sequence[Trainable]
) -> tuple[list[torch.Tensor], dict[str, float]]:
    """The gradient of every optimiser step of a training step, and its metrics; weights stay."""
    caught = []

    def catch(*args: Any, **kwargs: Any) -> None:
        grads = [p.grad.flatten() for p in learner.parameters if p.grad is not None]
        caught.append(torch.cat(grads).clone())

    step, learner.optimizer.step = learner.optimizer.step, catch  # type: ignore[method-assign]
    stats = learner.train_step(make_groups(items)).metrics
    learner.optimizer.step = step  # type: ignore[method-assign]
    return caught, stats


def kept_hiddens(policy: Policy) -> list[torch.Tensor]:
    """Fills with the hidden rows that the head reads, which keep their gradient."""
    hiddens: list[torch.Tensor] = []

    def keep(module: Any, args: Any, output: Any) -> None:
        if output.last_hidden_state.requires_grad:
            output.last_hidden_state.retain_grad()
            hiddens.append(output.last_hidden_state)

    policy.model.get_decoder().register_forward_hook(keep)
    return hiddens


def token_batch(share: float = 0.6) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids of three rows, and which tokens are chosen: a share of them, never the first."""
    generator = torch.Generator().manual_seed(0)
    ids_BT = torch.randint(1, 290, (3, 17), generator=generator)
    chosen_BT = torch.rand(3, 17, generator=generator) < share
    chosen_BT[:, 0] = False
    return ids_BT, chosen_BT


def token_logps(
    policy: Policy, ids_BT: torch.Tensor, chosen_BT: torch.Tensor, **asked: Any
) -> torch.Tensor:
    """Log-probs of the chosen tokens of right-padded ids, row after row."""
    layout = padded_layout(ids_BT.to(policy.device), chosen_BT)
    return policy.logps(layout, **asked).logp_N


def pack_items(
    rollouts: Sequence[Trainable],
    advantages: AdvantageFn = grpo_advantages,
    reduction: Reduction = Reduction.TOKEN_MEAN,
    *,
    keep_dead_groups: bool = True,
) -> PackedStep:
    algorithm = replace(make_grpo(), advantages=advantages)
    settings = LossSettings(beta=float(keep_dead_groups), reduction=reduction)
    return pack_step(make_groups(rollouts), algorithm, settings, constant=1)


LIMITS = Limits(max_turn_tokens=80, max_observation_tokens=120, max_total_tokens=800)


def play(
    policy: Policy,
    world: TaskWorld,
    *,
    temperature: float = 1.0,
    num_prompts: int = 3,
    group_size: int = 4,
    limits: Limits = LIMITS,
) -> list[Rollout]:
    generator = HFGenerator(policy, Sampling(temperature))
    driver = RolloutDriver(generator, policy.renderer, limits)
    requests = [
        RolloutRequest(
            f"prompt{i}", world, "train", i, tuple(100 * i + k for k in range(group_size))
        )
        for i in range(num_prompts)
    ]
    return [rollout for group in driver.run(requests) for rollout in group.rollouts]


@dataclass(frozen=True, slots=True)
class Said:
    text: str
    reason: TurnStop = TurnStop.STOP_STRING
    extra_ids: tuple[int, ...] = ()


class SayingGenerator:
    """Says what it was told to, as if it had been sampled. Remembers what was submitted."""

    def __init__(self, encode: Callable[[str], list[int]], turns: Sequence[Said | str]) -> None:
        self.turns = [Said(turn) if isinstance(turn, str) else turn for turn in turns]
        self.submitted: list[tuple[list[int], int]] = []
        self.closed: list[Handle] = []
        self._encode = encode
        self._said: dict[Handle, int] = {}
        self._waiting: list[tuple[Handle, int]] = []

    def open(
        self, prompt_ids: Sequence[int], n: int, rng_keys: Sequence[int], experts: Any = None
    ) -> list[Handle]:
        handles = [Handle(len(self._said) + i) for i in range(n)]
        self._said.update(dict.fromkeys(handles, 0))
        return handles

    def submit(
        self, handle: Handle, append_ids: Sequence[int], stops: Sequence[str], max_tokens: int
    ) -> None:
        self.submitted.append((list(append_ids), max_tokens))
        self._waiting.append((handle, max_tokens))

    def poll(self) -> list[FinishedTurn]:
        turns = []
        for handle, max_tokens in self._waiting:
            said = self.turns[self._said[handle]]
            self._said[handle] += 1
            ids = [*self._encode(said.text), *said.extra_ids]
            if len(ids) > max_tokens:
                said = replace(said, reason=TurnStop.MAX_TOKENS)
            ids = ids[:max_tokens]
            turns.append(FinishedTurn(handle, tuple(ids), (-0.5,) * len(ids), said.reason, 0))
        self._waiting.clear()
        return turns

    def close(self, handle: Handle) -> None:
        self.closed.append(handle)

    def sync(self, policy: Any) -> int:
        return 0


def most_bytes(profile: Any) -> int:
    """Most bytes held at a time under `torch.profiler.profile(profile_memory=True)`."""
    now = most = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return most


def run_within(
    seconds: float, driver: RolloutDriver, requests: Sequence[RolloutRequest]
) -> list[tuple[int, Rollout]]:
    """Run requests that hang in `seconds`; each rollout with the place of its request."""
    started = time.perf_counter()
    groups = driver.run(requests)
    assert time.perf_counter() - started < seconds
    return [(place, rollout) for place, group in enumerate(groups) for rollout in group.rollouts]


def say(
    world: TaskWorld,
    turns: Sequence[Said | str],
    codec: Any,
    limits: Limits = LIMITS,
    *,
    group_size: int = 1,
    index: int = 0,
    forced: str | None = None,
) -> tuple[list[Rollout], SayingGenerator]:
    generator = SayingGenerator(codec.encode_model_text, turns)
    driver = RolloutDriver(generator, codec, limits)
    keys = tuple(range(group_size))
    request = RolloutRequest("said", world, "train", index, keys, forced=forced)
    return list(driver.run([request])[0].rollouts), generator
