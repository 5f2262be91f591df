"""The weights to use when a run, a checkpoint or a policy is named: the newest whole ones."""

from __future__ import annotations

import os
from pathlib import Path

from searchrl.errors import DamagedError
from searchrl.run_folder.checkpoints import (
    FOLDER,
    Choice,
    checkpoint_folders,
    is_checkpoint_name,
    read_manifest,
)
from searchrl.run_folder.manifest import CHECKSUMS, RESTORE, Manifest

POLICY = "policy"

CONFIGS = ("adapter_config.json", "config.json")
"""One of these is in every folder of weights that can be loaded."""


def choose_policy(folder: Path) -> Choice | None:
    """The newest whole weights in a folder: a policy, a checkpoint or a run; None without any.

    In a run it is the final policy, else its newest checkpoint. Every file is read and compared
    with its checksum. Raises `DamagedError` if weights are there and none of them is whole.
    """
    faults: list[str] = []
    inner = [folder, *reversed(checkpoint_folders(folder))]
    for candidate in (folder, *(one / POLICY for one in inner)):
        if not _is_meant(candidate, folder):
            continue
        try:
            verify_policy(candidate)
        except DamagedError as error:
            faults.append(str(error))
            continue
        if faults:
            faults.append(f"taken instead: '{candidate}'")
        elif candidate not in (folder, folder / POLICY):
            faults.append(
                f"'{folder}' has no final policy; its newest checkpoint is taken: {candidate}"
            )
        return Choice(candidate, tuple(faults))
    if not faults:
        return None
    run = next((one for one in folder.absolute().parents[:3] if checkpoint_folders(one)), None)
    way_on = f"To take the newest whole weights of the same run, name it: '{run}'"
    raise DamagedError(
        "\n".join((*faults, way_on if run else "There are no whole weights beside these"))
    )


def verify_policy(folder: Path, below: str = "", *, deep: bool = True) -> None:
    """Compare the files of a policy with their checksums; one that no run wrote may have none.

    Only those whose names begin with `below`. That of a checkpoint is listed with the checkpoint.
    Raises `DamagedError` that names the first file that is not what was written.
    """
    is_of_run = is_policy_of_run(folder)
    if is_of_run and is_checkpoint_name(folder.absolute().parent.name):
        read_manifest(folder.parent).verify(folder.parent, f"{POLICY}/{below}", deep=deep)
    elif is_of_run or os.path.exists(folder / CHECKSUMS):
        Manifest.read(folder / CHECKSUMS).verify(folder, below, deep=deep)
    if not any(os.path.isfile(folder / name) for name in CONFIGS):
        raise DamagedError.of(folder, f"neither {' nor '.join(CONFIGS)} is there", RESTORE)


def _is_meant(candidate: Path, folder: Path) -> bool:
    """True if a candidate is there to hold weights: any folder may be named, few are policies."""
    if candidate != folder or is_policy_of_run(candidate):
        return os.path.exists(candidate)
    if os.path.exists(candidate / POLICY):
        return False  # a checkpoint: its checksums are those of the policy in it
    return any(os.path.exists(candidate / name) for name in (*CONFIGS, CHECKSUMS))


def is_policy_of_run(folder: Path) -> bool:
    """True for the policy of a run or of a checkpoint, by its place."""
    above = folder.absolute().parent
    is_in_checkpoint = above.parent.name == FOLDER and is_checkpoint_name(above.name)
    return folder.name == POLICY and (is_in_checkpoint or os.path.exists(above / "config.yaml"))
