"""Models on this machine: a folder, or an installed package that holds one. Never the network."""

from __future__ import annotations

import hashlib
import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from searchrl import ConfigError, suggest_path

_NOT_WEIGHTS = {".md", ".gitattributes", ".py", ".pyc", ".lock", ".metadata"}
"""Files that change no vector."""


def find_model(retriever: str, model: str, marks: Sequence[str], example: str) -> Path:
    """Return the folder of a model: a path, or an installed package that holds one.

    Args:
        retriever: the name for errors.
        model: as the user wrote it.
        marks: files by which the folder of such a model is known; one of them is enough.
        example: a package of the public index that holds such a model; "" if there is none.
    """
    folder = Path(model).expanduser()
    if folder.is_dir():
        if _holds(folder, marks):
            return folder.resolve()
        raise ConfigError(
            f"retriever {retriever}: the folder '{model}' holds no model for it; expected a file "
            f"{' or '.join(marks)} there."
        )
    if inside := _find_in_package(model, marks):
        return inside
    wheel = f", or run `pip install {example}` and set it to that name" * bool(example)
    raise ConfigError(
        f"retriever {retriever}: the model '{model}' is neither a folder nor an installed package, "
        f"and nothing is downloaded here.{suggest_path(folder)} Set retriever.model to a folder "
        "that holds a model, such as one that `hf download OWNER/NAME --local-dir DIR` made where "
        f"there is a network{wheel}."
    )


def load_model(retriever: str, kind: str, folder: Path, device: str | None) -> Any:
    """A model of sentence-transformers of the class `kind`, from a folder of this machine."""
    import sentence_transformers
    from transformers.utils import logging

    logging.disable_progress_bar()  # of the loading of weights
    try:
        made = getattr(sentence_transformers, kind)
        return made(str(folder), device=device, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # of torch, transformers, safetensors, …
        first = (str(error).splitlines() or [""])[0]
        on = f" on the device {device!r}" if device else ""
        raise ConfigError(
            f"retriever {retriever}: '{folder}' cannot be loaded as a {kind}{on}: "
            f"{type(error).__name__}: {first}"
        ) from error


def fingerprint_model(folder: Path) -> str:
    """SHA-256 of the names and contents of a model's files; documentation does not count."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in name.parts)
        if hidden or path.suffix in _NOT_WEIGHTS:
            continue
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        digest.update(f"{name.as_posix()}\0{content}\0".encode())
    return digest.hexdigest()


def _find_in_package(model: str, marks: Sequence[str]) -> Path | None:
    """The folder of a model within an installed package; the package is not imported."""
    name = re.sub(r"[-.]", "_", model)
    try:
        spec = importlib.util.find_spec(name) if name.isidentifier() else None
    except (ImportError, ValueError):
        return None
    for place in (spec.submodule_search_locations or ()) if spec else ():
        folders = [Path(place), *sorted(p for p in Path(place).iterdir() if p.is_dir())]
        if holder := next((folder for folder in folders if _holds(folder, marks)), None):
            return holder
    return None


def _holds(folder: Path, marks: Sequence[str]) -> bool:
    return any(next(folder.glob(mark), None) for mark in marks)
