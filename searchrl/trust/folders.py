"""Folders of strangers: plain files and folders only, and nothing that leads out of them.

A link could point anywhere, and a pipe keeps its reader waiting for ever.
"""

from __future__ import annotations

import os
from pathlib import Path

from searchrl.errors import ConfigError, RunFolderError


def find_odd(folder: Path) -> tuple[Path, str] | None:
    """The first thing in a folder that is no plain file or folder, and what it is; None if none.

    The folder itself may be a link: the user named it.
    """
    for place, folders, files in os.walk(folder):
        for path in (Path(place, name) for name in (*folders, *files)):
            if path.is_symlink():
                return path, "a symbolic link"
            if not (path.is_file() or path.is_dir()) and path.exists():
                return path, "a pipe, a socket or a device"
    return None


def ensure_plain(folder: Path) -> None:
    """Raise `RunFolderError` if a run folder holds anything but plain files and folders."""
    if (odd := find_odd(folder)) is not None:
        path, what = odd
        raise RunFolderError(
            f"the run folder '{folder}' holds {what}, '{path}', which is not followed; replace it "
            "by what it stands for, or remove it"
        )


def find_link(path: Path, folder: Path) -> Path | None:
    """The first symbolic link on the way from a folder to a path inside of it; None if none."""
    way = [path, *path.parents][: len(path.relative_to(folder).parts)]
    return next((part for part in way if part.is_symlink()), None)


def place_inside(folder: Path, name: str, what: str) -> Path:
    """The path of `name`, which the setting `what` has, in a run folder.

    Raises `ConfigError` if it is outside, or a link is on the way to it.
    """
    path, root = Path(os.path.normpath(folder / name)), Path(os.path.normpath(folder))
    if path == root or not path.is_relative_to(root):
        raise ConfigError(
            f"{what} = '{name}' is not inside of the run folder '{folder}', where all is written; "
            "name a path relative to it"
        )
    if link := find_link(path, root):
        raise ConfigError(f"{what} = '{name}': '{link}' is a symbolic link; remove it")
    return path
