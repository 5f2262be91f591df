"""Export of a run's policy as a folder for other programs, with no trace of this machine."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import torch

from searchrl.core.encoding import encode_text
from searchrl.engine.learning.checkpoint import naming_write_errors
from searchrl.engine.model.foreign import ensure_plain_model
from searchrl.engine.model.layout import TokenRow, pad
from searchrl.engine.model.loading import ResolvedModel, load_policy, resolve_model
from searchrl.engine.model.policy import Policy
from searchrl.engine.model.tolerance import tolerance_of
from searchrl.errors import ConfigError, PolicyError
from searchrl.plugins import Registry
from searchrl.run_folder.manifest import CHECKSUMS
from searchrl.run_folder.place import filling
from searchrl.runs.card import Exported, Kind, is_hub_id, make_card
from searchrl.runs.source import Source
from searchrl.trust.folders import ensure_plain

CPU = torch.device("cpu")

_NUM_TRIED = 32
"""Tokens whose log-probs are compared before and after a merge."""


def export_policy(
    source: Source,
    folder: Path,
    registry: Registry,
    *,
    merge: bool = False,
    base: str | None = None,
    repo: str | None = None,
) -> Exported:
    """Write the policy of a run or checkpoint to a new or empty folder, whole or not at all.

    With `merge`, the adapter is added to the weights of its base, in the dtype the run had them in;
    that of the embedded model always is, because no hub has its base. `base` is how others name the
    base of an adapter, by default as the run does; `repo` (`user/name`) is for the card.

    Raises:
        ConfigError: if the folder is not empty, or `base` is no hub id.
        PolicyError: if the weights cannot be read, or merging makes another model of them.
        RunFolderError: if the folder cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"'{folder}' is not an empty folder; name a new one to export to")
    notes = [*source.notes]
    model = source.run.config.model
    known: str | None = None
    resolved = resolve_model(model.name, CPU, str(source.policy))
    if resolved.adapter_path is None:
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
        merge = merge or (base is None and resolved.is_tiny)
        is_folder = Path(resolved.path).is_dir()
        known = base or (Path(resolved.path).resolve().name if is_folder else resolved.path)
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
    kind: Kind = "whole" if resolved.adapter_path is None else "merged" if merge else "adapter"
    exported = Exported(folder, kind, known, repo, tuple(notes))
    with filling(folder) as beside, naming_write_errors("the weights"):
        if kind == "merged":
            _write_merged(source, resolved, beside)
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
    """Copy the files of a Hugging Face folder; its README and checksums are of other files."""
    ensure_plain(policy)  # what a link points to was not meant to leave this machine
    for file in sorted(policy.iterdir()):
        if file.is_file() and file.name not in ("README.md", CHECKSUMS):
            shutil.copyfile(file, folder / file.name)


def _write_merged(source: Source, weights: ResolvedModel, folder: Path) -> None:
    """Add an adapter to its base and write the sum, in the dtype of the run or of the base."""
    model = source.run.config.model
    dtype = str(model.dtype)
    if dtype == "auto":
        from transformers import AutoConfig

        ensure_plain_model(weights.path)
        stored = AutoConfig.from_pretrained(weights.path, trust_remote_code=False).dtype
        dtype = str(stored).removeprefix("torch.") if stored is not None else dtype
    plain = model.model_copy(update={"quantize": "none", "dtype": dtype})
    policy = load_policy(plain, weights, CPU, trainable=False)
    before, without = _some_logps(policy), _some_logps(policy, reference=True)
    is_tied = policy.base_model.config.tie_word_embeddings
    _untie(policy.base_model)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*tie_word_embeddings")
        merged = policy.model.merge_and_unload()
    ends = merged.get_input_embeddings(), merged.get_output_embeddings()
    is_tied = is_tied and torch.equal(ends[0].weight, ends[1].weight)
    merged.config.tie_word_embeddings = is_tied
    if is_tied:
        ends[1].weight = ends[0].weight
    merged.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
    written = load_policy(plain, ResolvedModel(str(folder), None, False), CPU, trainable=False)
    gap = float((_some_logps(written) - before).abs().mean())
    # Small weights of a large adapter are rounded to the dtype of its base.
    limit = max(tolerance_of(policy.dtype).mean, 0.1 * float((before - without).abs().mean()))
    if not gap <= limit:
        raise PolicyError(
            f"merging '{weights.adapter_path}' into '{weights.path}' makes another model: "
            f"log-probs of a few tokens are {gap:.2g} nats off on average, and rounding explains "
            f"{limit:.2g}. Export the adapter as it is: leave --merge out, and name its base with "
            "--base"
        )


def _some_logps(policy: Policy, *, reference: bool = False) -> torch.Tensor:
    """Log-probs of a few tokens, from all over the vocabulary."""
    ids = [number * policy.vocab_size // _NUM_TRIED for number in range(_NUM_TRIED)]
    row = TokenRow(ids, [False] + [True] * (_NUM_TRIED - 1))
    with torch.no_grad():
        return policy.logps(pad([row], CPU), reference=reference).logp_N


def _untie(model: Any) -> None:
    """Give every module a tensor of its own: an adapter may change one of a tied pair alone."""
    seen: set[int] = set()
    for module in model.modules():
        for name, weight in [*module.named_parameters(recurse=False)]:
            if id(weight) in seen:
                setattr(module, name, torch.nn.Parameter(weight.detach().clone(), False))
            seen.add(id(weight))
