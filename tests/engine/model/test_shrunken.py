"""A shrunken copy is legal for every family of models, and keeps what a run depends on."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoTokenizer

from searchrl.config.sections import ModelConfig
from searchrl.engine.model.loading import load_policy, resolve_model
from searchrl.engine.model.shrunken import save_shrunken
from searchrl.errors import PolicyError

LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
}  # fmt: skip
LONG = {
    "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 48,
    "long_factor": [1.5] * 48, "original_max_position_embeddings": 4096,
}  # fmt: skip

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "Qwen3-4B": ("Qwen3Config", dict(
        hidden_size=2560, num_hidden_layers=36, num_attention_heads=32, num_key_value_heads=8,
        head_dim=128, tie_word_embeddings=True)),
    "Qwen2.5-3B, windows in some layers": ("Qwen2Config", dict(
        hidden_size=2048, num_hidden_layers=36, num_attention_heads=16, num_key_value_heads=2,
        use_sliding_window=True, max_window_layers=30)),
    "Llama-3.1-8B": ("LlamaConfig", dict(
        num_key_value_heads=8, rope_parameters=LLAMA3, max_position_embeddings=131_072)),
    "SmolLM-135M, nine heads": ("LlamaConfig", dict(
        hidden_size=576, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
        tie_word_embeddings=True)),
    "SmolLM3-3B, layers without RoPE": ("SmolLM3Config", dict(pad_token_id=0, bos_token_id=0)),
    "Mistral-7B": ("MistralConfig", dict(sliding_window=4096)),
    "Gemma-2-2B": ("Gemma2Config", dict(
        num_hidden_layers=26, num_attention_heads=8, num_key_value_heads=4)),
    "Gemma-3-1B, one key head": ("Gemma3TextConfig", dict(
        num_hidden_layers=26, num_attention_heads=4, num_key_value_heads=1)),
    "Phi-3-mini, factors for every pair of a head": ("Phi3Config", dict(
        pad_token_id=0, rope_parameters=LONG, max_position_embeddings=131_072)),
    "Qwen3-30B-A3B, experts": ("Qwen3MoeConfig", dict(num_hidden_layers=48)),
    "DeepSeek-V3, a dense layer before experts": ("DeepseekV3Config", {}),
}  # fmt: skip


CPU = torch.device("cpu")


def save_config(folder: Path, tokenizer: Path, name: str, **settings: Any) -> Any:
    """A model folder without weights, with the tokenizer of another one."""
    real = AutoTokenizer.from_pretrained(tokenizer)
    real.save_pretrained(folder)
    ends = {"eos_token_id": real.eos_token_id} | dict.fromkeys(("bos_token_id", "pad_token_id"))
    config = getattr(transformers, name)(**ends | settings | {"vocab_size": len(real) + 8})
    config.save_pretrained(folder)
    return config


def facts_of(config: Any) -> dict[str, Any]:
    """The settings that a copy keeps."""
    names = ("vocab_size", "tie_word_embeddings", "rope_parameters", "max_position_embeddings")
    settings = config.to_dict()
    return {name: settings.get(name) for name in (*names, "sliding_window")} | {
        "head_dim": settings.get("head_dim") or config.hidden_size // config.num_attention_heads,
        "kinds": set(settings.get("layer_types") or ()),
        "is_grouped": config.num_key_value_heads < config.num_attention_heads,
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_a_small_copy_of_every_family_has_its_layers_heads_and_vocabulary(
    family: str, micro_model: Path, tmp_path: Path
) -> None:
    name, settings = FAMILIES[family]
    was = save_config(tmp_path / "real", micro_model, name, **settings)
    says = save_shrunken(resolve_model(str(tmp_path / "real"), CPU), tmp_path / "small", 0)
    assert f"{was.num_hidden_layers} → " in says and f"{was.hidden_size:,} → " in says
    small = resolve_model(str(tmp_path / "small"), CPU)
    policy = load_policy(ModelConfig(adapter="lora"), small, CPU, trainable=True)
    now, (trained, total) = policy.base_model.config, policy.num_parameters
    assert 0 < trained < total < 3_000_000
    assert facts_of(now) == facts_of(was)
    with torch.no_grad():
        logits = policy.model(torch.arange(12)[None]).logits
    assert logits.isfinite().all() and logits.shape[-1] == was.vocab_size


def test_the_end_of_text_tokens_are_those_of_the_model(micro_model: Path, tmp_path: Path) -> None:
    save_config(tmp_path / "real", micro_model, "Qwen3Config")
    ends = '{"eos_token_id": [0, 7], "temperature": 0.6, "do_sample": true}'
    (tmp_path / "real" / "generation_config.json").write_text(ends)
    save_shrunken(resolve_model(str(tmp_path / "real"), CPU), tmp_path / "small", 0)
    small = resolve_model(str(tmp_path / "small"), CPU)
    policy = load_policy(ModelConfig(), small, CPU, trainable=False)
    assert policy.eos_ids >= {0, 7}


def test_a_config_that_cannot_be_read_is_named_with_what_is_expected(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "nothing"}')
    with pytest.raises(PolicyError, match=r"(?s)small copy of .*config.json and a tokenizer"):
        save_shrunken(resolve_model(str(tmp_path), CPU), tmp_path / "small", 0)
