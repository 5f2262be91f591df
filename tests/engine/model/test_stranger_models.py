"""Models of strangers: what their files ask for besides weights is refused before it is done."""

import ast
import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from searchrl.config.sections import ModelConfig
from searchrl.engine.model.foreign import ensure_plain_model
from searchrl.engine.model.loading import load_policy, resolve_model
from searchrl.errors import PolicyError

CPU = torch.device("cpu")
PACKAGE = Path(__file__).resolve().parents[3] / "searchrl"


@pytest.fixture
def model(micro_model: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    shutil.copytree(micro_model, folder)
    return folder


def edit(folder: Path, name: str = "config.json", **changes: Any) -> None:
    path = folder / name
    settings = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps({**settings, **changes}))


def load(folder: Path) -> None:
    load_policy(ModelConfig(), resolve_model(str(folder), CPU), CPU, trainable=False)


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_code_of_a_model_never_runs_and_nobody_is_asked(
    name: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("builtins.input", lambda text="": asked.append(text) or "y")
    (model / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    kinds = ("AutoConfig", "AutoModelForCausalLM")
    auto = {**dict.fromkeys(kinds, "evil.E"), "AutoTokenizer": ["evil.E", "evil.E"]}
    edit(model, name, auto_map=auto, model_type="evil", tokenizer_class="Evil")
    with suppress(PolicyError):  # a tokenizer can do without its code
        load(model)
    assert not asked and not (tmp_path / "ran").exists()


def test_remote_code_is_refused_wherever_something_is_loaded() -> None:
    """Unset, transformers asks on standard input, and an answer decides."""
    loaders = ("AutoTokenizer", "AutoModelForCausalLM", "AutoConfig")
    calls = [
        (f"{path}:{node.lineno}", {word.arg: ast.unparse(word.value) for word in node.keywords})
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("from_pretrained", "from_config")
        and ast.unparse(node.func.value) in loaders
    ]
    assert len(calls) >= 5
    assert not [where for where, words in calls if words.get("trust_remote_code") != "False"]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"attn_implementation": "evil/kernel"}, "names code on the hub"),
        ({"attn_implementation": {"": "evil/kernel"}}, "names code on the hub"),
        ({"text_config": {"experts_implementation": "evil/kernel"}}, "names code on the hub"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers = 1,000,000,000"),
    ],
)
def test_config_that_is_more_than_data(changes: dict[str, Any], fault: str, model: Path) -> None:
    edit(model, **changes)
    with pytest.raises(PolicyError, match=fault):
        ensure_plain_model(str(model))


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"peft_type": "PROMPT_TUNING"}, "expected 'LORA'"),
        ({"peft_type": "LORA", "megatron_config": {"a": 1}}, "imports a module"),
        ({"peft_type": "LORA", "layer_replication": [[0, 10**9]]}, "copies layers"),
        ({"peft_type": "LORA", "init_lora_weights": "pissa_niter_99999"}, "init_lora_weights"),
    ],
)
def test_adapter_that_is_more_than_weights(
    settings: dict[str, Any], fault: str, model: Path, tmp_path: Path
) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    edit(adapter, "adapter_config.json", base_model_name_or_path=str(model), **settings)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(model / name, adapter)
    save_file({"x": torch.zeros(1)}, adapter / "adapter_model.safetensors")
    with pytest.raises(PolicyError, match=fault):
        load(adapter)
