"""The footprint of a model: what its parts take in memory, found out without loading any.

The model is built from its config on torch's meta device, whose tensors have shapes and no content;
a short forward pass there tells what the backward pass keeps, for any architecture and adapter.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.pytorch_utils import Conv1D

from searchrl.config.sections import ModelConfig
from searchrl.engine.model.attention import attending
from searchrl.engine.model.foreign import ensure_plain_model
from searchrl.engine.model.loading import (
    ResolvedModel,
    dtype_of,
    lora_settings,
    wants_lora,
)
from searchrl.engine.model.quantization import NF4_BLOCK, NF4_SCALE_BLOCK, first_line
from searchrl.engine.sampling.slots import CacheShape
from searchrl.errors import PolicyError

_PROBE_TOKENS = 128
SHAPES = Path(__file__).resolve().parents[2] / "assets" / "shapes"
"""The config.json of the models that the presets are for: a plan needs no download."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes, unless the name says otherwise; `per_token` ones are of one token computed."""

    is_lora: bool
    plain_weights: int
    """Weights as they are loaded, in `model.dtype`."""
    layer_weights: int
    """One layer of them."""
    nf4_weights: int
    """The same with `model.quantize: nf4`."""
    trained_sizes: tuple[int, ...]
    """Entries of each trained parameter."""
    trained_itemsize: int
    cache_per_token: int
    """Keys and values."""
    num_layers: int
    vocab_size: int
    max_positions: int
    hidden_size: int
    """Entries of a hidden state."""
    hidden_per_token: int
    """One hidden state."""
    saved_layer_per_token: int
    """Tensors that one layer keeps for the backward pass."""
    saved_rest_per_token: int
    """Tensors that embedding and last norm keep."""
    work_per_token: int
    """Tensors that come and go within one layer."""


def nf4_bytes(num_weights: int) -> int:
    """Bytes of a matrix in NF4 with double quantisation, without its two small tables."""
    num_scales = math.ceil(num_weights / NF4_BLOCK)
    return math.ceil(num_weights / 2) + num_scales + 4 * math.ceil(num_scales / NF4_SCALE_BLOCK)


def find_footprint(
    config: ModelConfig, resolved: ResolvedModel, device: torch.device, *, is_offline: bool
) -> Footprint:
    """Count what a model would take on a device when it is trained.

    `quantize` is left to the plan. The device decides the dtype; nothing is put there. With
    `is_offline`, only local files are read. PolicyError if the model's config cannot be used.
    """
    is_full = not wants_lora(config, resolved, trainable=True)
    try:
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = AutoModelForCausalLM.from_config(
                _read_shape(resolved.path, is_offline=is_offline),
                dtype=dtype_of(config, device, is_full=is_full),
                trust_remote_code=False,
            )
            return _count(model, config, resolved)
    except Exception as error:  # each architecture has errors of its own
        raise PolicyError(first_line(error)) from error


def _read_shape(path: str, *, is_offline: bool) -> Any:
    """The config of a model: from its folder, the local cache, or those known without either."""
    known = SHAPES / f"{path.replace('/', '--')}.json"
    try:
        ensure_plain_model(path, is_offline=is_offline)
        return AutoConfig.from_pretrained(
            path, local_files_only=is_offline, trust_remote_code=False
        )
    except OSError as error:
        if os.path.isfile(known):
            return AutoConfig.from_pretrained(known, trust_remote_code=False)
        if is_offline and not os.path.exists(path):
            raise PolicyError(
                f"config.json of '{path}' is not on this machine; get it with: "
                f"hf download {path} config.json"
            ) from error
        raise


def _count(model: Any, config: ModelConfig, resolved: ResolvedModel) -> Footprint:
    head = model.get_output_embeddings()
    plain = sum(p.numel() * p.element_size() for p in model.parameters())
    layers = [m for m in model.modules() if isinstance(m, nn.Linear | Conv1D) and m is not head]
    nf4 = plain + sum(
        nf4_bytes(m.weight.numel()) - m.weight.numel() * m.weight.element_size() for m in layers
    )
    widest = max((max(m.weight.shape) for m in layers), default=0)
    itemsize = model.dtype.itemsize
    cache = CacheShape.of(model)
    layer_weights = sum(
        p.numel() * p.element_size() for p in model.get_decoder().layers[0].parameters()
    )
    is_lora = wants_lora(config, resolved, trainable=True)
    base = model
    if is_lora:
        settings = lora_settings(config, resolved, model)
        from peft import get_peft_model

        model = get_peft_model(model, settings)
    trained = [p for p in model.parameters() if p.requires_grad]
    per_layer, rest = _saved_bytes(base)
    width = int(base.config.hidden_size)
    return Footprint(
        is_lora=is_lora,
        plain_weights=plain,
        layer_weights=layer_weights,
        nf4_weights=nf4,
        trained_sizes=tuple(p.numel() for p in trained),
        trained_itemsize=max((p.element_size() for p in trained), default=itemsize),
        cache_per_token=cache.bytes_per_token,
        num_layers=cache.num_layers,
        vocab_size=int(head.weight.shape[0]),
        max_positions=int(getattr(base.config, "max_position_embeddings", 1 << 30)),
        hidden_size=width,
        hidden_per_token=width * itemsize,
        saved_layer_per_token=per_layer,
        saved_rest_per_token=rest,
        # Gate, up, their product and its gradient; fp32 copies that adapters make.
        work_per_token=widest * (3 * itemsize + (4 if is_lora else itemsize)) + 4 * width,
    )


class _Kept(torch.autograd.Function):
    """Attention as far as memory goes: a fused kernel keeps its inputs, output and a norm."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        output = torch.empty_like(query)
        norms = query.new_empty(query.shape[:-1], dtype=torch.float32)
        ctx.save_for_backward(query, key, value, output, norms)
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        raise NotImplementedError("meta tensors have no gradient worth computing")


class _KeptPlan:
    """See `AttentionPlan`; nothing is computed on the meta device."""

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float | None
    ) -> Tensor:
        output: Tensor = _Kept.apply(query, key, value)  # type: ignore[no-untyped-call]
        return output


def _saved_bytes(base: Any) -> tuple[int, int]:
    """Bytes per token that (one layer, everything else) keeps: from passes of few layers."""
    decoder = base.get_decoder()
    layers = decoder.layers
    # The first layer may be spared some gradients; the others are alike.
    more = min(2, len(layers))
    kept = []
    for number in (more, more - 1):
        decoder.layers = layers[:number]
        kept.append(_saved_by_pass(base))
    decoder.layers = layers
    per_layer = kept[0] - kept[1]
    return per_layer, max(0, kept[0] - more * per_layer)


def _saved_by_pass(base: Any) -> int:
    """Bytes per token that a pass through the decoder saves, parameters left out."""
    weights = {p.untyped_storage()._cdata for p in base.parameters()}
    saved: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        name = tensor.untyped_storage()._cdata
        if name not in weights:
            saved[name] = tensor  # held, so that no other storage gets its name
        return tensor

    ids_BT = torch.zeros(1, _PROBE_TOKENS, dtype=torch.long)
    position_BT = torch.zeros_like(ids_BT)
    hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
    with torch.enable_grad(), hooks, attending(base):
        output = base.get_decoder()(
            input_ids=ids_BT, position_ids=position_BT, use_cache=False, plan=_KeptPlan()
        )
    num_bytes = sum(t.untyped_storage().nbytes() for t in saved.values())
    del output
    return num_bytes // _PROBE_TOKENS


def optimizer_bytes(sizes: Sequence[int], itemsize: int, *, is_8bit: bool) -> int:
    """Bytes of the two moments of AdamW and its step counters."""
    from searchrl.engine.model.optimizers import BLOCK_8BIT, MIN_8BIT_SIZE

    if not is_8bit:
        return sum(2 * n * itemsize + 4 for n in sizes)
    in_blocks = [n for n in sizes if n >= MIN_8BIT_SIZE]
    tables = 2 * 256 * 4 if in_blocks else 0
    scales = sum(2 * 4 * math.ceil(n / BLOCK_8BIT) for n in in_blocks)
    return 2 * sum(in_blocks) + scales + tables + 8 * sum(n for n in sizes if n < MIN_8BIT_SIZE)
