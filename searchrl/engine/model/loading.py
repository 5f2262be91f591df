"""Loading: from a model name to a policy, ready to sample or to be trained.

Owns where weights come from (hub id, local path, run folder, adapter, the embedded tiny model),
their dtype and device, and the adapter around them. What a policy then does is `policy`.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.pytorch_utils import Conv1D
from transformers.utils import logging as hf_logging

from searchrl.config.packaged import EMBEDDED, find_packaged, is_packaged
from searchrl.config.sections import SCRATCH, ModelConfig
from searchrl.engine.model.foreign import (
    ensure_plain_adapter,
    ensure_plain_model,
    read_settings,
)
from searchrl.engine.model.hub import find_absence, is_path, is_stored, without_network
from searchrl.engine.model.policy import Policy
from searchrl.engine.model.quantization import even_out, first_line, hush_bitsandbytes, nf4_settings
from searchrl.engine.model.rendering import Renderer
from searchrl.errors import PolicyError, suggest, suggest_path
from searchrl.run_folder import Run, choose_policy, is_policy_of_run

DEFAULT_MODEL = "Qwen/Qwen3-4B"

NO_SCRATCH = (
    "model 'scratch' is a new model that knows nothing, which only `searchrl sft` makes; train it "
    "there first, then name its run folder: --init-from RUN (or --model RUN)"
)
NO_HALF_WEIGHTS = (
    "model.dtype 'float16' with full fine-tuning would update weights in half precision, where "
    "most updates round to nothing; use model.adapter: lora (its weights are float32), or dtype "
    "bfloat16 or float32"
)
NO_FOUR_BIT_TRAINING = (
    "model.quantize 'nf4' freezes the weights it quantises, so there is nothing for full "
    "fine-tuning to train: use model.adapter: lora, or model.quantize: none"
)
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
ADAPTER_WEIGHTS = "adapter_model.safetensors"
TINY_PATH = Path(__file__).resolve().parents[2] / "assets" / "tiny"


class ResolvedModel(NamedTuple):
    """Paths of the weights.

    `notes`: what `auto` chose, and which weights were damaged and passed over.
    """

    path: str
    adapter_path: str | None
    is_tiny: bool
    notes: tuple[str, ...] = ()
    embedded: str = ""
    """The name of the policy if a package brings it: `package:folder`."""

    @property
    def is_hub_id(self) -> bool:
        """True if the weights are on the hub."""
        return self.path != SCRATCH and not os.path.isdir(self.path)

    @property
    def label(self) -> str:
        """The model as a person knows it: `tiny (embedded, 1.0 M weights)`, else the path."""
        base, path = self.path, Path(self.path)
        if path == TINY_PATH or self.embedded:
            with safe_open(path / "model.safetensors", "numpy") as weights:
                shapes = [weights.get_slice(key).get_shape() for key in weights.keys()]  # noqa: SIM118
            name = "tiny" if path == TINY_PATH else self.embedded
            base = f"{name} (embedded, {sum(map(math.prod, shapes)) / 1e6:.1f} M weights)"
        return f"{base} with adapter {self.adapter_path}" if self.adapter_path else base


def resolve_device(name: str) -> torch.device:
    """`auto`: cuda, then mps, then cpu.

    Raises:
        PolicyError: if a device is asked for that torch does not see.
    """
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    available = [*(gpu for gpu in there if there[gpu]), "cpu"]
    if name not in ("auto", *available):
        raise PolicyError(f"device '{name}' is not available to torch here; use --device auto")
    return torch.device(available[0] if name == "auto" else name)


def resolve_model(name: str, device: torch.device, init_from: str | None = None) -> ResolvedModel:
    """Find the weights a model name stands for.

    Args:
        name: `auto`, `tiny`, a local folder (model, adapter, checkpoint or run), a hub id, or an
            embedded policy, `package:folder`.
        device: `auto` resolves to the default model only where it can run or is already stored.
        init_from: a run folder, checkpoint or adapter whose weights replace those of `name`.

    Raises:
        PolicyError: if a folder holds no model.
    """
    if init_from is not None:
        return _resolve_folder(Path(init_from), base=None if name == "auto" else name)
    if name == "auto":
        if device.type == "cuda" or is_stored(DEFAULT_MODEL):
            return ResolvedModel(DEFAULT_MODEL, None, False, (f"model: auto → {DEFAULT_MODEL}",))
        note = (
            f"model: auto → the embedded tiny model (no GPU, and no local weights of "
            f"{DEFAULT_MODEL}); choose another with --model"
        )
        return ResolvedModel(str(TINY_PATH), None, True, (note,), EMBEDDED)
    if name == "tiny":
        return ResolvedModel(str(TINY_PATH), None, True, embedded=EMBEDDED)
    if os.path.isdir(name):
        return _resolve_folder(Path(name), base=None)
    if is_packaged(name):
        return _resolve_folder(_find_embedded(name), base=None)._replace(embedded=name)
    if is_path(name):
        raise PolicyError(
            f"model folder '{name}' does not exist; expected a Hugging Face model folder, a run "
            f"folder, a hub id such as Qwen/Qwen3-4B, or 'tiny'.{suggest_path(name)}"
        )
    return ResolvedModel(name, None, False)


def _find_embedded(name: str) -> Path:
    """The folder of a policy that a package brings. Raises `PolicyError` if it is not here."""
    if (packaged := find_packaged(name)) is not None and packaged.is_dir():
        return packaged
    package, _, folder = name.partition(":")
    raise PolicyError(
        f"there is no model '{name}': no folder '{folder}' in an installed package '{package}'. "
        "Install that package, or name a model folder, a hub id such as Qwen/Qwen3-4B, or 'tiny'"
    )


def _resolve_folder(folder: Path, base: str | None) -> ResolvedModel:
    """A model, adapter, checkpoint or run folder; of a run the newest weights that are whole."""
    Run.find(folder)  # one that is no plain folder is refused
    chosen = choose_policy(folder)
    if chosen is not None:
        place, notes = chosen
        if not os.path.isfile(place / "adapter_config.json"):
            return ResolvedModel(str(place), None, _is_tiny(place), notes)
        path, of_base = _find_base(place, base)
        return ResolvedModel(path, str(place), _is_tiny(Path(path)), (*notes, *of_base))
    if not os.path.isdir(folder):
        raise PolicyError(
            f"there is no folder '{folder}'; expected a run, a checkpoint or an adapter."
            f"{suggest_path(folder)}"
        )
    raise PolicyError(
        f"'{folder}' holds no policy: expected config.json or adapter_config.json in it, in its "
        "policy/ or in its checkpoints/"
    )


def _find_base(adapter: Path, base: str | None) -> tuple[str, tuple[str, ...]]:
    """The base of an adapter, as it is named now or in its settings, and what to say of it."""
    settings = adapter / "adapter_config.json"
    path = base or read_settings(settings).get("base_model_name_or_path")
    if not isinstance(path, str) or not path:
        raise PolicyError(
            f"'{settings}' names no base model (base_model_name_or_path); name the model "
            f"it was trained on: --init-from {adapter} --model MODEL"
        )
    if path == "tiny":
        return str(TINY_PATH), ()
    if is_packaged(path) and not os.path.isdir(path):
        return str(_find_embedded(path)), ()
    if os.path.isdir(path):
        resolved = _resolve_folder(Path(path), base=None)  # the base may be a run
        return resolved.path, resolved.notes
    return path, ()


def _is_tiny(folder: Path) -> bool:
    """Read off the config whether a model is the embedded one or was trained from it."""
    config = folder / "config.json"
    return os.path.isfile(config) and bool(read_settings(config).get("searchrl_tiny"))


def dtype_of(config: ModelConfig, device: torch.device, *, is_full: bool) -> torch.dtype:
    """The dtype that weights are loaded in; `is_full`: all of them are trained."""
    default = torch.bfloat16 if device.type == "cuda" and not is_full else torch.float32
    return _DTYPES.get(config.dtype, default)


def wants_lora(config: ModelConfig, resolved: ResolvedModel, *, trainable: bool) -> bool:
    """Return whether the policy has an adapter: a saved one, or a new one to train."""
    is_asked = config.adapter == "lora" or (config.adapter == "auto" and not resolved.is_tiny)
    return resolved.adapter_path is not None or (trainable and is_asked)


def lora_settings(config: ModelConfig, resolved: ResolvedModel, model: Any) -> Any:
    """The settings of the adapter on `model`: of the saved one, or those of a new one.

    Raises:
        OSError, ValueError: if the saved one's cannot be read.
        PolicyError: if the model has no layer of a name in `lora_targets`.
    """
    hush_bitsandbytes()
    from peft import LoraConfig, PeftConfig

    if resolved.adapter_path is not None:
        ensure_plain_adapter(resolved.adapter_path)
        return PeftConfig.from_pretrained(resolved.adapter_path)
    _ensure_layers(model, config.lora_targets or ())
    return LoraConfig(
        r=config.lora_r,
        lora_alpha=config.lora_alpha,
        lora_dropout=config.lora_dropout,
        target_modules="all-linear" if config.lora_targets is None else list(config.lora_targets),
        task_type="CAUSAL_LM",
    )


def _ensure_layers(model: Any, targets: Sequence[str]) -> None:
    """Refuse a name that no linear layer ends in: peft ignores it if others are found."""
    named = [name for name, m in model.named_modules() if isinstance(m, torch.nn.Linear | Conv1D)]
    for target in targets:
        if not any(name == target or name.endswith(f".{target}") for name in named):
            known = {name.rpartition(".")[2] for name in named}
            raise PolicyError(
                f"model.lora_targets: the model has no linear layer '{target}'."
                + suggest(target, known)
            )


def load_policy(
    config: ModelConfig,
    resolved: ResolvedModel,
    device: torch.device,
    *,
    trainable: bool,
    is_to_shard: bool = False,
) -> Policy:
    """Load model and tokenizer and prepare them for sampling or training.

    With `trainable`, the policy has its adapter (LoRA) or all weights (full) to train. With
    `is_to_shard`, weights stay in main memory: `Policy.shard` moves each process's part.

    Raises:
        PolicyError: if weights or tokenizer cannot be read; says what to do.
    """
    if resolved.path == SCRATCH:
        raise PolicyError(NO_SCRATCH)
    if resolved.is_hub_id and (absence := find_absence(resolved.path)):
        raise PolicyError(absence)
    device = torch.empty(0, device=device).device  # numbered: a new thread is at the first GPU
    is_lora = wants_lora(config, resolved, trainable=trainable)
    dtype = dtype_of(config, device, is_full=trainable and not is_lora)
    if trainable and not is_lora and dtype == torch.float16:
        raise PolicyError(NO_HALF_WEIGHTS)
    if trainable and not is_lora and config.quantize == "nf4":
        raise PolicyError(NO_FOUR_BIT_TRAINING)
    settings: dict[str, Any] = {}
    if config.quantize == "nf4":
        settings = {"quantization_config": nf4_settings(dtype), "device_map": {"": device}}
    # transformers draws progress bars of its own on stderr, which would break ours.
    hf_logging.disable_progress_bar()
    verbosity = hf_logging.get_verbosity()
    hf_logging.set_verbosity_error()  # what is wrong with tensors is said once, by us
    try:
        # First: the tokenizer's reader reads the model's config, too.
        ensure_plain_model(resolved.path)
        if resolved.adapter_path and (Path(resolved.adapter_path) / "config.json").is_file():
            ensure_plain_model(resolved.adapter_path)
        tokenizer = AutoTokenizer.from_pretrained(
            resolved.adapter_path or resolved.path, trust_remote_code=False
        )
        if is_policy_of_run(Path(resolved.path)):
            settings["use_safetensors"] = True  # no run writes a pickle
        # With the sizes "ignored", it tells which tensors they are of.
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            resolved.path,
            dtype=dtype,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **settings,
        )
        model, read = loaded
        misshapen = [key for key, *_ in read["mismatched_keys"]]
        what = f"the model in '{resolved.path}'"
        _ensure_read(what, read["missing_keys"], read["unexpected_keys"], misshapen)
    except PolicyError:
        raise
    except Exception as error:  # each reader of these files has errors of its own
        reason = first_line(error)
        if not os.path.isdir(resolved.path):
            raise PolicyError(without_network(resolved.path, reason)) from error
        raise PolicyError(
            f"cannot load the model in '{resolved.path}': {reason}\n"
            "Expected a Hugging Face folder with config.json, weights (*.safetensors) and a "
            "tokenizer."
        ) from error
    finally:
        hf_logging.set_verbosity(verbosity)
    ends = model.get_input_embeddings(), model.get_output_embeddings()
    rows = min(len(end.weight) for end in ends)
    # Ids may have gaps, and what is put before every text need not be in the vocabulary.
    largest = max(*tokenizer.get_vocab().values(), *tokenizer("a").input_ids)
    if largest >= rows:
        raise PolicyError(
            f"model '{resolved.path}' has {rows:,} embeddings, and its tokenizer gives ids up to "
            f"{largest:,}: put the right tokenizer into the folder, or resize the model "
            "(`resize_token_embeddings`) and save it again"
        )
    if config.quantize == "nf4":
        even_out(model)
    elif not is_to_shard:
        model.to(device)
    with warnings.catch_warnings():
        # transformers renames it from 5.2x on; we and peft use the name that all versions have.
        warnings.filterwarnings("ignore", ".*gradient_checkpointing.* is deprecated")
        warnings.filterwarnings("ignore", "(?s).*tie_word_embeddings")  # `export` unties them
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
    eos_ids = {tokenizer.eos_token_id, *(eos if isinstance(eos, list) else [eos])} - {None}
    return Policy(
        model=model,
        tokenizer=tokenizer,
        renderer=Renderer(tokenizer),
        device=device,
        is_lora=is_lora,
        source=resolved.adapter_path or resolved.path,
        eos_ids=frozenset(eos_ids),
    )


def _with_lora(model: Any, config: ModelConfig, resolved: ResolvedModel, trainable: bool) -> Any:
    hush_bitsandbytes()
    from peft import PeftModelForCausalLM, get_peft_model

    if resolved.adapter_path is not None:
        if not (Path(resolved.adapter_path) / ADAPTER_WEIGHTS).is_file():
            # peft would read a pickle instead, or ask a hub.
            raise PolicyError(
                f"'{resolved.adapter_path}' has no {ADAPTER_WEIGHTS}, and pickled weights are not "
                "read: copy or download it again, or have its author save it as safetensors"
            )
        what = f"the adapter in '{resolved.adapter_path}' onto '{resolved.path}'"
        try:
            adapter = lora_settings(config, resolved, model)
            adapter.inference_mode = not trainable
            wrapped = PeftModelForCausalLM(model, adapter)
            told = wrapped.load_adapter(
                resolved.adapter_path, wrapped.active_adapter, is_trainable=trainable
            )
        except PolicyError:
            raise
        except Exception as error:  # as above: JSON, safetensors, shapes of another base, …
            reason = " ".join(str(error).split("\n", 2)[:2]) or repr(error)
            raise PolicyError(
                f"cannot load {what}: {reason}\nExpected adapter_config.json and "
                "adapter_model.safetensors of that base model; name another base with --model"
            ) from error
        _ensure_read(what, told.missing_keys, told.unexpected_keys)
        return wrapped
    return get_peft_model(model, lora_settings(config, resolved, model))


def _ensure_read(
    what: str, missing: Iterable[str], unknown: Iterable[str], misshapen: Iterable[str] = ()
) -> None:
    """Raise `PolicyError` with the tensors that files lack, have besides, or in another shape.

    Their readers take what fits and leave random numbers in place of the rest.
    """
    kinds = {"missing": sorted(missing), "unknown": sorted(unknown), "misshapen": sorted(misshapen)}
    faults = [
        f"{len(names)} {kind}: {', '.join(names[:5])}{', …' if len(names) > 5 else ''}"
        for kind, names in kinds.items()
        if names
    ]
    if faults:
        raise PolicyError(
            f"cannot load {what}: of its tensors {'; '.join(faults)}. Copy or download it again, "
            "or put the config.json beside it that it was saved with (of an adapter: name its base "
            "with --model)"
        )
