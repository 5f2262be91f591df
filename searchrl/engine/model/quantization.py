"""Four-bit weights: one frozen NF4 base under the adapter, for sampler and trainer alike (QLoRA).

Owns what bitsandbytes is asked for and what it must not do: every pass has to compute the same
numbers. `loading` asks for the settings, `footprint` looks at the layers.
Source: Dettmers et al., QLoRA, arXiv 2305.14314 (NF4, double quantisation).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from searchrl.errors import PolicyError

NF4_BLOCK = 64
"""Weights that share one scale, itself stored in eight bits."""

NF4_SCALE_BLOCK = 256
"""Scales that share one scale of scales (fp32): the double quantisation."""

_HINT = "pip install -U bitsandbytes; or train the weights as they are: --set {setting}"


def first_line(error: Exception) -> str:
    """What an error says, without the details under it."""
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
            f"{_HINT.format(setting=setting)}"
        ) from error
    return bitsandbytes


@contextmanager
def trying(wanted: str, setting: str, device: torch.device) -> Iterator[None]:
    """Try on a device what bitsandbytes does for `wanted`; `setting` is the way without it.

    Raises:
        PolicyError: if it cannot do that there.
    """
    try:
        yield
    except (RuntimeError, NotImplementedError, AttributeError, AssertionError, OSError) as error:
        raise PolicyError(
            f"bitsandbytes cannot do {wanted} on {device.type} ({first_line(error)}): "
            f"{_HINT.format(setting=setting)}"
        ) from error


def nf4_settings(dtype: torch.dtype, device: torch.device) -> Any:
    """What transformers has to know to load a model in NF4; tried on one small matrix first.

    Raises:
        PolicyError: if bitsandbytes is missing or cannot do it on this device.
    """
    wanted = ("model.quantize: nf4", "model.quantize=none")
    bitsandbytes = load_bitsandbytes(*wanted)
    with trying(*wanted, device):
        layer = bitsandbytes.nn.Linear4bit(
            NF4_BLOCK, 8, bias=False, compute_dtype=dtype, quant_type="nf4"
        ).to(device)
        even_out(layer)
        x_BD = torch.ones(2, NF4_BLOCK, dtype=dtype, device=device, requires_grad=True)
        layer(x_BD).sum().backward()
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
