"""Four-bit weights: one base for sampler and trainer, the same numbers in every pass."""

import io
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_toy import lora_policy, micro_policy, token_batch, token_logps
from generator_play import run
from torch import nn
from torch.optim import AdamW, Optimizer

from searchrl.config import build_config
from searchrl.config.sections import ModelConfig
from searchrl.engine.model.loading import ResolvedModel, load_policy
from searchrl.engine.model.optimizers import MIN_8BIT_SIZE, OptimizerName, make_optimizer
from searchrl.engine.model.policy import Policy
from searchrl.engine.model.quantization import num_weights
from searchrl.engine.sampling.generator import Sampling
from searchrl.engine.sampling.slot_generator import SlotGenerator
from searchrl.errors import ConfigError, PolicyError

bitsandbytes = pytest.importorskip("bitsandbytes.functional")
CPU = torch.device("cpu")


@pytest.fixture
def four_bit(device: torch.device, small_qwen3: Path) -> Policy:
    return lora_policy(small_qwen3, 0.05, device=device, quantize="nf4")


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    return token_batch(share=1.0)


def test_base_is_in_four_bits_and_weights_are_counted_as_weights(
    four_bit: Policy, small_qwen3: Path
):
    plain = micro_policy(small_qwen3, adapter="lora", lora_r=4)
    assert four_bit.num_parameters == plain.num_parameters
    stored = [p for p in four_bit.model.parameters() if p.dtype == torch.uint8]
    assert len(stored) == 3 * 7 and all(num_weights(p) == 2 * p.numel() for p in stored)
    assert all(p.quant_state.nested and p.quant_state.quant_type == "nf4" for p in stored)
    assert not any(p.requires_grad for p in stored)
    # The head and what norms compute stay as they are loaded: nothing is upcast for training.
    assert {p.dtype for p in four_bit.model.parameters()} == {torch.uint8, torch.float32}


def gradients(policy: Policy) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Log-probs of an update and the gradients of their sum."""
    policy.model.zero_grad()
    with policy.updating():
        logp_N = token_logps(policy, *batch())
        logp_N.sum().backward()
    return logp_N.detach(), [p.grad.clone() for p in policy.parameters if p.grad is not None]


def test_every_pass_computes_with_the_same_weights(four_bit: Policy, small_qwen3: Path):
    """bitsandbytes re-packs weights at the first pass without gradients: bf16, and no gradient."""
    twin = lora_policy(small_qwen3, 0.05, device=four_bit.device)
    with torch.no_grad():
        pairs = zip(four_bit.model.parameters(), twin.model.parameters(), strict=True)
        for stored, plain in pairs:
            if stored.dtype == torch.uint8:
                plain.copy_(bitsandbytes.dequantize_4bit(stored.data, stored.quant_state))
    with torch.inference_mode(), four_bit.evaluating():
        sampled_N = token_logps(four_bit, *batch())
    ours_N, our_grads = gradients(four_bit)
    theirs_N, their_grads = gradients(twin)
    assert (sampled_N - theirs_N).abs().max() <= 1e-5
    assert (ours_N - theirs_N).abs().max() <= 1e-5
    assert len(our_grads) == len(their_grads) == len(four_bit.parameters)
    for ours, theirs in zip(our_grads, their_grads, strict=True):
        assert theirs.abs().max() > 0
        assert (ours - theirs).abs().max() <= 1e-4 * theirs.abs().max()


def test_slot_engine_runs_it(four_bit: Policy):
    generator = SlotGenerator(four_bit, Sampling(1.0), num_slots=3, max_length=64)
    prompt = list(range(1, 12))
    for turn in run(generator, [prompt] * 3, [1, 2, 3]):
        ids_BT = torch.tensor([[*prompt, *turn.ids]])
        chosen_BT = torch.zeros_like(ids_BT, dtype=torch.bool)
        chosen_BT[:, len(prompt) :] = True
        with four_bit.updating():
            logp_N = token_logps(four_bit, ids_BT, chosen_BT)
        assert turn.logps == pytest.approx(logp_N.tolist(), abs=1e-4)


class TestWhatCannotBe:
    def test_full_fine_tuning(self, micro_model: Path):
        for wrong in ({"adapter": "full"}, {"name": "scratch"}):
            with pytest.raises(ConfigError, match="use none"):
                build_config({"model": {"quantize": "nf4", **wrong}})
        # `auto` trains the embedded model in full: found out when it is loaded.
        tiny = ResolvedModel(str(micro_model), None, is_tiny=True)
        with pytest.raises(PolicyError, match="freezes the weights it quantises"):
            load_policy(ModelConfig(quantize="nf4"), tiny, CPU, trainable=True)

    def test_without_bitsandbytes(self, micro_model: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setitem(sys.modules, "bitsandbytes", None)
        tiny = ResolvedModel(str(micro_model), None, is_tiny=True)
        with pytest.raises(PolicyError, match="pip install -U bitsandbytes.*model.quantize=none"):
            load_policy(ModelConfig(quantize="nf4", adapter="lora"), tiny, CPU, trainable=True)


def parameters() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    sizes = ((MIN_8BIT_SIZE // 32, 32), (8, 8))
    return [nn.Parameter(torch.randn(size, generator=generator)) for size in sizes]


def step(optimizer: Optimizer, leaves: list[nn.Parameter], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for leaf in leaves:
        leaf.grad = torch.randn(leaf.shape, generator=generator)
    optimizer.step()


@pytest.mark.parametrize("name", ["adamw", "adamw8bit"])
def test_saved_state_goes_on_to_the_last_bit(name: OptimizerName):
    ours, theirs = parameters(), parameters()
    one, other = (make_optimizer(name, [{"params": own, "lr": 1e-2}]) for own in (ours, theirs))
    step(one, ours, 1)
    with torch.no_grad():
        for mine, copy in zip(ours, theirs, strict=True):
            copy.copy_(mine)
    file = io.BytesIO()
    torch.save(one.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    step(one, ours, 2)
    step(other, theirs, 2)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_eight_bits_of_state_where_that_saves_memory_and_no_weight_decay():
    leaves = parameters()
    optimizer: Any = make_optimizer("adamw8bit", [{"params": leaves, "lr": 1e-2}])
    step(optimizer, leaves, 1)
    assert [optimizer.state[p]["state1"].dtype for p in leaves] == [torch.uint8, torch.float32]
    twins = parameters()
    plain = make_optimizer("adamw", [{"params": twins, "lr": 1e-2}])
    step(plain, twins, 1)
    assert isinstance(plain, AdamW)
    for optimizer_ in (optimizer, plain):
        assert optimizer_.param_groups[0]["weight_decay"] == 0.0
    for ours, theirs in zip(leaves, twins, strict=True):
        assert torch.allclose(ours, theirs, atol=2e-3)
