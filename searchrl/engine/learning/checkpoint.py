"""Checkpoints: atomic to write, exact to resume, never of numbers that are not finite.

Owns what is in `checkpoints/step_NNNNNN/`: `policy/` (as the policy saves itself: of a model it is
a Hugging Face folder), the optimiser's state without pickle (`state_files`), and `state.json`. It
is written under another name and renamed, so a kill leaves the old ones whole. Names, checksums and
the choice of a whole one are `run_folder.checkpoints`.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from searchrl.engine.learning.state_files import load_state, save_state
from searchrl.engine.model.policy import Policy
from searchrl.engine.model.quantization import first_line
from searchrl.engine.model.sharding import agree, local
from searchrl.errors import DamagedError, PolicyError, RunFolderError
from searchrl.run_folder import guarding, list_checkpoints, read_state
from searchrl.run_folder.checkpoints import read_manifest
from searchrl.run_folder.manifest import CHECKSUMS, STATE, Manifest
from searchrl.run_folder.place import partial_of
from searchrl.run_folder.shapes import Shape, find_problem

if TYPE_CHECKING:
    from torch.distributed.checkpoint.stateful import Stateful

_OPTIMIZER = "optimizer"


def save_checkpoint(
    run_dir: Path, policy: Policy, learner: Stateful, state: Mapping[str, Any]
) -> Path:
    """Write the checkpoint of `state["step"]`; returns its folder.

    With sharded weights all processes must call this; `Policy.is_writer` says which one writes.

    Weights and optimiser are a function of the step: if its checkpoint is there already, only the
    JSON state is replaced. A whole checkpoint is never deleted to write it again.

    Raises:
        PolicyError: if a weight or a number of the optimiser's state is not finite: a run cannot go
            on from such a checkpoint, and it would hide older ones.
        RunFolderError: if it could not be written. The older ones are as they were.
    """
    folder = run_dir / "checkpoints" / f"step_{state['step']:06d}"
    is_there = folder in list_checkpoints(run_dir)
    if policy.is_sharded:
        (is_there,) = agree([is_there or not policy.is_writer])
    if is_there:
        if policy.is_writer:
            with guarding(run_dir):
                Manifest({**state}, read_manifest(folder).files).write(folder / STATE)
                _sync(folder)
        return folder
    optimizer = learner.state_dict()
    ensure_finite(policy, optimizer, f"after step {state['step']}")
    # An incomplete folder may be replaced.
    with _whole(run_dir, folder, is_writer=policy.is_writer) as beside:
        with naming_write_errors("policy"):
            policy.save(beside / "policy")
        with naming_write_errors(_OPTIMIZER):
            save_state(beside, _OPTIMIZER, optimizer, is_writer=policy.is_writer)
        if not policy.is_writer:
            return folder
        Manifest.of(beside, state).write(beside / STATE)
    return folder


def save_policy(run_dir: Path, policy: Policy) -> Path:
    """Write the final policy to `policy/`, whole or not at all; returns its folder.

    With sharded weights all processes must call this.

    Raises:
        PolicyError: if a weight is not finite.
        RunFolderError: if it could not be written.
    """
    ensure_finite(policy, {}, "at the end")
    folder = run_dir / "policy"
    with _whole(run_dir, folder, is_writer=policy.is_writer) as beside:
        with naming_write_errors("policy"):
            policy.save(beside)
        if policy.is_writer:
            Manifest.of(beside, {}).write(beside / CHECKSUMS)
    return folder


def ensure_finite(policy: Policy, optimizer: Mapping[str, Any], when: str) -> None:
    """Raise `PolicyError` if a trained weight, or a tensor of a learner's state, is not finite.

    An optimiser that is not finite makes the weights so at its next step. An algorithm's own state
    is not checked.
    """
    named = [(f"weight '{n}'", p) for n, p in policy.named_parameters() if p.requires_grad]
    for number, state in optimizer.get("optimizer", {}).get("state", {}).items():
        where = f"the optimiser's state['state'][{number}]"
        named += [(f"{where}[{name!r}]", one) for name, one in state.items()]
    named += [(f"the critic[{name!r}]", one) for name, one in optimizer.get("critic", {}).items()]
    tensors = [one for one in named if torch.is_tensor(one[1]) and one[1].is_floating_point()]
    are_finite = [bool(torch.isfinite(local(tensor)).all()) for _, tensor in tensors]
    if policy.is_sharded:
        are_finite = agree(are_finite)
    for (name, _), is_finite in zip(tensors, are_finite, strict=True):
        if not is_finite:
            raise PolicyError(
                f"{name} is not finite {when}: training has diverged, and nothing of it is "
                "saved. Older checkpoints are as they were; go on from one with a lower "
                "learning rate: searchrl train --init-from CHECKPOINT --set optim.lr=…"
            )


@contextmanager
def naming_write_errors(what: str) -> Iterator[None]:
    """Turn errors of the writers of weights on a full disk into an `OSError`.

    safetensors has an exception of its own, torch raises RuntimeError, tokenizers a bare Exception.
    """
    try:
        yield
    except Exception as error:
        if not isinstance(error, SafetensorError) and type(error) not in (RuntimeError, Exception):
            raise
        text = f"'{what}' could not be written whole ({first_line(error)})"
        raise OSError(errno.EIO, text) from error


@contextmanager
def _whole(run_dir: Path, folder: Path, *, is_writer: bool) -> Iterator[Path]:
    """A folder to write into that takes the place of `folder` once all of it is on disk.

    After an error nothing of it is left, because a full disk needs the space.
    """
    beside, before = partial_of(folder), partial_of(folder.with_name(f"{folder.name}.before"))
    if not is_writer:
        yield beside
        return
    with guarding(run_dir):
        for left in (beside, before):
            shutil.rmtree(left, ignore_errors=True)
        beside.mkdir(parents=True)
        try:
            yield beside
            for path in beside.rglob("*"):
                if path.is_file():
                    _sync(path)
            # Moved at once: a kill leaves the old one, the new one or none, never parts.
            if os.path.lexists(folder):
                folder.rename(before)
            beside.rename(folder)
        except Exception:
            shutil.rmtree(beside, ignore_errors=True)
            raise
        _sync(folder.parent)
        if before.is_symlink():
            before.unlink()
        else:
            shutil.rmtree(before, ignore_errors=True)


def _sync(path: Path) -> None:
    """Force a file or folder entry to disk: a rename must not outrun the data."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def load_checkpoint(
    folder: Path, policy: Policy, learner: Stateful, shape: type[Shape] | None = None
) -> dict[str, Any]:
    """Put weights, optimiser and counters back exactly; returns the JSON state.

    The folder is one that `newest_checkpoint` found whole. No pickle is read. `shape` is that of
    the JSON state.

    Raises:
        DamagedError: if a file cannot be read after all, or the state has another shape.
        RunFolderError: if weights or optimiser do not fit the policy.
    """
    state = read_state(folder)
    if shape is not None and (problem := find_problem(state, shape)):
        way_on = "To resume from an older checkpoint, delete the folder of this one"
        raise DamagedError.of(folder / STATE, problem, way_on)
    saved = load_state(folder, _OPTIMIZER)
    try:
        load_weights(folder / "policy", policy)
        learner.load_state_dict(saved)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, LookupError, ValueError, TypeError, AttributeError) as error:
        raise RunFolderError(
            f"checkpoint '{folder}' does not fit this model and its optimiser "
            f"({first_line(error)}): they were others when it was written. Put them back, or start "
            f"a new run from its weights: --init-from {folder}"
        ) from error
    return state


def load_weights(folder: Path, policy: Policy) -> None:
    """Copy saved weights into the policy's trainable parameters; raises as `Policy.load`."""
    saved: dict[str, torch.Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            saved |= load_file(path)
        except (OSError, SafetensorError) as error:
            raise DamagedError.of(path, first_line(error), "Restore it from a copy") from error
    policy.load(folder, saved)
