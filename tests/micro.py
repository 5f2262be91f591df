"""The smallest policy that is a real one: a Qwen3 folder with random weights."""

from pathlib import Path

import torch

from searchrl.config.sections import ScratchConfig
from searchrl.engine.model.scratch import make_policy


def write_micro_model(folder: Path, head_dim: int = 16) -> Path:
    shape = ScratchConfig(
        vocab_size=320, hidden_size=2 * head_dim, intermediate_size=64, num_layers=1, num_heads=2,
        num_kv_heads=1, head_dim=head_dim,
    )  # fmt: skip
    texts = ["<think>I should look this up.</think>\n<search>library hours</search>"] * 3
    make_policy(shape, texts, torch.device("cpu"), max_context=2048, seed=0).save(folder)
    return folder
