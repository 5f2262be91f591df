"""A new small Qwen3 model with a byte-level tokenizer of its own, for training from nothing.

Pure function of the texts, the shape and the seed. Its weights can already copy: they begin with
one induction circuit (Olsson et al. 2022, arXiv 2209.11895), a head of the first layer that looks
one token back, and a head of the second that finds the token after an earlier copy of the current
one. From random weights that takes about a thousand steps, from here about a hundred (docs/log.md).
Shapes: H hidden, D dimensions of a head, N of them for content.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from searchrl.config.sections import ScratchConfig
from searchrl.engine.model.policy import Policy
from searchrl.engine.model.rendering import Renderer

END, USER, ASSISTANT = "<|endoftext|>", "<|user|>", "<|assistant|>"

ROPE_THETA = 1e6
"""As Qwen3's: half of a head's dimensions then compare contents over a whole context."""

CHAT_TEMPLATE = (
    Path(__file__).resolve().parents[2] / "assets" / "tiny" / "chat_template.jinja"
).read_text("utf-8")

REACH = 400
"""Tokens over which contents are compared: pairs of dimensions that RoPE turns by more than about
a radian over this distance say where a token is, the others what it is."""

_PLACE = (1.2, 1.2, 1.0, 0.6)
"""Weight of the fastest pairs in the head that looks one token back."""

_SHARPNESS = 2.0
"""Norm weight of queries and keys: their product is multiplied by its square."""

_NOTE, _COPY = 0.12, 0.3
"""Size of the outputs of the two heads; embeddings in the residual stream have 0.25."""

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
        source="scratch",
        eos_ids=frozenset({tokenizer.eos_token_id}),
    )


class _Axes(NamedTuple):
    """Orthogonal directions of the residual stream, one row each."""

    common_H: Tensor
    """Shared by all tokens: lets a head attend by place alone."""
    content_NH: Tensor
    """Directions in which a token's own content is read."""
    before_NH: Tensor
    """Directions in which the content of the token before is written."""
    copied_DH: Tensor
    """Directions that are copied: a token's content and more, not that of the token before."""


def start_with_induction(model: Any) -> bool:
    """Give a new `Qwen3ForCausalLM` the circuit, in its first head; draws from torch's seed.

    The output projections of all other heads and MLPs begin at zero: the model starts as the
    circuit and embeddings alone. Embeddings gain a direction in common, which changes no
    probability where they are tied.

    Returns:
        False, with the model as it was, where there is no room: fewer than two layers, too narrow,
        or no pair of dimensions that RoPE leaves alone over `REACH` tokens.
    """
    config = model.config
    theta = config.rope_parameters["rope_theta"]
    half = config.head_dim // 2
    speeds = theta ** (-torch.arange(half) / half)
    slow = (speeds * REACH <= 1.0).nonzero().flatten()
    axes = _axes(config.hidden_size, 2 * len(slow), config.head_dim)
    if config.num_hidden_layers < 2 or half < len(_PLACE) or axes is None:
        return False
    with torch.no_grad():
        embeddings = model.model.embed_tokens.weight
        embeddings.add_(axes.common_H * embeddings.norm(dim=1).mean())
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        first, second = (layer.self_attn for layer in model.model.layers[:2])
        for attention in (first, second):
            attention.q_norm.weight.fill_(_SHARPNESS)
            attention.k_norm.weight.fill_(_SHARPNESS)
        _look_one_back(first, axes, speeds)
        _look_behind_equal(second, axes, torch.cat((slow, slow + half)))
    return True


def _axes(hidden: int, num_content: int, head_dim: int) -> _Axes | None:
    if num_content == 0 or hidden < 1 + num_content + head_dim:
        return None
    directions = torch.linalg.qr(torch.randn(hidden, hidden))[0].T
    content, before = directions[1:].split(num_content)[:2]
    others = directions[1 + 2 * num_content :][: head_dim - num_content]
    return _Axes(directions[0], content, before, torch.cat((content, others)))


def _look_one_back(attention: Any, axes: _Axes, speeds: Tensor) -> None:
    """Attend to the token before, and note its content."""
    head_dim, half = attention.head_dim, len(speeds)
    key = torch.zeros(head_dim)
    key[: len(_PLACE)] = torch.tensor(_PLACE)
    # The query is the key turned back by one place, so that their product is largest there.
    query = torch.zeros(head_dim)
    query[:half] = key[:half] * torch.cos(speeds)
    query[half:] = -key[:half] * torch.sin(speeds)
    num_content = len(axes.content_NH)
    attention.k_proj.weight[:head_dim] = torch.outer(key, axes.common_H)
    attention.q_proj.weight[:head_dim] = torch.outer(query, axes.common_H)
    attention.v_proj.weight[:head_dim] = 0.0
    attention.v_proj.weight[:num_content] = axes.content_NH
    attention.o_proj.weight[:, :num_content] = _NOTE * axes.before_NH.T


def _look_behind_equal(attention: Any, axes: _Axes, slow_N: Tensor) -> None:
    """Attend to the tokens behind those that are like this one, and copy them."""
    head_dim = attention.head_dim
    attention.q_proj.weight[:head_dim] = 0.0
    attention.k_proj.weight[:head_dim] = 0.0
    attention.q_proj.weight[slow_N] = axes.content_NH
    attention.k_proj.weight[slow_N] = axes.before_NH
    attention.v_proj.weight[:head_dim] = axes.copied_DH
    attention.o_proj.weight[:, :head_dim] = _COPY * axes.copied_DH.T
