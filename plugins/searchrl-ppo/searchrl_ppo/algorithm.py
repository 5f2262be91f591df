"""The algorithm `ppo`: PPO-clip with a value head. Torch is imported when it is made."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from searchrl.algorithms import Algorithm, Ask, Critic
from searchrl_ppo.gae import Estimator

if TYPE_CHECKING:
    from torch import Tensor

AtLeastZero = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


def make_ppo(
    *,
    gamma: Share = 1.0,
    lam: Share = 0.95,
    values: Literal["turn", "token"] = "turn",
    critic_lr: AtLeastZero = 1e-3,
    critic_layers: Literal[1, 2] = 2,
    critic_width: Annotated[int, Field(ge=1)] = 128,
    warmup_steps: Annotated[int, Field(ge=0)] = 2,
    value_coef: AtLeastZero = 0.5,
    clip_value: AtLeastZero | None = 0.2,
    shared: bool = False,
    kl: Literal["loss", "reward"] = "loss",
    kl_coef: AtLeastZero = 0.01,
    whiten: bool = True,
    bootstrap: bool = True,
) -> Algorithm:
    """PPO (arXiv 1707.06347) with GAE; a group needs no second rollout.

    Args:
        gamma: discount per turn (or token).
        lam: of GAE; 1 is the return minus the value.
        values: a value for every turn, or for every token that the model wrote.
        critic_lr: learning rate of the value head.
        critic_layers: of the value head.
        critic_width: of its hidden layer, where it has two.
        warmup_steps: first steps in which only the head learns.
        value_coef: weight of the value loss; matters only if `shared`.
        clip_value: how far a value moves in a step before the loss lets it go; None: no limit.
        shared: the value loss trains the policy's own layers, too.
        kl: where the reference comes in: in the loss (`algorithm.beta`), or in the reward.
        kl_coef: cost of a nat in the reward.
        whiten: advantages get mean 0 and deviation 1 over the trained tokens.
        bootstrap: an episode that a limit cut goes on, at the value of what was seen last. False:
            it ends there, so running out of turns pays no more than a wrong answer.
    """
    in_reward = kl == "reward"
    cost = kl_coef if in_reward else 0.0
    estimator = Estimator(gamma, lam, values == "token", cost, whiten, bootstrap)
    return Algorithm(
        "ppo",
        estimator.advantages,
        partial(ppo_loss, value_coef=value_coef, clip_value=clip_value),
        "token-mean",
        beta=0.0 if in_reward else 1e-3,
        critic=Critic(
            partial(make_head, num_layers=critic_layers, inner=critic_width),
            lr=critic_lr,
            per_token=values == "token",
            warmup_steps=warmup_steps,
            trains_policy=shared,
            looks_ahead=gamma * lam < 1,
        ),
        columns=estimator.columns,
        asks=[Ask.TURN_REWARDS, *([Ask.TOKEN_KL] if in_reward else [])],
    )


def ppo_loss(
    columns: Any, settings: Any, *, value_coef: float, clip_value: float | None
) -> tuple[Tensor, Any]:
    """PPO-clip plus value_coef * weight * max((V - R)^2, (clip(V) - R)^2) / 2.

    clip(V) keeps V within `clip_value` of what it was before the step (PPO2, Dhariwal et al. 2017).
    """
    import torch

    from searchrl.algorithms import ppo_clip_loss

    loss, stats = ppo_clip_loss(columns, settings)
    target_T, old_value_T = columns["target"], columns["old_value"]
    error_T = (columns.value_T - target_T).square()
    if clip_value is not None:
        moved_T = (columns.value_T - old_value_T).clamp(-clip_value, clip_value)
        held_T = (old_value_T + moved_T - target_T).square()
        error_T = torch.maximum(error_T, held_T)
    loss = loss + 0.5 * value_coef * (columns.weight_T * error_T).sum()
    return loss, replace(stats, loss=float(loss.detach()))


def make_head(width: int, *, num_layers: int, inner: int) -> Any:
    """A value head: [N, width] -> [N]. It begins at 0 everywhere, the same in every run."""
    import torch
    from torch import nn

    with torch.random.fork_rng():
        torch.manual_seed(0)
        last = nn.Linear(width if num_layers == 1 else inner, 1)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        first = [nn.Linear(width, inner), nn.Tanh()] if num_layers == 2 else []
        return nn.Sequential(*first, last, nn.Flatten(0))
