"""Loading: where weights come from, and what is said where they cannot be had."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_toy import lora_policy, micro_policy, token_batch, token_logps
from pytest import MonkeyPatch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from searchrl.config.sections import ModelConfig
from searchrl.engine.model import hub
from searchrl.engine.model.loading import (
    DEFAULT_MODEL,
    TINY_PATH,
    ResolvedModel,
    dtype_of,
    load_policy,
    lora_settings,
    resolve_device,
    resolve_model,
    wants_lora,
)
from searchrl.engine.model.policy import Policy
from searchrl.errors import PolicyError
from searchrl.run_folder.manifest import STATE, Manifest

CPU = torch.device("cpu")


def load(path: Path | str, adapter: Path | None = None, **model: Any) -> Policy:
    resolved = ResolvedModel(str(path), adapter and str(adapter), False)
    return load_policy(ModelConfig(**model), resolved, CPU, trainable=True)


def test_auto_without_a_gpu_is_the_tiny_model_and_says_so(monkeypatch: MonkeyPatch):
    monkeypatch.setattr("searchrl.engine.model.loading.is_stored", lambda name: False)
    resolved = resolve_model("auto", CPU)
    assert resolved.is_tiny and resolved.path == str(TINY_PATH)
    assert "no GPU, and no local weights of Qwen/Qwen3-4B" in "".join(resolved.notes)
    assert resolve_model("auto", torch.device("cuda")).path == DEFAULT_MODEL
    monkeypatch.setattr("searchrl.engine.model.loading.is_stored", lambda name: True)
    assert resolve_model("auto", CPU).path == DEFAULT_MODEL


def test_what_a_policy_is_made_of_follows_from_the_settings(monkeypatch: MonkeyPatch):
    with monkeypatch.context() as patch:
        patch.setattr("torch.cuda.is_available", lambda: True)
        assert [resolve_device(name).type for name in ("auto", "cpu")] == ["cuda", "cpu"]
    cuda, plain = torch.device("cuda"), ResolvedModel("some/base", None, False)
    kinds: Any = [("auto", cuda, False), ("auto", cuda, True), ("auto", CPU, False),
                  ("float16", CPU, False), ("bfloat16", cuda, True)]  # fmt: skip
    assert [dtype_of(ModelConfig(dtype=name), on, is_full=full) for name, on, full in kinds] == [
        torch.bfloat16, torch.float32, torch.float32, torch.float16, torch.bfloat16,
    ]  # fmt: skip
    tiny, adapted = plain._replace(is_tiny=True), plain._replace(adapter_path="a")
    assert wants_lora(ModelConfig(), plain, trainable=True)
    assert not wants_lora(ModelConfig(), plain, trainable=False)
    assert not wants_lora(ModelConfig(), tiny, trainable=True)
    assert wants_lora(ModelConfig(adapter="full"), adapted, trainable=False)
    asked = ModelConfig(lora_r=4, lora_alpha=7, lora_dropout=0.25)
    made = lora_settings(asked, plain, torch.nn.Linear(1, 1))
    assert (made.r, made.lora_alpha, made.lora_dropout) == (4, 7, 0.25)


def test_weights_that_could_not_be_trained_are_refused_and_still_sample(micro_model: Path):
    half = ModelConfig(dtype="float16", adapter="full")
    resolved = ResolvedModel(str(micro_model), None, False)
    with pytest.raises(PolicyError, match="would update weights in half precision"):
        load_policy(half, resolved, CPU, trainable=True)
    still = load_policy(half, resolved, CPU, trainable=False)
    assert still.dtype == torch.float16 and still.parameters == []


def test_newest_checkpoint_of_an_unfinished_run(tmp_path: Path):
    for step in (2, 10):
        policy = tmp_path / "checkpoints" / f"step_{step:06d}" / "policy"
        policy.mkdir(parents=True)
        (policy / "config.json").write_text('{"searchrl_tiny": true}')
        Manifest.of(policy.parent, {}).write(policy.parent / STATE)
    (tmp_path / "checkpoints" / ".step_000012.partial" / "policy").mkdir(parents=True)
    resolved = resolve_model("auto", CPU, init_from=str(tmp_path))
    assert resolved.path.endswith("step_000010/policy") and resolved.is_tiny


def test_adapter_names_its_base(tmp_path: Path):
    (tmp_path / "adapter_config.json").write_text(
        json.dumps({"base_model_name_or_path": "some/base"})
    )
    resolved = resolve_model("auto", CPU, init_from=str(tmp_path))
    assert (resolved.path, resolved.adapter_path) == ("some/base", str(tmp_path))
    moved = resolve_model("other/base", CPU, init_from=str(tmp_path))
    assert moved.path == "other/base"


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("config.json", b"{broken", "cannot read .*config.json"),
        ("config.json", b"[]", "config.json' holds list"),
        ("adapter_config.json", b"\xff\xfe", "cannot read .*adapter_config.json"),
        ("adapter_config.json", b"{}", "names no base model.*--init-from .* --model MODEL"),
    ],
)
def test_damaged_settings_beside_weights_are_named(
    tmp_path: Path, name: str, content: bytes, match: str
):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(PolicyError, match=match):
        resolve_model(str(tmp_path), CPU)
    (tmp_path / name).unlink()
    with pytest.raises(PolicyError, match="holds no policy"):
        resolve_model(str(tmp_path), CPU)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
def test_damaged_files_of_a_model_are_no_traceback(micro_model: Path, tmp_path: Path, name: str):
    folder = tmp_path / "model"
    shutil.copytree(micro_model, folder)
    (folder / name).write_bytes(b'{"broken": 1}' if name == "tokenizer.json" else b"\xff" * 9)
    with pytest.raises(PolicyError, match="cannot load the model in .*model'"):
        load(folder)


def test_damaged_or_foreign_adapter_is_no_traceback(
    micro_model: Path, small_qwen3: Path, tmp_path: Path
):
    lora_policy(micro_model).save(tmp_path / "adapter")
    with pytest.raises(PolicyError, match="cannot load the adapter in .* onto .*qwen3"):
        load(small_qwen3, tmp_path / "adapter")
    (tmp_path / "adapter" / "adapter_model.safetensors").write_bytes(b"\xff" * 9)
    with pytest.raises(PolicyError, match="(?s)cannot load the adapter .*--model"):
        load(micro_model, tmp_path / "adapter")


def change(path: Path, change_them: Callable[[dict[str, Any]], Any]) -> None:
    tensors = load_file(path)
    change_them(tensors)
    save_file(tensors, path, {"format": "pt"})


EMBEDDINGS, NORM = "model.embed_tokens.weight", "model.norm.weight"


NORM = "model.norm.weight"


@pytest.mark.parametrize(
    ("change_them", "match"),
    [
        (lambda w: w.pop(NORM), f"1 missing: {NORM}"),
        (lambda w: w.update(more=torch.ones(2)), "1 unknown: more"),
        (lambda w: w.update({NORM: torch.ones(3)}), f"1 misshapen: {NORM}"),
    ],
)
def test_a_model_is_never_completed_with_random_weights(
    micro_model: Path, tmp_path: Path, change_them: Callable[[dict[str, Any]], Any], match: str,
    caplog: pytest.LogCaptureFixture,
):  # fmt: skip
    """`eval` of a folder without embeddings gave figures of random ones, with status 0."""
    folder = shutil.copytree(micro_model, tmp_path / "model")
    change(folder / "model.safetensors", change_them)
    with pytest.raises(PolicyError, match=f"cannot load the model in '{folder}': .*{match}"):
        load(folder)
    assert not caplog.records, "said twice"


def test_a_head_is_missing_only_where_it_is_not_tied(micro_model: Path, tmp_path: Path):
    folder = shutil.copytree(micro_model, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    assert config["tie_word_embeddings"] and load(folder)
    config["tie_word_embeddings"] = False
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(PolicyError, match="1 missing: lm_head.weight"):
        load(folder)


@pytest.mark.parametrize(
    ("change_them", "match"),
    [
        (lambda w: w.pop(next(iter(w))), "1 missing: .*lora_A"),
        (lambda w: w.update(more=torch.ones(2)), "1 unknown: more"),
        (lambda w: w.update({next(iter(w)): torch.ones(3, 3)}), "size mismatch for .*lora_A"),
    ],
)
def test_an_adapter_is_never_completed_with_random_weights(
    micro_model: Path, tmp_path: Path, change_them: Callable[[dict[str, Any]], Any], match: str
):
    lora_policy(micro_model).save(tmp_path / "adapter")
    change(tmp_path / "adapter" / "adapter_model.safetensors", change_them)
    with pytest.raises(PolicyError, match=f"cannot load the adapter in .*{match}"):
        load(micro_model, tmp_path / "adapter")


@pytest.mark.parametrize("what", ["more tokens", "a gap", "before every text"])
def test_ids_that_have_no_embedding(micro_model: Path, tmp_path: Path, what: str):
    folder = shutil.copytree(micro_model, tmp_path / "grown")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    written = json.loads((folder / "tokenizer.json").read_text())
    if what == "more tokens":
        tokenizer.add_tokens([f"<more_{i}>" for i in range(4000)])
        tokenizer.save_pretrained(folder)
    elif what == "a gap":
        word = max(written["model"]["vocab"], key=written["model"]["vocab"].get)
        written["model"]["vocab"][word] += 1000
        written["model"]["merges"] = []
    elif what == "before every text":
        begin = {"id": "<b>", "ids": [1000], "tokens": ["<b>"]}
        single = [{"SpecialToken": {"id": "<b>", "type_id": 0}}]
        single.append({"Sequence": {"id": "A", "type_id": 0}})
        written["post_processor"] = {"type": "TemplateProcessing", "single": single, "pair": single,
                                     "special_tokens": {"<b>": begin}}  # fmt: skip
    if what != "more tokens":
        (folder / "tokenizer.json").write_text(json.dumps(written))
    with pytest.raises(PolicyError, match="ids up to .*resize_token_embeddings"):
        load(folder)


def test_a_new_model_cannot_be_loaded_and_nobody_is_sent_to_download_it():
    assert resolve_model("scratch", CPU).path == "scratch"
    with pytest.raises(PolicyError, match="only `searchrl sft` makes") as caught:
        load("scratch")
    assert "hf download" not in str(caught.value)


def test_missing_weights_offline_say_what_to_do(monkeypatch: MonkeyPatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(PolicyError, match="--local-dir DIR.*--model DIR.*--model tiny"):
        load("no-such/model-4b")


def test_all_end_tokens_of_the_generation_config_end_a_turn(micro_model: Path, tmp_path: Path):
    policy = micro_policy(micro_model)
    policy.model.generation_config.eos_token_id = [5, 6]
    policy.save(tmp_path / "model")
    assert micro_policy(tmp_path / "model").eos_ids == {0, 5, 6}


@pytest.mark.parametrize("quantize", ["none", "nf4"])
def test_saving_and_loading_keeps_weights_and_tokens(
    small_qwen3: Path, tmp_path: Path, quantize: str
):
    policy = lora_policy(small_qwen3, quantize=quantize)
    policy.save(tmp_path / "adapter")
    assert not list((tmp_path / "adapter").glob("model*.safetensors"))  # the adapter only
    resolved = resolve_model("auto", CPU, init_from=str(tmp_path / "adapter"))
    assert resolved.adapter_path is not None
    again = load(resolved.path, Path(resolved.adapter_path), dtype="float32", quantize=quantize)
    with torch.no_grad():
        before, after = (token_logps(one, *token_batch()) for one in (policy, again))
    assert torch.equal(before, after) and len(again.parameters) == len(policy.parameters)
    assert again.source == resolved.adapter_path
    config = ModelConfig(dtype="float32", quantize=quantize)
    assert load_policy(config, resolved, CPU, trainable=False).parameters == []
    text = "<think>né 你好</think>\n<search>3</search>"
    assert again.renderer.encode_model_text(text) == policy.renderer.encode_model_text(text)
    assert again.tokenizer.chat_template == policy.tokenizer.chat_template


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """The names that the hub was asked for; it knows `them/model` and is broken for `them/odd`."""
    import huggingface_hub
    from huggingface_hub.errors import RepositoryNotFoundError

    names: list[str] = []

    def model_info(self: Any, name: str, **more: Any) -> None:
        names.append(name)
        if name == "them/away":
            raise ConnectionError("Name or service not known\nmore")
        if name != "them/model":
            raise RepositoryNotFoundError.__new__(RepositoryNotFoundError)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    monkeypatch.chdir(tmp_path)
    hub._ask_hub.cache_clear()
    yield names
    hub._ask_hub.cache_clear()


@pytest.mark.parametrize(
    "name",
    ["runs/frist", "./first", "~/first", "/nowhere", "mine/frist"],
)
def test_a_name_that_can_only_be_a_path_is_never_looked_up(name: str, asked: list[str]) -> None:
    """`ask runs/frist` ended after a minute of retries."""
    Path("mine").mkdir()
    with pytest.raises(PolicyError, match="does not exist"):
        resolve_model(name, CPU)
    assert asked == []


def test_a_hub_id_is_asked_for_once_and_only_when_its_weights_are_needed(asked: list[str]) -> None:
    model = resolve_model("them/model", CPU)
    assert model.is_hub_id and asked == []
    for _ in range(3):
        hub.find_absence(model.path)
    assert asked == ["them/model"]


def test_absence_says_what_to_do(asked: list[str]) -> None:
    away = hub.find_absence("them/away")
    assert "out of reach (Name or service not known)" in away
    assert "hf download them/away --local-dir DIR" in away
    assert "there is no model 'frist'" in hub.find_absence("frist")
