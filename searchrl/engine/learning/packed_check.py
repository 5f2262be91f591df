"""Whether a model can run packed rows: tried out before the first step.

Owns the comparison of a short packed row with the same rollouts padded. It finds what no setting of
a model tells: position ids that it ignores, and layers other than attention, which would mix
rollouts. The learner calls it once.
"""

from __future__ import annotations

import torch

from searchrl.engine.learning.packing import pad
from searchrl.engine.model.attention import find_attention_fault
from searchrl.engine.model.layout import TokenRow, pack
from searchrl.engine.model.policy import Policy
from searchrl.errors import PolicyError

_PROMPT, _SUFFIXES = 5, (6, 4)
_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-6}


def find_packing_fault(policy: Policy) -> str | None:
    """Why a model's rollouts have to be padded, or None if they can be packed."""
    fault = find_attention_fault(policy.base_model)
    if fault is not None:
        return fault
    width = _PROMPT + max(_SUFFIXES)
    ids = [number * 7 % policy.vocab_size for number in range(len(_SUFFIXES) * width)]
    rollouts = []
    for number, length in enumerate(_SUFFIXES):
        suffix = ids[number * width + _PROMPT :][:length]
        mask = [False] * _PROMPT + [True] * length
        rollouts.append(TokenRow(ids[:_PROMPT] + suffix, mask, _PROMPT))
    with torch.no_grad(), policy.evaluating():
        padded_N = policy.logps(pad(rollouts, policy.device)).logp_N
        try:
            with policy.attending():
                packed_N = policy.logps(pack(rollouts, policy.device)).logp_N
        except (PolicyError, RuntimeError, TypeError, ValueError, AttributeError) as error:
            return f"it does not run packed rows ({error})"
    gap = float((packed_N - padded_N).abs().max())
    if gap <= _TOLERANCE.get(policy.base_model.dtype, 0.3):
        return None
    return f"its log-probs differ by {gap:.1e} nats in a packed row"
