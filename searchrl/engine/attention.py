"""The attention seam: our caches and packs under stock transformers models.

Owns one attention function, registered with transformers under `SEAM`. While `attending(model,
plan)` is open, every attention layer of the model asks the plan for its output instead of a
kernel; the model's own code (and PEFT's around it) stays as it is. No mask is made for an unknown
implementation, so a plan brings its own. Callers: `slot_generator`, `policy`. Shapes: B rows, H
query heads, K key/value heads, T query tokens, S key tokens, D head width.
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

SEAM = "searchrl"

_UNSUPPORTED = ("sliding_window", "softcap", "s_aux", "position_bias")
"""What a model may ask of attention that no plan here does."""


class AttentionPlan(Protocol):
    """Computes attention for one forward pass of a model."""

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float | None
    ) -> Tensor:
        """[B, H, T, D], [B, K, T, D], [B, K, T, D] -> [B, H, T, D]; rotary is already in."""
        ...


def _seam(
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
    asked = [name for name in _UNSUPPORTED if options.get(name) is not None]
    if asked or dropout:
        raise PolicyError(f"this model's attention uses {', '.join(asked) or 'dropout'}")
    layer: Any = module.layer_idx
    output = plan.attend(int(layer), query, key, value, scaling)
    return output.transpose(1, 2).contiguous(), None


AttentionInterface.register(SEAM, _seam)


@contextmanager
def attending(model: Any) -> Iterator[None]:
    """Route the attention of a stock model (not its PEFT wrapper) through the seam."""
    before = model.config._attn_implementation
    model.set_attn_implementation(SEAM)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def grouped_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float | None
) -> Tensor:
    """Attention whose key/value heads serve several query heads each, without copying them.

    The query heads of one key/value head become further query positions: [B, H, T, D] is read as
    [B, K, H/K * T, D]. `mask` is [B or 1, 1, T, S] (True: attend) or None: attend to everything.
    """
    rows, num_heads, length, width = query.shape
    group = num_heads // key.shape[1]
    if group == 1:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)
    folded = query.reshape(rows, key.shape[1], group * length, width)
    if mask is not None and length > 1:
        mask = mask.repeat(1, 1, group, 1)
    output = F.scaled_dot_product_attention(folded, key, value, attn_mask=mask, scale=scale)
    return output.reshape(rows, num_heads, length, width)


def supports_seam(model: Any) -> str | None:
    """Why a model cannot run through the seam, or None if it can; tried on four tokens."""
    config = model.config
    if "sliding_attention" in (getattr(config, "layer_types", None) or ()):
        return "it has sliding-window attention"
    ids = torch.arange(4, device=next(model.parameters()).device)[None]
    with torch.inference_mode():
        stock = model(input_ids=ids, use_cache=False).logits
        try:
            with attending(model):
                ours = model(input_ids=ids, use_cache=False, plan=CausalPlan()).logits
        except (PolicyError, TypeError, ValueError, AttributeError) as error:
            return str(error)
    scale = stock.abs().amax().clamp_min(1.0)
    if not bool(torch.isfinite(stock).all()):
        return None  # damaged weights: said where they are sampled from
    is_close = bool(
        ((stock - ours).abs().amax() / scale) < (1e-4 if stock.dtype == torch.float32 else 5e-2)
    )
    return None if is_close else "its logits change when its attention is computed here"


class CausalPlan:
    """Plain causal attention of whole rows: what a stock model does without padding."""

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float | None
    ) -> Tensor:
        """See `AttentionPlan.attend`."""
        length = query.shape[2]
        mask = torch.ones(length, length, dtype=torch.bool, device=query.device).tril()[None, None]
        return grouped_attention(query, key, value, mask, scale)
