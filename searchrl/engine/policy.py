"""The policy: model, tokenizer, adapter, device and reference.

Owns loading (hub id, local path, run folder, adapter, the embedded tiny model), LoRA, the one
forward pass that yields log-probs of chosen tokens, and the reference policy. It does not sample
(generators do) and does not optimise (the learner does). Shapes: B sequences, T tokens, N chosen
tokens, D hidden size, V vocabulary.
"""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils import logging as hf_logging

from searchrl.engine.rendering import Renderer
from searchrl.errors import PolicyError
from searchrl.sections import ModelConfig

DEFAULT_MODEL = "Qwen/Qwen3-4B"
SCRATCH = "scratch"
"""The model name that stands for a new model; nothing can be loaded under it."""

NO_SCRATCH = (
    "model 'scratch' is a new model that knows nothing, which only `searchrl sft` makes; train it "
    "there first, then name its run folder: --init-from RUN (or --model RUN)"
)
TINY_PATH = Path(__file__).resolve().parent.parent / "assets" / "tiny"


class ResolvedModel(NamedTuple):
    """Where the weights come from. `note` says so in one line when `auto` had to choose."""

    path: str
    adapter_path: str | None
    is_tiny: bool
    note: str = ""


def resolve_device(name: str) -> torch.device:
    """`auto`: cuda, then mps, then cpu.

    Raises:
        PolicyError: if a device is asked for that torch does not see.
    """
    available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if name == "auto":
        return torch.device(next(device for device, there in available.items() if there))
    if not available[name]:
        raise PolicyError(f"device '{name}' is not available to torch here; use --device auto")
    return torch.device(name)


def resolve_model(name: str, device: torch.device, init_from: str | None = None) -> ResolvedModel:
    """Find the weights a model name stands for.

    Args:
        name: `auto`, `tiny`, a local folder (model, adapter, checkpoint or run) or a hub id.
        device: `auto` resolves to the default model only where it can run or is already stored.
        init_from: a run folder, checkpoint or adapter whose weights replace those of `name`.

    Raises:
        PolicyError: if a folder holds no model.
    """
    if init_from is not None:
        return _resolve_folder(Path(init_from), base=None if name == "auto" else name)
    if name == "auto":
        if device.type == "cuda" or _is_stored(DEFAULT_MODEL):
            return ResolvedModel(DEFAULT_MODEL, None, False, f"model: auto → {DEFAULT_MODEL}")
        note = (
            f"model: auto → the embedded tiny model (no GPU, and no local weights of "
            f"{DEFAULT_MODEL}); choose another with --model"
        )
        return ResolvedModel(str(TINY_PATH), None, True, note)
    if name == "tiny":
        return ResolvedModel(str(TINY_PATH), None, True)
    if Path(name).is_dir():
        return _resolve_folder(Path(name), base=None)
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise PolicyError(
            f"model folder '{name}' does not exist; expected a Hugging Face model folder, a run "
            "folder, a hub id such as Qwen/Qwen3-4B, or 'tiny'"
        )
    return ResolvedModel(name, None, False)


def _is_stored(name: str) -> bool:
    """Whether a hub model's config is in the local cache."""
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(name, "config.json"), str)


def _resolve_folder(folder: Path, base: str | None) -> ResolvedModel:
    """A model, adapter, checkpoint or run folder."""
    candidates = [folder, folder / "policy"]
    if (folder / "checkpoints").is_dir():
        candidates += sorted((folder / "checkpoints").glob("step_*/policy"), reverse=True)
    for candidate in candidates:
        if (candidate / "adapter_config.json").is_file():
            adapter = candidate / "adapter_config.json"
            path = base or _read_settings(adapter).get("base_model_name_or_path")
            if not isinstance(path, str) or not path:
                raise PolicyError(
                    f"'{adapter}' names no base model (base_model_name_or_path); name the model "
                    f"it was trained on: --init-from {candidate} --model MODEL"
                )
            path = str(TINY_PATH) if path == "tiny" else path
            return ResolvedModel(path, str(candidate), Path(path) == TINY_PATH)
        if (candidate / "config.json").is_file():
            return ResolvedModel(str(candidate), None, _is_tiny_folder(candidate))
    raise PolicyError(
        f"'{folder}' holds no policy: expected config.json or adapter_config.json in it, in its "
        "policy/ or in its checkpoints/"
    )


def _is_tiny_folder(folder: Path) -> bool:
    """Whether a saved model descends from the embedded one (its config says so)."""
    return bool(_read_settings(folder / "config.json").get("searchrl_tiny", False))


def _read_settings(path: Path) -> dict[str, Any]:
    """A JSON object that lies beside weights."""
    try:
        settings = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise PolicyError(
            f"cannot read '{path}': {error}. Expected a JSON object; copy or download it again"
        ) from error
    if not isinstance(settings, dict):
        raise PolicyError(f"'{path}' holds {type(settings).__name__}; expected a JSON object")
    return settings


@dataclass(slots=True)
class Policy:
    """A loaded policy. `version` counts weight updates; samplers stamp it on what they draw."""

    model: Any
    tokenizer: PreTrainedTokenizerBase
    renderer: Renderer
    device: torch.device
    is_lora: bool
    is_tiny: bool
    source: str
    eos_ids: frozenset[int]
    is_checkpointing: bool = False
    """Whether activations are recomputed in the backward pass (gradient checkpointing)."""
    version: int = 0
    _frozen: Any = None
    _head_is_linear: bool | None = field(default=None, repr=False)

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The trainable parameters, in a fixed order."""
        return [p for p in self.model.parameters() if p.requires_grad]

    @property
    def num_parameters(self) -> tuple[int, int]:
        """(trainable, total) parameter counts."""
        total = sum(p.numel() for p in self.model.parameters())
        return sum(p.numel() for p in self.parameters), total

    @property
    def max_positions(self) -> int:
        """Longest sequence the model was made for."""
        return int(getattr(self.model.config, "max_position_embeddings", 1 << 30))

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Switch dropout and checkpointing off, and back to what was."""
        was_training = self.model.training
        self.model.eval()
        try:
            yield
        finally:
            self.model.train(was_training)

    @contextmanager
    def updating(self) -> Iterator[None]:
        """Evaluation mode, in which activations are checkpointed all the same.

        Dropout in a pass whose log-probs enter a ratio makes the ratio differ from 1 before any
        update; Hugging Face layers checkpoint only where their own flag says training.
        """
        self.model.eval()
        layers: list[Any] = [
            module
            for module in self.model.modules()
            if isinstance(module, GradientCheckpointingLayer) and module.gradient_checkpointing
        ]
        checkpoints = [layer._gradient_checkpointing_func for layer in layers]
        for layer, checkpoint in zip(layers, checkpoints, strict=True):
            layer.training = True
            layer._gradient_checkpointing_func = partial(_checkpoint_in_eval, layer, checkpoint)
        try:
            yield
        finally:
            for layer, checkpoint in zip(layers, checkpoints, strict=True):
                layer._gradient_checkpointing_func = checkpoint
            self.model.eval()

    def keep_reference(self) -> None:
        """Freeze a copy of the current weights as the reference (LoRA needs none)."""
        if not self.is_lora and self._frozen is None:
            self._frozen = copy.deepcopy(self.model).eval().requires_grad_(False)

    def token_logps(
        self,
        ids_BT: Tensor,
        chosen_BT: Tensor,
        *,
        temperature: float = 1.0,
        with_entropy: bool = False,
        reference: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Log-probs of chosen tokens given everything before them.

        Args:
            ids_BT: right-padded ids. Padding needs no mask: a causal model never looks ahead.
            chosen_BT: bool; True at the tokens wanted (never in column 0).
            temperature: logits are divided by it, as the sampler did.
            with_entropy: also return the entropy of each token's distribution (no gradient).
            reference: under the reference policy instead of the current one.

        Returns:
            (logp_N, entropy_N or None), fp32 nats, in row-major order of `chosen_BT`.
        """
        model, scope = self.model, nullcontext()
        if reference:
            model = self._frozen if self._frozen is not None else self.model
            scope = self.model.disable_adapter() if self.is_lora else nullcontext()
        with scope:
            logits_NV = self._chosen_logits(model, ids_BT, chosen_BT)
        # fp32: a bf16 log-prob has two digits, a ratio needs more.
        logp_NV = torch.log_softmax(logits_NV.float() / temperature, dim=-1)
        target_N = ids_BT[chosen_BT]
        entropy_N = None
        if with_entropy:
            with torch.no_grad():
                entropy_N = -(logp_NV.exp() * logp_NV).sum(dim=-1)
        return logp_NV.gather(1, target_N[:, None])[:, 0], entropy_N

    def chosen_logits(self, ids_BT: Tensor, chosen_BT: Tensor) -> Tensor:
        """Logits [N, V] that predict the chosen tokens, in row-major order of `chosen_BT`."""
        return self._chosen_logits(self.model, ids_BT, chosen_BT)

    def _chosen_logits(self, model: Any, ids_BT: Tensor, chosen_BT: Tensor) -> Tensor:
        """Logits at the rows that predict chosen tokens; [N, V], never [B, T, V] if avoidable."""
        rows_BT = torch.zeros_like(chosen_BT)
        rows_BT[:, :-1] = chosen_BT[:, 1:]
        base = model.get_base_model() if self.is_lora else model
        if self._head_is_linear is None:
            self._head_is_linear = _probe_head(base, ids_BT[:1, :4])
        if not self._head_is_linear:
            logits: Tensor = model(input_ids=ids_BT, use_cache=False).logits
            return logits[rows_BT]
        hidden_BTD = base.get_decoder()(input_ids=ids_BT, use_cache=False).last_hidden_state
        picked: Tensor = base.get_output_embeddings()(hidden_BTD[rows_BT])
        return picked

    def save(self, folder: Path) -> None:
        """Write model or adapter, and tokenizer, in Hugging Face layout."""
        hf_logging.disable_progress_bar()  # a scratch model never went through `load_policy`
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


def _checkpoint_in_eval(
    layer: nn.Module, checkpoint: Callable[..., Any], function: Callable[..., Any], *args: Any
) -> Any:
    """Checkpoint a layer whose own code sees evaluation mode, when it runs and when it reruns.

    A layer may read dropout rates off anything (its attributes, the config) once its flag says
    training, so it is the flag that has to change, not the rates.
    """

    def run(*inputs: Any) -> Any:
        was_training = layer.training
        layer.training = False
        try:
            return function(*inputs)
        finally:
            layer.training = was_training

    return checkpoint(run, *args)


def _probe_head(model: Any, ids_BT: Tensor) -> bool:
    """Whether logits are just output_embeddings(hidden): not so with soft-capping or scaling."""
    if model.get_output_embeddings() is None:
        return False
    # Without dropout: it would make the two passes differ, and use up random numbers. Flags are
    # put back one by one, because `updating` does not set them all alike.
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            full = model(input_ids=ids_BT, use_cache=False).logits
            hidden = model.get_decoder()(input_ids=ids_BT, use_cache=False).last_hidden_state
            return bool(torch.allclose(full, model.get_output_embeddings()(hidden), atol=1e-4))
    finally:
        for module, was_training in training.items():
            module.training = was_training


def load_policy(
    config: ModelConfig,
    resolved: ResolvedModel,
    device: torch.device,
    *,
    trainable: bool,
) -> Policy:
    """Load model and tokenizer and prepare them for sampling or training.

    Args:
        config: adapter, dtype and checkpointing.
        resolved: from `resolve_model`.
        device: from `resolve_device`.
        trainable: give the policy its adapter (LoRA) or all weights (full) to train.

    Raises:
        PolicyError: if weights or tokenizer cannot be read; says what to do.
    """
    if resolved.path == SCRATCH:
        raise PolicyError(NO_SCRATCH)
    dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}.get(
        config.dtype, torch.bfloat16 if device.type == "cuda" else torch.float32
    )
    # transformers draws its own progress bars on stderr; ours would be torn apart by them.
    hf_logging.disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(resolved.adapter_path or resolved.path)
        model: Any = AutoModelForCausalLM.from_pretrained(resolved.path, dtype=dtype)
    except Exception as error:  # each reader of these files has errors of its own
        raise PolicyError(_loading_help(resolved, error)) from error
    model.to(device)
    wants_lora = config.adapter == "lora" or (config.adapter == "auto" and not resolved.is_tiny)
    is_lora = resolved.adapter_path is not None or (trainable and wants_lora)
    with warnings.catch_warnings():
        # transformers renames checkpointing from 5.2x on; we (and peft) use the name that every
        # supported version has.
        warnings.filterwarnings("ignore", ".*gradient_checkpointing.* is deprecated")
        if is_lora:
            model = _with_lora(model, config, resolved, trainable)
        elif not trainable:
            model.requires_grad_(False)
        if trainable and config.gradient_checkpointing:
            base = model.get_base_model() if is_lora else model
            base.gradient_checkpointing_enable({"use_reentrant": False})
            if is_lora:
                # Without this the frozen embedding cuts the graph: zero gradients, silently.
                base.enable_input_require_grads()
    model.eval()
    eos = model.generation_config.eos_token_id if model.generation_config else None
    eos_ids = {eos} if isinstance(eos, int) else set(eos or ())
    if tokenizer.eos_token_id is not None:
        eos_ids.add(tokenizer.eos_token_id)
    return Policy(
        model=model,
        tokenizer=tokenizer,
        renderer=Renderer(tokenizer),
        device=device,
        is_lora=is_lora,
        is_tiny=resolved.is_tiny,
        source=resolved.adapter_path or resolved.path,
        eos_ids=frozenset(eos_ids),
        is_checkpointing=trainable and config.gradient_checkpointing,
    )


def _with_lora(model: Any, config: ModelConfig, resolved: ResolvedModel, trainable: bool) -> Any:
    """Wrap with a new adapter on all linear layers of the blocks, or load a saved one."""
    from peft import LoraConfig, PeftModel, get_peft_model

    if resolved.adapter_path is not None:
        try:
            return PeftModel.from_pretrained(model, resolved.adapter_path, is_trainable=trainable)
        except Exception as error:  # as above: JSON, safetensors, shapes of another base, …
            raise PolicyError(
                f"cannot load the adapter in '{resolved.adapter_path}' onto '{resolved.path}': "
                f"{_first_line(error)}\nExpected adapter_config.json and adapter_model.safetensors "
                "of that base model; name another base with --model"
            ) from error
    settings = LoraConfig(
        r=config.lora_r,
        lora_alpha=config.lora_alpha,
        lora_dropout=config.lora_dropout,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    return get_peft_model(model, settings)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else repr(error)


def _loading_help(resolved: ResolvedModel, error: Exception) -> str:
    first_line = _first_line(error)
    if Path(resolved.path).is_dir():
        return (
            f"cannot load the model in '{resolved.path}': {first_line}\n"
            "Expected a Hugging Face folder with config.json, weights (*.safetensors) and a "
            "tokenizer."
        )
    return (
        f"cannot get the weights of '{resolved.path}': {first_line}\n"
        f"If this machine is offline, download them elsewhere (hf download {resolved.path} "
        "--local-dir DIR) and pass --model DIR; or use the embedded model: --model tiny"
    )
