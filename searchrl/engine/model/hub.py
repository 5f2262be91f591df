"""Models on the Hugging Face hub: whether their weights are here or can be fetched, known at once.

Without one short question to the hub, a wrong name or a machine without network is found after a
minute of retries. Loads nothing.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from searchrl.engine.model.quantization import first_line

_WAIT_S = 10.0
"""Seconds that the hub may take to answer."""
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")


def is_stored(name: str) -> bool:
    """Return whether config and weights of a hub model are in the local cache."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        config, *weights = (try_to_load_from_cache(name, f) for f in ("config.json", *_WEIGHTS))
    except HFValidationError:
        return False
    return isinstance(config, str) and any(isinstance(path, str) for path in weights)


def is_path(name: str) -> bool:
    """Return whether a name can only be a path, which is never looked up on a hub."""
    parts = Path(name).parts
    if name.startswith((".", "/", "~")) or name.endswith("/") or "\\" in name or len(parts) > 2:
        return True
    # `runs/frist`, or anything in a folder that is here.
    in_folder = len(parts) == 2 and (parts[0] == "runs" or os.path.isdir(parts[0]))
    return in_folder and not is_stored(name)


def find_absence(name: str) -> str:
    """Why the weights of a hub id cannot be had on this machine, and what to do; "" if they can.

    Asks the hub at most once per name and process.
    """
    return "" if is_stored(name) else _ask_hub(name)


def without_network(name: str, reason: str) -> str:
    """The message if the weights of a hub id could not be fetched for `reason`."""
    return (
        f"cannot get the weights of '{name}': {reason.rstrip('.')}.\n"
        f"If this machine is offline, download them elsewhere (hf download {name} --local-dir DIR) "
        f"and pass --model DIR; or use the embedded model: --model tiny."
    )


@cache
def _ask_hub(name: str) -> str:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        RepositoryNotFoundError,
    )

    try:
        HfApi().model_info(name, timeout=_WAIT_S)
    except GatedRepoError:
        return (
            f"the hub gives the weights of '{name}' only to users it knows: accept the model's "
            f"terms on https://huggingface.co/{name}, then run: hf auth login"
        )
    except (RepositoryNotFoundError, HFValidationError):
        return (
            f"there is no model '{name}': no folder here and no public model of that name on the "
            "hub. Expected a run or model folder, a hub id such as Qwen/Qwen3-4B, or 'tiny'; a "
            f"private model needs: hf auth login."
        )
    except HfHubHTTPError:
        return ""  # the hub is there and has a fault of its own: fetching says more
    except Exception as error:  # each network library has errors of its own
        reason = f"they are not stored here, and the hub is out of reach ({first_line(error)})"
        return without_network(name, reason)
    return ""
