"""Models from strangers: what the settings beside weights may ask for, which is no code.

transformers and peft read names of modules, kernels of the hub and expressions from these files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from searchrl.errors import PolicyError

MAX_LAYERS = 1000
"""Layers of a model: the largest have less than 200, and a false number takes hours to build."""

_INITIAL = (True, False, None, "gaussian", "orthogonal")
"""Values of `init_lora_weights` that are allowed: others compute for long, or read files."""

_REFUSED = {
    "megatron_config": "imports a module that the file names",
    "layer_replication": "copies layers of the model",
}
"""Settings of an adapter that are not just data, and what each does."""


def read_settings(path: Path) -> dict[str, Any]:
    """The JSON object in a file next to weights.

    Raises:
        PolicyError: if it cannot be read.
    """
    try:
        settings = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise PolicyError(
            f"cannot read '{path}': {error}. Expected a JSON object; copy or download it again"
        ) from error
    if not isinstance(settings, dict):
        raise PolicyError(f"'{path}' holds {type(settings).__name__}; expected a JSON object")
    return settings


def ensure_plain_adapter(folder: str | Path) -> None:
    """Raise `PolicyError` if an adapter is no LoRA, or its settings ask for more than weights."""
    path = Path(folder) / "adapter_config.json"
    if not path.is_file():
        return  # an adapter on the hub is never a run's; peft says what is missing
    settings = read_settings(path)
    reason = ""
    if settings.get("peft_type") != "LORA":
        reason = f"peft_type is {settings.get('peft_type')!r}; expected 'LORA'"
    elif settings.get("init_lora_weights", True) not in _INITIAL:
        reason = (
            f"init_lora_weights is {settings['init_lora_weights']!r}; save the adapter with plain "
            "weights (true)"
        )
    for key, what in _REFUSED.items():
        if settings.get(key):
            reason = f"{key} {what}; take it out"
    if reason:
        raise PolicyError(f"'{path}' is not loaded: {reason}")


def ensure_plain_model(path: str, *, is_offline: bool = False) -> None:
    """Look at the config of a model as it is written, before anything is made of it.

    Args:
        path: a folder or a hub id.
        is_offline: ask no hub.

    Raises:
        PolicyError: if it names code to fetch, or layers that no model has.
        OSError, ValueError: if it cannot be read.
    """
    from transformers import PreTrainedConfig

    settings, _ = PreTrainedConfig.get_config_dict(path, local_files_only=is_offline)
    for key, value in _flatten(settings):
        if key.endswith("_implementation") and isinstance(value, str) and "/" in value:
            raise PolicyError(
                f"the config.json of '{path}' names code on the hub ({key} = {value}), which is "
                "not fetched; take it out of the file"
            )
        if "layers" in key and isinstance(value, int) and value > MAX_LAYERS:
            raise PolicyError(
                f"the config.json of '{path}' is damaged: it says {key} = {value:,}, and no model "
                f"has more than {MAX_LAYERS:,}"
            )


def _flatten(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """All keys with their values; those of an inner mapping have the key of the mapping, too."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{key}_implementation" if "implementation" in key else "")
        else:
            yield above or key, value
