"""A policy whose weights are here, asked for a text: a run, the folder of a model, `tiny`.

Owns which names those are, and how such a model answers: greedily, one prompt at a time, so that
the same weights always write the same. It is not the engine of training: an answer has no ledger
and is never trained.
"""

from __future__ import annotations

import hashlib
import threading
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from searchrl import ConfigError, PolicyError, choose_policy, suggest_path
from searchrl_control.reformulate.writer import MAX_TOKENS, Ask

_TINY = "tiny"
_SCRIPTED = "scripted"


class Weights(NamedTuple):
    """A model that can be asked; `key` says which weights it has."""

    ask: Ask
    key: str


def load_weights(name: str) -> Weights:
    """A policy that writes texts.

    Args:
        name: a run or a checkpoint, the folder of a model, or `tiny`, the small model that comes
            with SearchRL and has learned no such task. A model of a hub is downloaded first.

    Raises:
        ConfigError: there are no such weights, or what is named writes no text.
        PolicyError: they cannot be loaded.
        DamagedError: those of a run are not whole.
    """
    folder = _find_folder(name)
    asked = _Model(folder)
    return Weights(asked.ask, f"weights:{_fingerprint(folder)}")


def _find_folder(name: str) -> Path:
    if name.partition(":")[0] == _SCRIPTED:
        raise ConfigError(
            f"'{name}' replays the tasks of its own environment and writes no other text; name a "
            "run, the folder of a model, or a server (env.reformulator=endpoint)"
        )
    if name.startswith("endpoint:"):
        raise ConfigError(
            f"'{name}' is a server: --set env.reformulator=endpoint --set env.url=ADDRESS "
            "--set env.endpoint_model=NAME"
        )
    embedded = Path(str(files("searchrl"))) / "assets" / "tiny"
    path = embedded if name == _TINY else Path(name).expanduser()
    chosen = choose_policy(path) if path.is_dir() else None
    if chosen is None:
        raise ConfigError(
            f"there are no weights at '{name}'; expected a run, the folder of a model, or tiny."
            f"{suggest_path(path)} A model of a hub is downloaded first: hf download {name}"
        )
    return chosen.folder


def _fingerprint(folder: Path) -> str:
    """SHA-256 of the files of weights: what was answered by others is not taken for theirs."""
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        digest.update(file.name.encode())
        with file.open("rb") as stream:
            while part := stream.read(1 << 20):
                digest.update(part)
    return digest.hexdigest()


class _Model:
    """Weights, loaded when they are first asked: what is kept on disk needs none."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._loaded: tuple[Any, Any] | None = None

    def ask(self, prompt: str) -> str:
        """What the model writes of a prompt."""
        import torch

        # One prompt at a time: the answers of a batch depend on who stands beside whom.
        with self._lock, torch.inference_mode():
            tokenizer, model = self._load()
            if tokenizer.chat_template:
                said = [{"role": "user", "content": prompt}]
                text = tokenizer.apply_chat_template(
                    said, tokenize=False, add_generation_prompt=True, enable_thinking=False
                )
            else:
                text = f"{prompt}\n"
            asked = tokenizer(text, return_tensors="pt", add_special_tokens=False)
            ids = asked["input_ids"].to(model.device)
            made = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=MAX_TOKENS,
                pad_token_id=tokenizer.pad_token_id or tokenizer.eos_token_id,
            )
            return str(tokenizer.decode(made[0, ids.shape[1] :], skip_special_tokens=True))

    def _load(self) -> tuple[Any, Any]:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        if self._loaded is None:
            device = "mps" if torch.backends.mps.is_available() else "cpu"
            device = "cuda" if torch.cuda.is_available() else device
            try:
                # Of an adapter, transformers loads the model below it as well.
                model: Any = AutoModelForCausalLM.from_pretrained(
                    self._folder, use_safetensors=True
                )
                tokenizer = AutoTokenizer.from_pretrained(self._folder)
            except (OSError, ValueError, KeyError, ImportError) as error:
                raise PolicyError(
                    f"the model in '{self._folder}' cannot be loaded: {error}"
                ) from error
            self._loaded = (tokenizer, model.to(device).eval())
        return self._loaded
