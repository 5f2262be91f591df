"""Attention: our caches and packed rows inside stock transformers models.

Owns one attention function, registered with transformers under `NAME`. While `attending(model,
plan)` is open, every attention layer asks the plan for its output instead of a kernel. A plan
brings its own mask. Shapes: B rows, H query heads, K key/value heads, T query tokens, S key tokens,
D head width.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface

from searchrl.errors import PolicyError

NAME = "searchrl"

_UNSUPPORTED = ("sliding_window", "softcap", "s_aux", "position_bias")
"""Options of attention layers that no plan here supports."""


class AttentionPlan(Protocol):
    """Computes attention for one forward pass of a model."""

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float | None
    ) -> Tensor:
        """[B, H, T, D], [B, K, T, D], [B, K, T, D] -> [B, H, T, D]; rotary is already in."""


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    plan: AttentionPlan | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    if plan is None:
        raise PolicyError("this model does not pass options on to its attention layers")
    unsupported = [name for name in _UNSUPPORTED if options.get(name) is not None]
    if unsupported or dropout:
        raise PolicyError(f"this model's attention uses {', '.join(unsupported) or 'dropout'}")
    layer: Any = module.layer_idx
    output = plan.attend(int(layer), query, key, value, scaling)
    return output.transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, _attend)


@contextmanager
def attending(model: Any) -> Iterator[None]:
    """Route the attention of a stock model (not its PEFT wrapper) through its `plan` option."""
    before = model.config._attn_implementation
    model.set_attn_implementation(NAME)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def mask_for(query: Tensor, key: Tensor, is_seen: Tensor) -> Tensor:
    """The mask that `grouped_attention` takes, of [B or 1, 1, T, S] (True: attend).

    Make it once for all layers: it has a row for every query head of a key/value head.
    """
    if query.shape[2] > 1:
        is_seen = is_seen.repeat(1, 1, query.shape[1] // key.shape[1], 1)
    return kernel_mask(is_seen, query.dtype)


def kernel_mask(is_seen: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask in numbers: a kernel would turn bools into them at every call."""
    return torch.zeros_like(is_seen, dtype=dtype).masked_fill_(~is_seen, -torch.inf)


def grouped_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float | None
) -> Tensor:
    """Attention whose key/value heads serve several query heads each, without copying them.

    The query heads of one key/value head become further query positions: [B, H, T, D] is read as
    [B, K, H/K * T, D]. `mask` is that of `mask_for`.
    """
    folded = query.reshape(len(query), key.shape[1], -1, query.shape[-1])
    output = F.scaled_dot_product_attention(folded, key, value, attn_mask=mask, scale=scale)
    return output.reshape(query.shape)
