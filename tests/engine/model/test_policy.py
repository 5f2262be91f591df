"""The policy: LoRA, checkpointed activations, the reference, and where weights come from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_toy import enlarge_lora, micro_policy, play, token_batch, token_logps
from qwen3_toy import check_two_lora_steps, save_qwen3
from transformers import (
    AutoTokenizer,
    FalconConfig,
    FalconForCausalLM,
    OPTConfig,
    OPTForCausalLM,
)

from searchrl.algorithms import make_grpo
from searchrl.config.sections import AlgorithmConfig, ModelConfig, OptimConfig
from searchrl.core.group import make_groups
from searchrl.engine.learning.learner import Learner
from searchrl.engine.model.head import has_plain_head
from searchrl.engine.model.layout import padded_layout
from searchrl.engine.model.loading import (
    DEFAULT_MODEL,
    TINY_PATH,
    ResolvedModel,
    load_policy,
    resolve_device,
    resolve_model,
)
from searchrl.engine.model.policy import Policy
from searchrl.errors import PolicyError

CPU = torch.device("cpu")


def make_learner(policy: Policy, beta: float = 0.0, lr: float = 1e-2) -> Learner:
    return Learner(
        policy,
        make_grpo(),
        AlgorithmConfig(beta=beta),
        OptimConfig(lr=lr, warmup_steps=0),
        max_steps=4,
    )


def lora_gradients(policy: Policy) -> dict[str, torch.Tensor]:
    ids_BT, chosen_BT = token_batch()
    policy.model.zero_grad()
    with policy.updating():
        logp_N = token_logps(policy, ids_BT, chosen_BT)
        (logp_N * torch.linspace(-1, 1, len(logp_N))).sum().backward()
    return {
        name: p.grad.clone() for name, p in policy.model.named_parameters() if p.grad is not None
    }


class TestLora:
    def test_checkpointing_on_equals_off_and_gradients_are_not_zero(self, micro_model: Path):
        """PEFT with gradient checkpointing alone: zero gradients, silently."""
        grads = []
        for is_on in (False, True):
            policy = micro_policy(
                micro_model,
                adapter="lora",
                lora_r=4,
                lora_dropout=0.5,
                gradient_checkpointing=is_on,
            )
            grads.append(lora_gradients(enlarge_lora(policy)))
        assert grads[0].keys() == grads[1].keys() and len(grads[0]) == 2 * 7
        for name, plain in grads[0].items():
            assert plain.abs().max() > 1e-6, name
            assert (plain - grads[1][name]).abs().max() <= 1e-6 * plain.abs().max(), name

    def test_checkpointing_really_recomputes(self, micro_model: Path):
        # In evaluation mode Hugging Face models silently do not checkpoint.
        calls = {}
        for is_on in (False, True):
            policy = micro_policy(
                micro_model, adapter="lora", lora_r=4, gradient_checkpointing=is_on
            )
            lora_gradients(policy)  # the first pass also probes the head
            calls[is_on] = 0

            def count(*args: Any, is_on: bool = is_on) -> None:
                calls[is_on] += 1

            policy.model.get_base_model().model.layers[0].mlp.register_forward_pre_hook(count)
            lora_gradients(policy)
        assert calls == {False: 1, True: 2}

    def test_probing_the_head_draws_nothing_and_leaves_every_mode_as_it_was(
        self, micro_model: Path
    ):
        """A probe with dropout on would take every head for a strange one: [T, V] logits."""
        policy = enlarge_lora(micro_policy(micro_model, adapter="lora", lora_r=4, lora_dropout=0.5))
        policy.model.train()
        modes = [module.training for module in policy.model.modules()]
        torch.manual_seed(3)
        expected = torch.rand(1)
        torch.manual_seed(3)
        assert has_plain_head(policy.model.get_base_model(), token_batch()[0]) is True
        assert torch.equal(torch.rand(1), expected)
        assert [module.training for module in policy.model.modules()] == modes

    def test_full_fine_tuning_with_checkpointing_equals_without(self, micro_model: Path):
        plain = lora_gradients(micro_policy(micro_model))
        checked = lora_gradients(micro_policy(micro_model, gradient_checkpointing=True))
        for name, grad in plain.items():
            assert torch.allclose(grad, checked[name], rtol=1e-5, atol=1e-8), name

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

    def test_a_step_trains_the_adapter_and_leaves_the_base(
        self, micro_model: Path, short_world: Any
    ):
        policy = micro_policy(micro_model, adapter="lora", lora_r=4)
        base = {n: p.clone() for n, p in policy.model.named_parameters() if not p.requires_grad}
        stats = make_learner(policy).train_step(make_groups(play(policy, short_world)))
        assert stats["grad_norm"] > 0
        for name, parameter in policy.model.named_parameters():
            if not parameter.requires_grad:
                assert torch.equal(parameter, base[name])
        assert any((p != 0).any() for n, p in policy.model.named_parameters() if "lora_B" in n)


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


@pytest.fixture(scope="module")
def falcon_model(micro_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Falcon, whose layers read their dropout off the config."""
    config = FalconConfig(**TINY, hidden_dropout=0.3, attention_dropout=0.3)
    folder = tmp_path_factory.mktemp("falcon")
    return save_with_tokenizer(folder, micro_model, FalconForCausalLM, config)


class TestCheckpointedDropout:
    """Dropout before the ratio: it would differ from 1 before any update."""

    @pytest.mark.parametrize("model", ["opt_model", "falcon_model"])
    @pytest.mark.parametrize("adapter", ["full", "lora"])
    def test_log_probs_and_gradients_equal_those_without(
        self, model: str, adapter: str, request: pytest.FixtureRequest
    ):
        folder = request.getfixturevalue(model)
        logps, grads = [], []
        for is_on in (False, True):
            policy = micro_policy(folder, adapter=adapter, lora_r=4, gradient_checkpointing=is_on)
            if adapter == "lora":
                enlarge_lora(policy)
            with policy.updating():
                logps.append(token_logps(policy, *token_batch()).detach())
            grads.append(lora_gradients(policy))
        assert torch.allclose(logps[0], logps[1], rtol=0, atol=1e-6)
        assert any(grad.abs().max() > 1e-3 for grad in grads[0].values())
        assert grads[0].keys() == grads[1].keys()
        for name, plain in grads[0].items():
            assert torch.allclose(plain, grads[1][name], rtol=1e-4, atol=1e-7), name

    def test_backward_after_the_context_recomputes_the_same(self, opt_model: Path):
        policy = micro_policy(opt_model, gradient_checkpointing=True)
        inside = lora_gradients(policy)
        policy.model.zero_grad()
        with policy.updating():
            logp_N = token_logps(policy, *token_batch())
        (logp_N * torch.linspace(-1, 1, len(logp_N))).sum().backward()
        for name, parameter in policy.model.named_parameters():
            assert torch.allclose(parameter.grad, inside[name], rtol=1e-4, atol=1e-7), name

    def test_supervised_training_keeps_the_dropout(self, opt_model: Path):
        policy = micro_policy(opt_model, gradient_checkpointing=True)
        with policy.updating():
            still = token_logps(policy, *token_batch()).detach()
        policy.model.train()
        with torch.no_grad():
            assert (token_logps(policy, *token_batch()) - still).abs().max() > 1e-3


class TestReference:
    def test_with_lora_it_is_the_base_with_the_adapter_off(self, micro_model: Path):
        policy = enlarge_lora(micro_policy(micro_model, adapter="lora", lora_r=4))
        policy.keep_reference()
        assert policy._frozen is None  # no second copy of the weights
        base = micro_policy(micro_model, trainable=False)
        ids_BT, chosen_BT = token_batch()
        with torch.no_grad():
            reference = token_logps(policy, ids_BT, chosen_BT, reference=True)
            current = token_logps(policy, ids_BT, chosen_BT)
            expected = token_logps(base, ids_BT, chosen_BT)
        assert torch.allclose(reference, expected, atol=1e-6)
        assert (current - reference).abs().max() > 1e-2

    @pytest.mark.parametrize("adapter", ["full", "lora"])
    def test_kl_is_zero_before_the_first_update_and_positive_after(
        self, micro_model: Path, short_world: Any, adapter: str
    ):
        policy = micro_policy(micro_model, adapter=adapter, lora_r=4)
        groups = make_groups(play(policy, short_world))
        learner = make_learner(policy, beta=0.01)
        first, second = (learner.train_step(groups) for _ in range(2))
        assert first["kl"] == pytest.approx(0.0, abs=1e-9)
        assert second["kl"] > 1e-6

    def test_beta_zero_keeps_no_reference(self, micro_model: Path):
        policy = micro_policy(micro_model)
        make_learner(policy, beta=0.0)
        assert policy._frozen is None
        make_learner(policy, beta=0.1)
        frozen = policy._frozen
        assert frozen is not None and not any(p.requires_grad for p in frozen.parameters())


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
            rows, entropy, _ = policy.logps(
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


class TestWhereWeightsComeFrom:
    def test_auto_without_a_gpu_is_the_tiny_model_and_says_so(
        self, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr("searchrl.engine.model.loading._is_stored", lambda name: False)
        resolved = resolve_model("auto", CPU)
        assert resolved.is_tiny and resolved.path == str(TINY_PATH)
        assert "no GPU, and no local weights of Qwen/Qwen3-4B" in resolved.note
        assert resolve_model("auto", torch.device("cuda")).path == DEFAULT_MODEL
        monkeypatch.setattr("searchrl.engine.model.loading._is_stored", lambda name: True)
        assert resolve_model("auto", CPU).path == DEFAULT_MODEL

    def test_nothing_else_falls_back(self, monkeypatch: pytest.MonkeyPatch):
        assert resolve_model("some/model", CPU) == ResolvedModel("some/model", None, False)
        with pytest.raises(PolicyError, match="model folder './nowhere' does not exist"):
            resolve_model("./nowhere", CPU)

    def test_folder_without_a_model_says_what_was_expected(self, tmp_path: Path):
        with pytest.raises(PolicyError, match="holds no policy: expected config.json or adapter"):
            resolve_model(str(tmp_path), CPU)

    def test_newest_checkpoint_of_an_unfinished_run(self, tmp_path: Path):
        for step in (2, 10):
            policy = tmp_path / "checkpoints" / f"step_{step:06d}" / "policy"
            policy.mkdir(parents=True)
            (policy / "config.json").write_text('{"searchrl_tiny": true}')
        (tmp_path / "checkpoints" / ".step_000012.partial" / "policy").mkdir(parents=True)
        resolved = resolve_model("auto", CPU, init_from=str(tmp_path))
        assert resolved.path.endswith("step_000010/policy") and resolved.is_tiny

    def test_adapter_names_its_base(self, tmp_path: Path):
        (tmp_path / "adapter_config.json").write_text(
            json.dumps({"base_model_name_or_path": "some/base"})
        )
        resolved = resolve_model("auto", CPU, init_from=str(tmp_path))
        assert (resolved.path, resolved.adapter_path) == ("some/base", str(tmp_path))
        moved = resolve_model("other/base", CPU, init_from=str(tmp_path))
        assert moved.path == "other/base"

    def test_damaged_weights_say_so(self, tmp_path: Path, micro_model: Path):
        (tmp_path / "config.json").write_text((micro_model / "config.json").read_text())
        with pytest.raises(PolicyError, match="cannot load the model in .*weights"):
            load_policy(
                ModelConfig(), ResolvedModel(str(tmp_path), None, False), CPU, trainable=False
            )

    @pytest.mark.parametrize(
        ("name", "content", "match"),
        [
            ("config.json", b"{broken", "cannot read .*config.json.*copy or download it again"),
            ("config.json", b"[]", "config.json' holds list; expected a JSON object"),
            ("config.json", b"\xff\xfe", "cannot read .*config.json"),
            ("adapter_config.json", b"{broken", "cannot read .*adapter_config.json"),
            ("adapter_config.json", b"{}", "names no base model.*--init-from .* --model MODEL"),
            (
                "adapter_config.json",
                b'{"base_model_name_or_path": null}',
                "names no base model .base_model_name_or_path.",
            ),
        ],
    )
    def test_damaged_settings_beside_weights_are_named(
        self, tmp_path: Path, name: str, content: bytes, match: str
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(PolicyError, match=match):
            resolve_model(str(tmp_path), CPU)

    @pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
    def test_damaged_files_of_a_model_are_no_traceback(
        self, micro_model: Path, tmp_path: Path, name: str
    ):
        folder = tmp_path / "model"
        shutil.copytree(micro_model, folder)
        (folder / name).write_bytes(b'{"broken": 1}' if name == "tokenizer.json" else b"\xff" * 9)
        resolved = ResolvedModel(str(folder), None, False)
        with pytest.raises(PolicyError, match="cannot load the model in .*model'"):
            load_policy(ModelConfig(), resolved, CPU, trainable=False)

    def test_damaged_or_foreign_adapter_is_no_traceback(self, micro_model: Path, tmp_path: Path):
        policy = micro_policy(micro_model, adapter="lora", lora_r=4)
        policy.save(tmp_path / "adapter")
        other = save_qwen3(
            tmp_path / "other",
            micro_model,
            hidden_size=32,
            intermediate_size=48,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=16,
            vocab_size=300,
        )
        foreign = ResolvedModel(str(other), str(tmp_path / "adapter"), False)
        with pytest.raises(PolicyError, match="cannot load the adapter in .* onto .*other"):
            load_policy(ModelConfig(), foreign, CPU, trainable=False)
        (tmp_path / "adapter" / "adapter_model.safetensors").write_bytes(b"\xff" * 9)
        damaged = ResolvedModel(str(micro_model), str(tmp_path / "adapter"), False)
        with pytest.raises(PolicyError, match="(?s)cannot load the adapter .*--model"):
            load_policy(ModelConfig(), damaged, CPU, trainable=False)

    def test_a_new_model_cannot_be_loaded_and_nobody_is_sent_to_download_it(self):
        resolved = resolve_model("scratch", CPU)
        with pytest.raises(PolicyError, match="only `searchrl sft` makes") as caught:
            load_policy(ModelConfig(), resolved, CPU, trainable=True)
        assert "hf download" not in str(caught.value)

    def test_missing_weights_offline_say_what_to_do(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        with pytest.raises(PolicyError, match="--local-dir DIR.*--model DIR.*--model tiny"):
            load_policy(
                ModelConfig(), ResolvedModel("no-such/model-4b", None, False), CPU, trainable=False
            )

    def test_device_that_is_not_there(self):
        if torch.backends.mps.is_available():
            pytest.skip("this machine has it")
        with pytest.raises(PolicyError, match="device 'mps' is not available"):
            resolve_device("mps")

    def test_all_end_tokens_of_the_generation_config_end_a_turn(
        self, micro_model: Path, tmp_path: Path
    ):
        policy = micro_policy(micro_model)
        policy.model.generation_config.eos_token_id = [5, 6]
        policy.save(tmp_path / "model")
        assert micro_policy(tmp_path / "model").eos_ids == {0, 5, 6}

    def test_saving_and_loading_keeps_weights_and_tokens(self, micro_model: Path, tmp_path: Path):
        policy = enlarge_lora(micro_policy(micro_model, adapter="lora", lora_r=4))
        policy.save(tmp_path / "adapter")
        assert not list((tmp_path / "adapter").glob("model*.safetensors"))  # the adapter only
        resolved = resolve_model("auto", CPU, init_from=str(tmp_path / "adapter"))
        again = load_policy(ModelConfig(dtype="float32"), resolved, CPU, trainable=True)
        ids_BT, chosen_BT = token_batch()
        with torch.no_grad():
            before = token_logps(policy, ids_BT, chosen_BT)
            after = token_logps(again, ids_BT, chosen_BT)
        assert torch.equal(before, after)
        assert len(again.parameters) == len(policy.parameters)
        text = "<think>né 你好</think>\n<search>3</search>"
        assert again.renderer.encode_model_text(text) == policy.renderer.encode_model_text(text)
        assert again.tokenizer.chat_template == policy.tokenizer.chat_template


def test_qwen3_architecture_by_path_with_lora_does_two_steps(small_qwen3: Path, tmp_path: Path):
    check_two_lora_steps(small_qwen3, tmp_path / "run")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_qwen3_4b_shrunk_to_two_layers_with_the_real_tokenizer_does_two_steps(
    shared_data: Path, tmp_path: Path
):
    tokenizer = shared_data / "qwen_tokenizer" / "qwen3"
    check_two_lora_steps(save_qwen3(tmp_path / "m", tokenizer), tmp_path / "run")
    policy = micro_policy(tmp_path / "m", adapter="lora", lora_r=4)
    plain = lora_gradients(enlarge_lora(policy, 0.02))
    del policy
    checked = lora_gradients(
        enlarge_lora(
            micro_policy(tmp_path / "m", adapter="lora", lora_r=4, gradient_checkpointing=True),
            0.02,
        )
    )
    for name, grad in plain.items():
        assert grad.abs().max() > 0, name
        assert (grad - checked[name]).abs().max() <= 1e-5 * grad.abs().max(), name
