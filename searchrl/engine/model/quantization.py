"""Four-bit weights: one frozen NF4 base under the adapter, for sampler and trainer alike (QLoRA).

Owns what bitsandbytes is asked for and what it must not do: every pass has to compute the same
numbers. Source: Dettmers et al., QLoRA, arXiv 2305.14314 (NF4, double quantisation).
"""

from __future__ import annotations

import logging
import math
from typing import Any

import torch
from torch import nn

from searchrl.errors import PolicyError

NF4_BLOCK = 64
"""Weights that share one scale, itself stored in eight bits."""

NF4_SCALE_BLOCK = 256
"""Scales that share one scale of scales (fp32): the double quantisation."""


def first_line(error: Exception) -> str:
    """The first line of an error."""
    return str(error).strip().partition("\n")[0] or repr(error)


def hush_bitsandbytes() -> None:
    """Silence its advice on a kernel that `even_out` switches off; call before it is imported.

    peft imports it, too.
    """
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)


def load_bitsandbytes(wanted: str, setting: str) -> Any:
    """The module, which the setting `wanted` needs; without it, `setting` is to be used.

    Raises:
        PolicyError: if it is not installed or cannot be loaded.
    """
    hush_bitsandbytes()
    try:
        import bitsandbytes
    except (ImportError, OSError, RuntimeError) as error:
        raise PolicyError(
            f"{wanted} needs bitsandbytes, which cannot be loaded here ({error}): "
            f"pip install -U bitsandbytes; or train the weights as they are: --set {setting}"
        ) from error
    return bitsandbytes


def nf4_settings(dtype: torch.dtype) -> Any:
    """Settings with which transformers loads a model in NF4.

    Raises:
        PolicyError: if bitsandbytes is missing.
    """
    load_bitsandbytes("model.quantize: nf4", "model.quantize=none")
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )


def even_out(model: nn.Module) -> None:
    """Make four-bit layers compute the same with and without gradients.

    On CPUs with AVX512-BF16, a layer in evaluation mode would re-pack its weights for good at the
    first pass without gradients: scales and activations in bf16, and no gradient ever after. Our
    updates run in evaluation mode too.
    """
    layer: Any
    for layer in model.modules():
        if hasattr(layer, "support_avx512bf16_for_cpu"):
            layer.support_avx512bf16_for_cpu = False


def num_weights(parameter: nn.Parameter) -> int:
    """Entries of a parameter; four-bit ones are stored as bytes of another shape."""
    if not hasattr(parameter, "quant_state"):
        return parameter.numel()
    return math.prod(parameter.quant_state.shape)
