"""Export: the policy of a run as a folder for other programs, with no trace of this machine."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from searchrl.core.encoding import encode_text
from searchrl.engine.learning.checkpoint import naming_write_errors
from searchrl.engine.model.foreign import ensure_plain_model
from searchrl.engine.model.loading import ResolvedModel, load_policy, resolve_model
from searchrl.errors import ConfigError
from searchrl.plugins import Registry
from searchrl.run_folder.place import filling
from searchrl.run_folder.sealing import CHECKSUMS
from searchrl.runs.card import is_hub_id, make_card
from searchrl.runs.source import Source
from searchrl.trust.folders import ensure_plain

CPU = torch.device("cpu")

Kind = Literal["adapter", "merged", "whole"]


@dataclass(frozen=True, slots=True)
class Exported:
    """An export.

    `base`: the adapter's base as others know it. `repo`: where it is uploaded to. `notes`: what the
    user should know of it.
    """

    path: Path
    kind: Kind
    base: str | None
    repo: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What it is called."""
        return Path(self.repo or self.path.resolve()).name

    @property
    def is_complete(self) -> bool:
        """Whether everything it needs is in it or on a hub."""
        return self.kind != "adapter" or is_hub_id(self.base or "")

    def to_dict(self) -> dict[str, Any]:
        """The export as JSON."""
        files = sorted(path for path in self.path.rglob("*") if path.is_file())
        sizes = {file.relative_to(self.path).as_posix(): file.stat().st_size for file in files}
        facts = {"path": str(self.path), "kind": self.kind, "base": self.base}
        return {**facts, "files": sizes, "notes": list(self.notes)}


def export_policy(
    source: Source,
    folder: Path,
    registry: Registry,
    *,
    merge: bool = False,
    base: str | None = None,
    repo: str | None = None,
) -> Exported:
    """Write the policy of a run or checkpoint to a new folder, whole or not at all.

    Args:
        source: the run.
        folder: new, or empty.
        registry: the plugins of the run: the card shows the protocol's instruction.
        merge: add the adapter to the weights of its base, in the dtype the run had them in; that of
            the embedded model always is, because no hub has its base.
        base: how others name the base of an adapter; by default what the run calls it.
        repo: where it will be uploaded to (`user/name`), for its card; the folder names it else.

    Raises:
        ConfigError: if the folder is not empty, or `base` is no hub id.
        PolicyError: if the weights cannot be read.
        RunFolderError: if the folder cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"'{folder}' is not an empty folder; name a new one to export to")
    notes = [*source.notes]
    model = source.config.model
    known: str | None = None
    found = resolve_model(model.name, CPU, str(source.policy))
    if found.adapter_path is None:
        if merge:
            notes.append("this run trained all weights: there is no adapter to merge")
        if base is not None:
            raise ConfigError(
                f"--base names the base of an adapter, and '{source.policy}' holds whole weights; "
                "leave it out"
            )
    else:
        if base is not None and not is_hub_id(base):
            raise ConfigError(f"--base {base}: expected a hub id such as Qwen/Qwen3-4B")
        merge = merge or (base is None and found.is_tiny)
        is_folder = Path(found.path).is_dir()
        known = base or (Path(found.path).resolve().name if is_folder else found.path)
        if merge and model.quantize != "none":
            notes.append(
                f"the adapter was trained on weights in {model.quantize}; merged into the weights "
                "as they are, answers can differ a little"
            )
        if not merge and not is_hub_id(known):
            notes.append(
                f"the base was a folder of this machine and is called '{known}' in the export; "
                "name it as others know it with --base, or export whole weights with --merge"
            )
    kind: Kind = "whole" if found.adapter_path is None else "merged" if merge else "adapter"
    exported = Exported(folder, kind, known, repo, tuple(notes))
    with filling(folder) as beside, naming_write_errors("the weights"):
        if kind == "merged":
            _write_merged(source, found, beside)
        else:
            _copy_policy(source.policy, beside)
        if kind == "adapter":
            path = beside / "adapter_config.json"
            settings = json.loads(path.read_text("utf-8")) | {"base_model_name_or_path": known}
            path.write_bytes(encode_text(json.dumps(settings, indent=2, ensure_ascii=False)))
        card = make_card(source, exported, registry)
        (beside / "README.md").write_bytes(encode_text(card))
    return exported


def _copy_policy(policy: Path, folder: Path) -> None:
    """Copy the files of a Hugging Face folder.

    Its README is of another program, and its checksums are those of other settings. Raises
    `RunFolderError` for a link: what it points to was not meant to leave this machine.
    """
    ensure_plain(policy)
    for file in sorted(policy.iterdir()):
        if file.is_file() and file.name not in ("README.md", CHECKSUMS):
            shutil.copyfile(file, folder / file.name)


def _write_merged(source: Source, found: ResolvedModel, folder: Path) -> None:
    """Add an adapter to its base and write the sum, in the dtype of the run or of the base."""
    model = source.config.model
    dtype = str(model.dtype)
    if dtype == "auto":
        from transformers import AutoConfig

        ensure_plain_model(found.path)
        stored = AutoConfig.from_pretrained(found.path, trust_remote_code=False).dtype
        dtype = str(stored).removeprefix("torch.") if stored is not None else dtype
    plain = model.model_copy(update={"quantize": "none", "dtype": dtype})
    policy = load_policy(plain, found, CPU, trainable=False)
    policy.model.merge_and_unload().save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
