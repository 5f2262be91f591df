"""What the tests of packed updates share: groups with odd members, and the gradient of a step."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import engine_toy
import torch
import torch.nn.functional as F
from engine_toy import caught_step, enlarge_lora, make_trajectory, micro_policy, token_logps

from searchrl.core.group import TrainItem, make_groups
from searchrl.core.loss import LossColumns, LossSettings
from searchrl.engine.learning.learner import Learner
from searchrl.engine.model.policy import Policy

LENGTHS = {"a": (5, 40, 11), "b": (150, 1), "c": (17,), "d": (9, 22, 4, 31, 1)}
"""Tokens per turn of the rollouts of each group: of different sizes, one of a single rollout."""


def make_items(num_turns: int = 2, seed: int = 0) -> list[TrainItem]:
    """Groups of `LENGTHS` with distinct rewards, an observation after every turn, the last too."""
    generator = torch.Generator().manual_seed(seed)

    def draw(count: int) -> list[int]:
        return torch.randint(1, 290, (count,), generator=generator).tolist()

    items = []
    for number, (group, lengths) in enumerate(LENGTHS.items()):
        prompt = draw(6 + 7 * number)
        for i, length in enumerate(lengths):
            parts: list[Any] = []
            for turn in range(num_turns if length > 1 else 1):
                ids = draw(length)
                noise = 0.3 * torch.randn(length, generator=generator)
                parts.append((ids, (noise - 5.7).tolist()))  # near log(1/320): almost uniform
                if turn or length % 2:
                    parts.append(draw(8))
            trajectory = make_trajectory(f"{group}/{i}", group, prompt, *parts)
            items.append(TrainItem(trajectory, 0.25 * i + 0.1 * number))
    first = items[0].trajectory
    mute = make_trajectory("a/mute", "a", first.ids[: first.num_prompt_tokens])
    return [*items, TrainItem(mute, 0.7)]


def make_policy(folder: Path, adapter: str = "full", **model: Any) -> Policy:
    """A micro policy in float64, its adapter (if any) with weights that matter."""
    policy = micro_policy(folder, adapter=adapter, **model)
    policy.model.to(torch.float64)
    for module in policy.model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            # The stock one rounds to float32 whatever the weights are.
            module.forward = partial(_double_norm, module)
    return enlarge_lora(policy, 0.1) if adapter == "lora" else policy


def _double_norm(module: Any, hidden: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(hidden, hidden.shape[-1:], module.weight, module.variance_epsilon)


make_learner = partial(
    engine_toy.make_learner, clip=0.5, constant=100, is_packed=True, max_grad_norm=1e9
)
"""A learner whose gradients are not clipped; `clip` None: the ratios as the algorithm says."""


def caught_gradients(learner: Learner, items: Sequence[TrainItem]) -> list[torch.Tensor]:
    """The gradient of every optimiser step of a training step; the weights stay."""
    return [grad.double() for grad in caught_step(learner, items)[0]]


def is_close(one: torch.Tensor, other: torch.Tensor, limit: float) -> bool:
    """Whether two gradients are the same up to a relative error, and are not nothing."""
    return bool((one - other).norm() <= limit * other.norm()) and bool(other.norm() > 1e-6)


def with_own_logps(policy: Policy, items: list[TrainItem]) -> list[TrainItem]:
    """The items as if this policy had sampled them."""
    made = []
    for item in items:
        chosen = [logp is not None for logp in item.trajectory.sampler_logps]
        if any(chosen):
            with torch.no_grad():
                logp_N = token_logps(
                    policy, torch.tensor([item.trajectory.ids]), torch.tensor([chosen])
                )
            values = iter(logp_N.tolist())
            item.trajectory.segments[0].logps[:] = [next(values) if c else None for c in chosen]
        made.append(item)
    return made


def spy_on_losses(learner: Learner, items: Sequence[TrainItem]) -> list[LossColumns]:
    """What the loss was given at each update of one step."""
    seen: list[LossColumns] = []
    loss = learner.algorithm.loss

    def spy(columns: LossColumns, settings: LossSettings) -> Any:
        seen.append(replace(columns, logp_T=columns.logp_T.detach()))
        return loss(columns, settings)

    learner.algorithm = replace(learner.algorithm, loss=spy)
    learner.train_step(make_groups(items))
    return seen
