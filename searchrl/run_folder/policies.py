"""The weights to use when a run, a checkpoint or a policy is named: the newest whole ones.

Owns which folders may hold them, their order, and what is said when damaged ones are passed over.
What is in such a folder is the business of `engine.model.loading`. No torch. Callers: whoever reads
weights (`eval`, `ask`, `export`, `--init-from`, `--model`).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from searchrl.contracts import ChoiceSpace
from searchrl.errors import DamagedError
from searchrl.run_folder.checkpoints import FOLDER, checkpoint_folders, is_checkpoint_name
from searchrl.run_folder.sealing import CHECKSUMS, verify_folder

POLICY = "policy"

CHOICES = "policy.json"
"""Is in the folder of a policy without tokens."""
CONFIGS = ("adapter_config.json", "config.json", CHOICES)
"""One of these is in every folder of weights that can be loaded."""


class PolicyChoice(NamedTuple):
    """Where the weights are. `notes`: what the user must know of the choice, in sentences."""

    folder: Path
    notes: tuple[str, ...]


def choose_policy(folder: Path) -> PolicyChoice | None:
    """The newest whole weights in a folder: a policy, a checkpoint or a run; None without any.

    Of a run it is the final policy, else its newest checkpoint. Every file is read and compared
    with its checksum, where there are checksums.

    Raises:
        DamagedError: if weights are there and none of them is whole.
    """
    faults: list[str] = []
    for candidate in (folder, *_policies_of(folder)):
        if not _is_meant(candidate, folder):
            continue
        try:
            is_verified = verify_policy(candidate)
        except DamagedError as error:
            faults.append(str(error))
            continue
        return PolicyChoice(candidate, (*faults, *_remarks(candidate, folder, faults, is_verified)))
    if not faults:
        return None
    raise DamagedError("\n".join((*faults, _way_out(folder))))


def read_space(folder: Path) -> ChoiceSpace | None:
    """What a policy without tokens sees and offers; None if none can be read there."""
    try:
        return ChoiceSpace.from_dict(read_description(folder)["space"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def read_name(folder: Path) -> str:
    """The name of a policy without tokens; empty if it is none."""
    try:
        return str(read_description(folder)["name"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return ""


def read_description(folder: Path) -> Any:
    """What `policy.json` says. Raises `OSError` or `ValueError` if it is no plain JSON file."""
    path = folder / CHOICES
    if not path.is_file():  # to open a pipe would wait for ever
        raise OSError("there is no such file")
    return json.loads(path.read_bytes())


def verify_policy(folder: Path, *, deep: bool = True) -> bool:
    """Compare the files of a policy with their checksums; False if it has none.

    The policy of a checkpoint is listed with the checkpoint.

    Raises:
        DamagedError: naming the first file that is not what was written.
    """
    way_on = "Restore it from a copy"
    for listing, below in ((folder, ""), (folder.parent, f"{folder.name}/")):
        if os.path.exists(listing / CHECKSUMS):
            names = verify_folder(listing, below, deep=deep, way_on=way_on)
            if any(name.startswith(below) for name in names):
                return True
            # The checksums of a folder around it may be of something else.
    if not any(os.path.isfile(folder / name) for name in CONFIGS):
        fault = f"neither {' nor '.join(CONFIGS)} is there"
        raise DamagedError.of(folder, fault, way_on)
    return False


def _is_meant(candidate: Path, folder: Path) -> bool:
    """Whether a candidate is there to hold weights: any folder may be named, few are policies."""
    if candidate != folder or is_policy_of_run(candidate):
        return os.path.exists(candidate)
    if os.path.exists(candidate / POLICY):
        return False  # a checkpoint: its checksums are those of the policy in it
    return any(os.path.exists(candidate / name) for name in (*CONFIGS, CHECKSUMS))


def is_policy_of_run(folder: Path) -> bool:
    """Whether a folder is the policy of a run or of a checkpoint, by its place."""
    above = folder.absolute().parent
    is_in_checkpoint = above.parent.name == FOLDER and is_checkpoint_name(above.name)
    return folder.name == POLICY and (is_in_checkpoint or os.path.exists(above / "config.yaml"))


def _remarks(candidate: Path, folder: Path, faults: list[str], is_verified: bool) -> list[str]:
    remarks = []
    if faults:
        remarks.append(f"taken instead: '{candidate}'")
    elif candidate not in (folder, folder / POLICY):
        remarks.append(
            f"'{folder}' has no final policy; its newest checkpoint is taken: {candidate}"
        )
    if not is_verified and is_policy_of_run(candidate):
        remarks.append(say_unverified(candidate))
    return remarks


def say_unverified(policy: Path) -> str:
    """What is to be known of a policy of a run that has no checksums."""
    above = policy.parent
    listing = (above if is_checkpoint_name(above.name) else policy) / CHECKSUMS
    return (
        f"'{listing}' is missing: it was deleted, or an older version wrote none. Nothing says "
        f"whether the weights in '{policy}' are damaged"
    )


def _policies_of(run_dir: Path) -> list[Path]:
    """Where a run keeps weights: the final policy, then its checkpoints, the newest first."""
    found = [one / POLICY for one in reversed(checkpoint_folders(run_dir))]
    return [run_dir / POLICY, *found]


def _way_out(folder: Path) -> str:
    """What to do when the weights that were named are damaged."""
    named = (folder.absolute(), folder.absolute() / POLICY)
    above = (one for one in folder.absolute().parents[:3] if checkpoint_folders(one))
    others = [one for run_dir in above for one in _policies_of(run_dir) if one not in named]
    for one in filter(Path.exists, others):
        try:
            if verify_policy(one):
                return f"Whole weights of the same run are in '{one}'"
        except DamagedError:
            continue
    return "There are no whole weights beside these"
