"""Qwen3 checkpoints with random weights, and two training steps on them by path."""

from pathlib import Path
from typing import Any

import torch
from train_toy import settings
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

from searchrl.programs.train import train
from searchrl.run_folder import Run

CPU = torch.device("cpu")
QWEN3_4B = dict(
    hidden_size=2560, intermediate_size=9728, num_hidden_layers=2, vocab_size=151936,
    num_attention_heads=32, num_key_value_heads=8, head_dim=128, tie_word_embeddings=True,
    rope_theta=1_000_000, rms_norm_eps=1e-6, max_position_embeddings=40960,
)  # fmt: skip
"""Qwen/Qwen3-4B, but for its 36 layers."""


SMALL: dict[str, Any] = dict(
    hidden_size=64, intermediate_size=192, num_hidden_layers=3, vocab_size=320,
    num_attention_heads=4, num_key_value_heads=2, head_dim=16,
)  # fmt: skip
"""Three layers whose every matrix a CPU kernel could re-pack: rows in multiples of 32."""


def save_qwen3(folder: Path, tokenizer_folder: Path, **changes: Any) -> Path:
    """A Qwen3 checkpoint with random weights and the real tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    config = Qwen3Config(**(QWEN3_4B | changes), eos_token_id=tokenizer.eos_token_id)
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def check_two_lora_steps(
    model: Path, folder: Path, device: torch.device = CPU, **changes: Any
) -> Run:
    """Two training steps by path, exactly on-policy, of an adapter and nothing else."""
    adapter = {"adapter": "lora", "dtype": "float32", "gradient_checkpointing": True}
    rollout = {"group_size": 4, "prompts_per_step": 1, "max_turn_tokens": 6}
    run = train(
        settings(
            model,
            folder,
            model=adapter | changes,
            rollout=rollout | {"max_total_tokens": 200},
            eval={"num_tasks": 1},
            optim={"lr": 1e-3, "warmup_steps": 0},
            max_steps=2,
            device=device.type,
        )
    )
    rows = [row for row in run.metrics if row["phase"] == "train"]
    assert [row["step"] for row in rows] == [1, 2]
    assert all(row.get("max_abs_log_ratio", 0) <= 1e-4 for row in rows)
    assert any(row.get("grad_norm", 0) > 0 for row in rows)
    assert (run.path / "policy" / "adapter_model.safetensors").is_file()
    assert not list((run.path / "policy").glob("model*.safetensors"))
    return run
