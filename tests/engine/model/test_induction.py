"""The circuit a scratch model is born with: it copies before any training."""

import copy
from typing import Any

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from searchrl.engine.model.scratch import start_with_induction

VOCAB = 600


def make_model(**shape: int) -> Any:
    torch.manual_seed(0)
    settings = {"hidden_size": 128, "head_dim": 32, "num_hidden_layers": 2} | shape
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=VOCAB,
            intermediate_size=64,
            num_attention_heads=4,
            num_key_value_heads=2,
            tie_word_embeddings=True,
            rope_parameters={"rope_type": "default", "rope_theta": 1e6},
            **settings,
        )
    ).eval()


def share_copied(model: Any, length: int = 120) -> float:
    """How often the next token of a random sequence is foretold when it comes again."""
    once = torch.randint(VOCAB, (8, length), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        best = model(input_ids=torch.cat([once, once], dim=1)).logits.argmax(-1)
    return float((best[:, length:-1] == once[:, 1:]).float().mean())


@pytest.mark.parametrize(
    "shape", [{}, {"hidden_size": 160}, {"num_hidden_layers": 4}, {"head_dim": 64}]
)
def test_a_newborn_model_copies_what_it_saw_once(shape: dict[str, int]) -> None:
    model = make_model(**shape)
    assert share_copied(model) < 0.02
    assert start_with_induction(model)
    assert share_copied(model) > 0.6


@pytest.mark.parametrize(
    "shape",
    [{"num_hidden_layers": 1}, {"hidden_size": 32}, {"head_dim": 4}],
    ids=["one layer", "too narrow", "no slow pairs"],
)
def test_a_model_without_room_keeps_its_random_weights(shape: dict[str, int]) -> None:
    model = make_model(**shape)
    before = copy.deepcopy(model.state_dict())
    assert not start_with_induction(model)
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())


def test_every_weight_of_the_circuit_can_still_be_trained() -> None:
    model = make_model()
    start_with_induction(model)
    ids = torch.randint(VOCAB, (2, 40))
    model(input_ids=ids, labels=ids).loss.backward()
    parts = ("q_proj", "k_proj", "v_proj", "o_proj")
    for layer in model.model.layers[:2]:
        for part in parts:
            assert getattr(layer.self_attn, part).weight.grad.abs().sum() > 0, part
