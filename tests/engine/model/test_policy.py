"""The policy: LoRA, checkpointed activations, the reference, log-probs of chosen tokens."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_toy import (
    enlarge_lora,
    lora_policy,
    make_learner,
    micro_policy,
    token_batch,
    token_logps,
)
from qwen3_toy import check_two_lora_steps
from transformers import AutoTokenizer, OPTConfig, OPTForCausalLM
from transformers.modeling_layers import GradientCheckpointingLayer

from searchrl.engine.model.attention import attending
from searchrl.engine.model.head import find_plain_head
from searchrl.engine.model.layout import padded_layout
from searchrl.engine.model.policy import Policy
from searchrl.errors import PolicyError, RunFolderError


def gradients(policy: Policy, *, is_inside: bool = True) -> dict[str, torch.Tensor]:
    """Of the log-probs of a batch; the backward pass within `updating` or after it."""
    policy.model.zero_grad()
    with ExitStack() as stack:
        stack.enter_context(policy.updating())
        logp_N = token_logps(policy, *token_batch())
        if not is_inside:
            stack.close()
        (logp_N * torch.linspace(-1, 1, len(logp_N)).to(logp_N)).sum().backward()
    named = policy.model.named_parameters()
    return {name: p.grad.clone() for name, p in named if p.grad is not None}


def ensure_same(
    plain: dict[str, torch.Tensor], other: dict[str, torch.Tensor], limit: float
) -> None:
    """The same gradients up to a share of their size, and none is zero."""
    assert plain.keys() == other.keys()
    for name, grad in plain.items():
        assert grad.abs().max() > 1e-6, name
        assert (grad - other[name]).abs().max() <= limit * grad.abs().max(), name


class TestLora:
    @pytest.mark.parametrize("adapter", ["lora", "full"])
    def test_checkpointing_on_equals_off_and_gradients_are_not_zero(
        self, device: torch.device, micro_model: Path, adapter: str
    ):
        """PEFT with gradient checkpointing alone: zero gradients, silently."""
        model = {"adapter": adapter, "lora_dropout": 0.5 if adapter == "lora" else 0.0}
        plain, checked = (
            gradients(enlarge_lora(micro_policy(micro_model, device=device, **model, **on)))
            for on in ({}, {"gradient_checkpointing": True})
        )
        assert adapter == "full" or len(plain) == 2 * 7
        ensure_same(plain, checked, 1e-6 if adapter == "lora" else 1e-5)

    def test_probing_the_head_draws_nothing_and_leaves_every_mode_as_it_was(
        self, micro_model: Path
    ):
        """A probe with dropout on would take every head for a strange one: [T, V] logits."""
        policy = lora_policy(micro_model, lora_dropout=0.5)
        policy.model.train()
        modes = [module.training for module in policy.model.modules()]
        torch.manual_seed(3)
        expected = torch.rand(1)
        torch.manual_seed(3)
        with policy.evaluating():
            assert find_plain_head(policy.base_model, token_batch()[0]) is True
        assert torch.equal(torch.rand(1), expected)
        assert [module.training for module in policy.model.modules()] == modes

    def test_every_linear_layer_of_the_blocks_is_adapted_and_nothing_else_trained(
        self, micro_model: Path
    ):
        policy = micro_policy(micro_model, adapter="lora", lora_r=4)
        trained = {n for n, p in policy.model.named_parameters() if p.requires_grad}
        linear = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
        assert len(trained) == 2 * len(linear)
        assert all("lora_" in name and any(part in name for part in linear) for name in trained)
        count, total = policy.num_parameters
        assert 0 < count < total

    def test_only_the_layers_that_are_named_are_adapted(self, micro_model: Path):
        named = ["q_proj", "k_proj", "v_proj", "o_proj"]
        policy = micro_policy(micro_model, adapter="lora", lora_r=4, lora_targets=named)
        trained = [n for n, p in policy.model.named_parameters() if p.requires_grad]
        assert sorted(n.split(".lora_")[0].rpartition(".")[2] for n in trained) == sorted(named * 2)

    def test_a_layer_that_is_not_there_is_refused_even_if_others_are(self, micro_model: Path):
        """peft ignores it, and less is trained than the config says."""
        for name in ("qproj", "proj"):
            with pytest.raises(PolicyError, match=f"no linear layer '{name}'. Did you mean"):
                micro_policy(micro_model, adapter="lora", lora_targets=["k_proj", name])


TINY = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2)


def save_with_tokenizer(folder: Path, micro_model: Path, model: type, config: Any) -> Path:
    tokenizer = AutoTokenizer.from_pretrained(micro_model)
    config.vocab_size = len(tokenizer)
    torch.manual_seed(0)
    model(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def opt_model(micro_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random OPT with the dropout OPT is trained with, which its layers apply themselves."""
    shape = TINY | dict(word_embed_proj_dim=32, ffn_dim=64, max_position_embeddings=64)
    config = OPTConfig(**shape, layerdrop=0.5)
    assert config.dropout == 0.1
    return save_with_tokenizer(tmp_path_factory.mktemp("opt"), micro_model, OPTForCausalLM, config)


class TestCheckpointedDropout:
    """Dropout before the ratio: it would differ from 1 before any update."""

    @pytest.mark.parametrize("adapter", ["full", "lora"])
    def test_log_probs_and_gradients_equal_those_without(self, opt_model: Path, adapter: str):
        logps, grads = [], []
        for is_on in (False, True):
            policy = micro_policy(
                opt_model, adapter=adapter, lora_r=4, gradient_checkpointing=is_on
            )
            if adapter == "lora":
                enlarge_lora(policy)
            with policy.updating():
                logps.append(token_logps(policy, *token_batch()).detach())
            grads.append(gradients(policy))
        assert torch.allclose(logps[0], logps[1], rtol=0, atol=1e-6)
        assert any(grad.abs().max() > 1e-3 for grad in grads[0].values())
        assert grads[0].keys() == grads[1].keys()
        for name, plain in grads[0].items():
            assert torch.allclose(plain, grads[1][name], rtol=1e-4, atol=1e-7), name

    def test_supervised_training_keeps_the_dropout(self, opt_model: Path):
        policy = micro_policy(opt_model, gradient_checkpointing=True)
        with policy.updating():
            still = token_logps(policy, *token_batch()).detach()
        policy.model.train()
        with torch.no_grad():
            assert (token_logps(policy, *token_batch()) - still).abs().max() > 1e-3


class TestReference:
    @pytest.mark.parametrize("quantize", ["none", "nf4"])
    def test_with_lora_it_is_the_base_with_the_adapter_off(self, small_qwen3: Path, quantize: str):
        policy = lora_policy(small_qwen3, quantize=quantize)
        policy.keep_reference()
        assert policy._frozen is None  # no second copy of the weights
        base = micro_policy(small_qwen3, trainable=False, adapter="lora", quantize=quantize)
        with torch.no_grad():
            reference = token_logps(policy, *token_batch(), reference=True)
            current = token_logps(policy, *token_batch())
            expected = token_logps(base, *token_batch())
        assert torch.allclose(reference, expected, atol=1e-6)
        assert (current - reference).abs().max() > 1e-2

    def test_beta_zero_keeps_no_reference(self, micro_model: Path):
        policy = micro_policy(micro_model)
        make_learner(policy, beta=0.0)
        assert policy._frozen is None
        make_learner(policy, beta=0.1)
        frozen = policy._frozen
        assert frozen is not None and not any(p.requires_grad for p in frozen.parameters())

    def test_of_a_fully_trained_model_it_is_the_copy_that_was_kept_first(self, micro_model: Path):
        policy = micro_policy(micro_model)
        with torch.no_grad():
            before = token_logps(policy, *token_batch())
            for _ in range(2):
                policy.keep_reference()
                for parameter in policy.parameters:
                    parameter.mul_(1.5)
            assert torch.equal(token_logps(policy, *token_batch(), reference=True), before)
            assert (token_logps(policy, *token_batch()) - before).abs().max() > 1e-3


class TestModes:
    def test_each_mode_ends_as_it_began(self, micro_model: Path):
        policy = micro_policy(micro_model, gradient_checkpointing=True)
        (layer,) = (m for m in policy.model.modules() if hasattr(m, "_gradient_checkpointing_func")
                    and isinstance(m, GradientCheckpointingLayer))  # fmt: skip
        function = layer._gradient_checkpointing_func
        assert layer.gradient_checkpointing
        policy.model.train()
        with policy.evaluating():
            assert not any(module.training for module in policy.model.modules())
        assert policy.model.training
        with policy.updating():
            assert layer.training and not policy.model.training
            assert layer._gradient_checkpointing_func is not function
        assert layer._gradient_checkpointing_func is function
        assert not any(module.training for module in policy.model.modules())

    def test_a_change_of_the_weights_or_of_the_version_is_another_stamp(self, micro_model: Path):
        policy = micro_policy(micro_model)
        stamps = {policy.weights_stamp()}
        policy.version += 1
        stamps.add(policy.weights_stamp())
        with torch.no_grad():
            policy.parameters[-1].add_(1.0)
        assert len({*stamps, policy.weights_stamp()}) == 3

    def test_weights_of_another_architecture_are_refused(self, micro_model: Path):
        policy = micro_policy(micro_model)
        saved = {name: p.detach() for name, p in policy.named_parameters()}
        gone = sorted(saved)[0]
        del saved[gone]
        with pytest.raises(
            RunFolderError, match=f"lacks 1 weights of this model, the first '{gone}'"
        ):
            policy.load(Path("folder"), saved)
        more = {name: p.detach() for name, p in policy.named_parameters()} | {"x": torch.ones(1)}
        with pytest.raises(RunFolderError, match="has 1 weights .* the first 'x'"):
            policy.load(Path("folder"), more)


class TestPacking:
    def test_why_a_model_cannot_run_packed_rows(self, micro_model: Path):
        policy = micro_policy(micro_model)
        assert policy.find_packing_fault() is None
        with (
            attending(policy.base_model),
            pytest.raises(PolicyError, match="does not pass options"),
        ):
            policy.model(input_ids=token_batch()[0])
        with torch.no_grad():
            policy.parameters[-1].fill_(torch.nan)
        assert policy.find_packing_fault() is None, "damage is said where tokens are sampled"
        policy.base_model.config.layer_types = ["sliding_attention"]
        assert policy.find_packing_fault() == "it has sliding-window attention"


class TestTokenLogps:
    def test_padding_does_not_change_them(self, policy: Policy):
        ids_BT, chosen_BT = token_batch()
        padded = torch.nn.functional.pad(ids_BT, (0, 23), value=7)
        chosen = torch.nn.functional.pad(chosen_BT, (0, 23), value=False)
        with torch.no_grad():
            plain = token_logps(policy, ids_BT, chosen_BT)
            wide = token_logps(policy, padded, chosen)
        assert torch.allclose(plain, wide, atol=1e-6)

    def test_head_on_chosen_rows_equals_full_logits(self, policy: Policy):
        ids_BT, chosen_BT = token_batch()
        with torch.no_grad():
            logits_BTV = policy.model(input_ids=ids_BT).logits
            logp_BTV = torch.log_softmax(logits_BTV[:, :-1] / 0.7, dim=-1)
            full = logp_BTV.gather(2, ids_BT[:, 1:, None])[..., 0][chosen_BT[:, 1:]]
            rows, entropy, *_ = policy.logps(
                padded_layout(ids_BT, chosen_BT), temperature=0.7, with_entropy=True
            )
            exact = -(logp_BTV.exp() * logp_BTV).sum(-1)[chosen_BT[:, 1:]]
        assert torch.allclose(rows, full, atol=1e-5)
        assert entropy is not None and torch.allclose(entropy, exact, atol=1e-5)

    def test_a_model_that_changes_its_logits_after_the_head_is_found_out(self, policy: Policy):
        # Soft-capping and scaled logits: the head alone would give other log-probs.
        forward = policy.model.forward

        def scaled(*args: Any, **kwargs: Any) -> Any:
            output = forward(*args, **kwargs)
            output.logits = 0.5 * output.logits
            return output

        policy.model.forward = scaled
        ids_BT, chosen_BT = token_batch()
        with torch.no_grad():
            rows = token_logps(policy, ids_BT, chosen_BT)
            logp_BTV = torch.log_softmax(policy.model(input_ids=ids_BT).logits[:, :-1], dim=-1)
        full = logp_BTV.gather(2, ids_BT[:, 1:, None])[..., 0][chosen_BT[:, 1:]]
        assert torch.allclose(rows, full, atol=1e-5)


@pytest.mark.parametrize("quantize", [pytest.param("none", marks=pytest.mark.thorough), "nf4"])
def test_qwen3_architecture_by_path_with_lora_does_two_steps(
    device: torch.device, small_qwen3: Path, tmp_path: Path, quantize: str
):
    if quantize == "nf4":
        pytest.importorskip("bitsandbytes")
    run = check_two_lora_steps(small_qwen3, tmp_path / "run", device, quantize=quantize)
    assert run.config.model.quantize == quantize
