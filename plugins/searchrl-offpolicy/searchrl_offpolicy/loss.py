"""The loss of mixed groups: PPO-clip for what was sampled now, f(x) * A for what was not.

    on    on * min(ratio * A, clip(ratio) * A) - beta * k3       GRPO, arXiv 2402.03300, eq. 3
    off   off * f(x) * A,  f(x) = x / (x + gamma)                LUFFY, arXiv 2504.14945, sec. 3.2
    x     pi for a demonstration, pi / recorded for a replay     ExGRPO, arXiv 2510.02245, sec. 3.3

A demonstration has the behaviour probability 1, which is `old_logp_T` 0, so both are
exp(logp - old_logp). The off-policy term has no clip, and no KL: k3 estimates the KL from samples
of the policy, which these are not. The derivative of f(x) with respect to logp is
gamma * x / (x + gamma)^2; it is largest at x = gamma, 1/4. The normaliser is that of the step:
both sides have one and the same, so an empty side is a sum of nothing.
Shape suffix: T tokens of a micro-batch.
"""

from __future__ import annotations

from typing import Any, Literal

import torch

from searchrl.algorithms import kl_penalty

_MOST = 20.0
"""Log-ratios are clamped to it, either way, as all of the core are."""

Shaping = Literal["rational", "none"]
"""The function f: x / (x + gamma), or x itself."""


def mixed_loss(
    columns: Any,
    settings: Any,
    *,
    on: float = 1.0,
    off: float = 1.0,
    gamma: float = 0.1,
    shaping: Shaping = "rational",
) -> Any:
    """Return the loss of one micro-batch and its statistics; without `is_off_T`, GRPO's.

    `LossStats.factor_T` is a token's factor on weight times advantage in the gradient of its
    log-prob, before the ratio of a token that was sampled now.
    """
    adv_T, is_off_T = columns.adv_T, columns.is_off_T
    ratio_T = torch.exp((columns.logp_T - columns.old_logp_T).clamp(-_MOST, _MOST))
    surr1_T = ratio_T * adv_T
    surr2_T = ratio_T.clamp(1 - settings.clip_low, 1 + settings.clip_high) * adv_T
    is_clipped_T = surr2_T < surr1_T
    penalty_T = kl_penalty(columns, settings)
    on_T = on * torch.where(is_clipped_T, surr2_T, surr1_T) - penalty_T
    if is_off_T is None:
        factor_T = None if on == 1 else torch.full_like(ratio_T.detach(), on)
        return columns.reduce(on_T, ratio_T, is_clipped_T=is_clipped_T, factor_T=factor_T)
    shaped_T = ratio_T / (ratio_T + gamma) if shaping == "rational" else ratio_T
    objective_T = torch.where(is_off_T, off * shaped_T * adv_T, on_T)
    with torch.no_grad():
        slope_T = gamma * ratio_T / (ratio_T + gamma).square()
        slope_T = slope_T if shaping == "rational" else ratio_T
        factor_T = torch.where(is_off_T, off * slope_T, torch.full_like(slope_T, on))
    return columns.reduce(objective_T, ratio_T, is_clipped_T=is_clipped_T, factor_T=factor_T)
