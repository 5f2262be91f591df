"""A new small Qwen3 model with a byte-level tokenizer of its own, for training from nothing.

`searchrl sft --model scratch` makes one; the embedded tiny model is one. Weights begin with an
induction circuit. Pure function of the texts, the shape and the seed.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from searchrl.config.sections import ScratchConfig
from searchrl.engine.model.induction import start_with_induction
from searchrl.engine.model.policy import Policy
from searchrl.engine.model.rendering import Renderer

END, USER, ASSISTANT = "<|endoftext|>", "<|user|>", "<|assistant|>"

ROPE_THETA = 1e6
"""As Qwen3's: half of a head's dimensions then compare contents over a whole context."""

CHAT_TEMPLATE = (
    Path(__file__).resolve().parents[2] / "assets" / "tiny" / "chat_template.jinja"
).read_text("utf-8")

# Tags whole with their white space, digits in pairs (a number is then one token or two to copy),
# words with the space or sign before them; `library-fine` is one word.
_PIECES = Regex(
    r" ?\n*</?[a-z_]+>\n*| ?\d{1,2}|[^\r\n\p{L}\d<]?\p{L}+(?:-\p{L}+)*| ?[^\s\p{L}\d<]+\n*| ?<|\s+"
)


def make_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer; every byte is in the vocabulary, so any text encodes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(_PIECES, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END, USER, ASSISTANT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=END)
    fast.chat_template = CHAT_TEMPLATE
    return fast


def make_policy(
    shape: ScratchConfig, texts: Iterable[str], device: torch.device, max_context: int, seed: int
) -> Policy:
    """Make a policy with new weights from a seed, all trainable, for up to `max_context` tokens.

    Its tokenizer is trained on the texts.
    """
    tokenizer = make_tokenizer(texts, shape.vocab_size)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=max_context,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    # Marks the small models this package trains by full fine-tuning, wherever they are saved.
    config.searchrl_tiny = True
    torch.manual_seed(seed)
    model: Any = Qwen3ForCausalLM(config)
    start_with_induction(model)
    model.to(device).eval()
    return Policy(
        model=model,
        tokenizer=tokenizer,
        renderer=Renderer(tokenizer),
        device=device,
        is_lora=False,
        is_tiny=True,
        source="scratch",
        eos_ids=frozenset({tokenizer.eos_token_id}),
    )
