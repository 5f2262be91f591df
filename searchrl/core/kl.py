"""The estimators k1, k2 and k3 of a KL divergence from the sampled token alone.

    u  = log p - log q       q the policy the token was sampled from, p the reference
    k1 = -u                  E_q[k1] = KL(q || p), any sign, high variance
    k2 = u^2 / 2             biased, low variance; its gradient is that of KL(q || p)
    k3 = e^u - u - 1         E_q[k3] = KL(q || p), never negative, low variance

Source: J. Schulman, "Approximating KL divergence" (2020, joschu.net/blog/kl-approx.html); k3 is
the penalty of GRPO (arXiv 2402.03300, eq. 4). Used as a loss, k3 *estimates* KL(q || p) but
*pulls along* KL(p || q): its gradient in log q is 1 - e^u (docs/explanation/mathematics.md).
Owns no mask and no reduction; `core.loss` and `core.columns` call it. Left out: the exact sum over
the vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

KL_LOG_RATIO_MAX = 20.0
"""u is clamped to at most this: e^20 is 5e8, e^89 is infinite in fp32. Not from below, where k3
grows only like -u."""


def k1(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """Return -u elementwise: the plain log-ratio. Unbiased in value; its gradient averages to 0."""
    return -_log_ratio(logp, ref_logp)


def k2(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """Return u^2 / 2 elementwise. Biased in value; unbiased in the gradient of KL(q || p)."""
    u = _log_ratio(logp, ref_logp)
    return u * u / 2


def k3(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """Return e^u - u - 1 elementwise: never negative, 0 exactly where the two agree.

    Inputs are log-probs of the same tokens under the policy and the reference, same shape; the
    result is fp32, or float64 if an input is. Gradients flow into both: detach the reference.
    """
    u = _log_ratio(logp, ref_logp)
    # expm1, because e^u - 1 in fp32 loses every digit of k3 ~ u^2/2 once |u| < 3e-4, and may
    # come out negative.
    return torch.expm1(u) - u


def is_kl_clamped(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """Return True where u exceeds `KL_LOG_RATIO_MAX`: the estimators are flat there, gradient 0."""
    return ref_logp.detach() - logp.detach() > KL_LOG_RATIO_MAX


def widen(logp: Tensor) -> Tensor:
    """Return `logp` in at least fp32: bf16 keeps three digits, so e^u would be off by percents."""
    return logp if logp.dtype == torch.float64 else logp.float()


def _log_ratio(logp: Tensor, ref_logp: Tensor) -> Tensor:
    if logp.shape != ref_logp.shape:
        raise ValueError(
            "expected logp and ref_logp of one shape, "
            f"got {tuple(logp.shape)} and {tuple(ref_logp.shape)}"
        )
    u = widen(ref_logp) - widen(logp)
    # `where` and not clamp, whose gradient on the bound itself differs between torch versions.
    return torch.where(u > KL_LOG_RATIO_MAX, KL_LOG_RATIO_MAX, u)
