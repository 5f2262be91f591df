"""Models of a few kilobytes, written to disk as their libraries write them, with random weights."""

from __future__ import annotations

from pathlib import Path

from searchrl.contracts import Passage

WORDS = "park library book opens nine closes five dog cat river bridge the at query passage".split()

PASSAGES = (
    Passage("p", "the park opens at nine", "park"),
    Passage("l", "the library closes at five", "library"),
    Passage("b", "book at the library", "book"),
    Passage("d", "dog cat", ""),
    Passage("empty", "", ""),
    Passage("r", "the bridge at the river", "bridge"),
)


def write_tokenizer(folder: Path) -> int:
    """Write tokenizer.json; returns the size of its vocabulary."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    vocabulary = {word: number for number, word in enumerate([*special, *WORDS])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return len(vocabulary)


def write_static(folder: Path, *, seed: int = 0) -> Path:
    """A static model as Model2Vec writes it. Special tokens have vectors of zeros."""
    import numpy as np
    from safetensors.numpy import save_file

    size = write_tokenizer(folder)
    matrix = np.random.default_rng(seed).standard_normal((size, 16)).astype(np.float32)
    matrix[:4] = 0
    save_file({"embeddings": matrix}, folder / "model.safetensors")
    return folder


def write_transformer(folder: Path, *, num_labels: int = 0) -> Path:
    """A BERT of one layer: an encoder, or a cross-encoder that gives `num_labels` scores."""
    import torch
    from transformers import (
        BertConfig,
        BertForSequenceClassification,
        BertModel,
        PreTrainedTokenizerFast,
    )

    size = write_tokenizer(folder)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"),
        unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]",
        model_max_length=64,
    )  # fmt: skip
    tokenizer.save_pretrained(folder)
    config = BertConfig(
        vocab_size=size,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=64,
        num_labels=max(1, num_labels),
    )
    state = torch.random.get_rng_state()
    torch.manual_seed(0)
    model = BertForSequenceClassification(config) if num_labels else BertModel(config)
    torch.random.set_rng_state(state)
    for parameter in model.parameters():
        parameter.data *= 5  # far from 0, so that texts differ clearly
    model.save_pretrained(folder)
    return folder


def write_sentence_model(folder: Path) -> Path:
    """A sentence-transformers folder: the encoder, and the mean of its tokens."""
    from sentence_transformers import SentenceTransformer

    encoder = write_transformer(folder.with_name("encoder"))
    SentenceTransformer(str(encoder), device="cpu", local_files_only=True).save(str(folder))
    return folder
