"""A shrunken copy of a model: its architecture and tokenizer, few narrow layers, random weights.

Head sizes, vocabulary, rotary embeddings and windows stay. Of layers of several kinds (windows,
experts) each kind stays. No weight of the model is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers.utils import logging as hf_logging

from searchrl.engine.model.foreign import ensure_plain_model
from searchrl.engine.model.hub import find_absence
from searchrl.engine.model.loading import ResolvedModel
from searchrl.engine.model.quantization import first_line
from searchrl.errors import PolicyError

_WIDTH = 64

_MOST = {"intermediate_size": 128, "moe_intermediate_size": 64, "first_k_dense_replace": 1}
_MOST |= {"num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2}
_MOST |= {"n_group": 1, "topk_group": 1, "num_kv_shared_layers": 0}
"""Largest values of settings, by the names that the configs of transformers give them."""


def save_shrunken(model: ResolvedModel, folder: Path, seed: int) -> str:
    """Write the copy and the tokenizer to a folder; returns what it is, in words.

    Raises:
        PolicyError: if config or tokenizer cannot be read, or the config cannot be shrunk.
    """
    if model.is_hub_id and (absence := find_absence(model.path)):
        raise PolicyError(absence)
    hf_logging.disable_progress_bar()  # its bars would break ours
    try:
        ensure_plain_model(model.path)
        config: Any = AutoConfig.from_pretrained(model.path, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(
            model.adapter_path or model.path, trust_remote_code=False
        )
        text = config.get_text_config()
        was = text.num_hidden_layers, text.hidden_size
        shrink(config)
        torch.manual_seed(seed)
        small: Any = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except PolicyError:
        raise
    except Exception as error:  # each reader of these files has errors of its own
        raise PolicyError(
            f"cannot make a small copy of '{model.path}': {first_line(error)}. Expected a folder "
            "or a hub id with config.json and a tokenizer; weights are not needed"
        ) from error
    try:
        ends = GenerationConfig.from_pretrained(model.path).eos_token_id
        small.generation_config = GenerationConfig(eos_token_id=ends)
    except OSError:  # it has none
        pass
    small.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    size = f"{was[0]} → {text.num_hidden_layers} layers, {was[1]:,} → {text.hidden_size} wide"
    return f"{type(small).__name__}, {size}, {len(tokenizer):,} tokens"


def shrink(config: Any) -> None:
    """Shrink a config of transformers, and those within it, such as that of an image encoder."""
    for name in config.sub_configs:
        if getattr(config, name, None) is not None:
            shrink(getattr(config, name))
    config.quantization_config = None
    if (num_heads := getattr(config, "num_attention_heads", None)) is None:
        return
    num_kv = getattr(config, "num_key_value_heads", None)
    # Without `head_dim` a head is as wide as the model divided by the number of heads.
    width = min(config.hidden_size, _WIDTH)
    if not getattr(config, "head_dim", None):
        width = config.hidden_size // num_heads * min(num_heads, 2)
    count, settings = config.num_hidden_layers, config.to_dict()
    lists = {k: v for k, v in settings.items() if isinstance(v, list) and len(v) == count}
    kinds = list(zip(*lists.values(), strict=True)) or [()] * count
    kept = sorted({kinds.index(kind) for kind in kinds} | {*range(min(count, 2))})
    for name, values in lists.items():
        setattr(config, name, [values[place] for place in kept])
    config.num_hidden_layers = len(kept)
    config.num_attention_heads = min(num_heads, 2)
    if num_kv is not None:
        config.num_key_value_heads = 1 if num_kv < num_heads else min(num_heads, 2)
    config.hidden_size = width
    for name, most in _MOST.items():
        if isinstance(value := getattr(config, name, None), int):
            setattr(config, name, min(value, most))
