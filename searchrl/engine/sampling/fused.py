"""Fused decode: one token per row through the weights of a Llama-family model, module-free.

Where a model is small, part of a decode step is spent between its modules. Here the query, key
and value projections are one matrix, gate and up another, adapters are merged, and a step is a
plain function of them. Owns the fused copies: made anew whenever weights change, so worth their
memory for small models only. `SlotGenerator` uses it after `find_fusing_fault` has compared it
with the model itself. Shapes: B rows, D hidden size, H query heads, K key/value heads, S cached
positions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from searchrl.engine.model.attention import attending
from searchrl.engine.model.policy import Policy
from searchrl.engine.sampling.slots import CacheShape, SlotCache, SlotPlan

MAX_PARAMETERS = 100_000_000
"""Beyond it the matrices take longer than the modules around them, and copies cost memory."""

_TOLERANCE = 1e-5


class _Layer(NamedTuple):
    norm_in: Tensor
    eps_in: float
    qkv: Tensor
    qkv_bias: Tensor | None
    norm_q: Tensor | None
    norm_k: Tensor | None
    eps_head: float
    out: Tensor
    out_bias: Tensor | None
    norm_mid: Tensor
    eps_mid: float
    gate_up: Tensor
    down: Tensor
    scale: float


class FusedDecoder:
    """Hidden states of the next token of every row.

    Raises:
        AttributeError, TypeError: if the model is not built like Llama, Qwen2 or Qwen3, or has
            no plain matrices (four-bit weights).
    """

    def __init__(self, policy: Policy) -> None:
        decoder = policy.base_model.get_decoder()
        shape = CacheShape.of(policy.base_model)
        self._num_heads = int(policy.base_model.config.num_attention_heads)
        self._num_kv_heads, self._width = shape.num_heads, shape.width
        self._embedding: Tensor = decoder.embed_tokens.weight
        self._rotary = decoder.rotary_emb
        self._norm, self._eps = decoder.norm.weight, float(decoder.norm.variance_epsilon)
        with torch.no_grad():
            self._layers = [_fuse(layer) for layer in decoder.layers]

    def hidden(self, id_B: Tensor, position_B: Tensor, cache: SlotCache, span: int) -> Tensor:
        """Hidden states [B, D] of one token for each slot from 0 to B - 1; fills the cache.

        Args:
            id_B: the tokens.
            position_B: their positions; `cache.scratch` for rows that nobody reads.
            cache: with room for `span` positions.
            span: largest position + 1 of the rows that are read.
        """
        heads, kv_heads, width = self._num_heads, self._num_kv_heads, self._width
        num_rows = len(id_B)
        row_B = torch.arange(num_rows, device=id_B.device)
        x_BD = F.embedding(id_B, self._embedding)
        cos_B1D, sin_B1D = self._rotary(x_BD[None], position_B[None])
        cos_B1D, sin_B1D = cos_B1D[0, :, None], sin_B1D[0, :, None]
        is_past_BS = torch.arange(span, device=id_B.device) <= position_B[:, None]
        mask_B11S = torch.zeros(num_rows, 1, 1, span, dtype=x_BD.dtype, device=id_B.device)
        mask_B11S.masked_fill_(~is_past_BS[:, None, None], -torch.inf)
        for number, layer in enumerate(self._layers):
            h_BD = F.rms_norm(x_BD, x_BD.shape[-1:], layer.norm_in, layer.eps_in)
            qkv = F.linear(h_BD, layer.qkv, layer.qkv_bias).view(num_rows, -1, width)
            q_BHW, k_BKW, v_BKW = qkv.split([heads, kv_heads, kv_heads], dim=1)
            if layer.norm_q is not None:
                q_BHW = F.rms_norm(q_BHW, (width,), layer.norm_q, layer.eps_head)
                k_BKW = F.rms_norm(k_BKW, (width,), layer.norm_k, layer.eps_head)
            q_BHW = _rotate(q_BHW, cos_B1D, sin_B1D)
            keys, values = cache.layer(number)
            keys[row_B, :, position_B] = _rotate(k_BKW, cos_B1D, sin_B1D)
            values[row_B, :, position_B] = v_BKW
            a_BKGW = F.scaled_dot_product_attention(
                q_BHW.reshape(num_rows, kv_heads, heads // kv_heads, width),
                keys[:num_rows, :, :span],
                values[:num_rows, :, :span],
                attn_mask=mask_B11S,
                scale=layer.scale,
            )
            x_BD = x_BD + F.linear(a_BKGW.reshape(num_rows, -1), layer.out, layer.out_bias)
            h_BD = F.rms_norm(x_BD, x_BD.shape[-1:], layer.norm_mid, layer.eps_mid)
            gate_BF, up_BF = F.linear(h_BD, layer.gate_up).chunk(2, dim=-1)
            x_BD = x_BD + F.linear(F.silu(gate_BF) * up_BF, layer.down)
        return F.rms_norm(x_BD, x_BD.shape[-1:], self._norm, self._eps)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], dim=-1) * sin


def _fuse(layer: Any) -> _Layer:
    attention, mlp = layer.self_attn, layer.mlp
    projections = [attention.q_proj, attention.k_proj, attention.v_proj]
    biases = [_bias(projection) for projection in projections]
    norm_q = getattr(attention, "q_norm", None)
    return _Layer(
        norm_in=layer.input_layernorm.weight,
        eps_in=float(layer.input_layernorm.variance_epsilon),
        qkv=torch.cat([_weight(projection) for projection in projections]),
        qkv_bias=None if biases[0] is None else torch.cat(biases),
        norm_q=None if norm_q is None else norm_q.weight,
        norm_k=None if norm_q is None else attention.k_norm.weight,
        eps_head=0.0 if norm_q is None else float(norm_q.variance_epsilon),
        out=_weight(attention.o_proj),
        out_bias=_bias(attention.o_proj),
        norm_mid=layer.post_attention_layernorm.weight,
        eps_mid=float(layer.post_attention_layernorm.variance_epsilon),
        gate_up=torch.cat([_weight(mlp.gate_proj), _weight(mlp.up_proj)]),
        down=_weight(mlp.down_proj),
        scale=float(attention.scaling),
    )


def _weight(linear: Any) -> Tensor:
    """The weight of a linear layer, with its adapters merged in."""
    plain = getattr(linear, "base_layer", linear)
    if type(plain) is not nn.Linear:
        raise TypeError(f"its layers are {type(plain).__name__}, not plain matrices")
    weight: Tensor = plain.weight
    if plain is linear:
        return weight
    for name in linear.active_adapters:
        weight = weight + linear.get_delta_weight(name).to(weight.dtype)
    return weight


def _bias(linear: Any) -> Any:
    return getattr(linear, "base_layer", linear).bias


def find_fusing_fault(policy: Policy) -> str | None:
    """Reason why fused decoding differs from this model on a few tokens, or None."""
    if policy.num_parameters[1] > MAX_PARAMETERS:
        return f"it has more than {MAX_PARAMETERS:,} weights"
    model, device = policy.base_model, policy.device
    length, rows = 6, 3
    ids_BT = torch.arange(rows * length, device=device).view(rows, length) % policy.vocab_size
    caches = [SlotCache(CacheShape.of(model), rows, length, device) for _ in range(2)]
    with torch.inference_mode(), policy.evaluating():
        try:
            decoder = FusedDecoder(policy)
            for cache in caches:
                cache.reserve(length)
            for t in range(length):
                position_B = torch.full((rows,), t, device=device)
                ours = decoder.hidden(ids_BT[:, t], position_B, caches[0], t + 1)
            position_BT = torch.arange(length, device=device).expand(rows, -1)
            with attending(model):
                plan = SlotPlan(caches[1], None, position_BT, length)
                theirs = policy.hidden(ids_BT, position_BT, plan)[:, -1]
        except (AttributeError, RuntimeError, TypeError, ValueError) as error:
            return f"it is not built like Llama or Qwen ({error})"
    if not bool(torch.isfinite(theirs).all()):
        return None  # damaged weights: said where they are sampled from
    gap = float((ours - theirs).abs().max() / theirs.abs().max().clamp_min(1e-6))
    return None if gap <= _TOLERANCE else f"its hidden states differ by {gap:.1e}"
