"""Files that are whole or not there, and the folder of the user for what can be made again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_path(name: str) -> Path:
    """The place of a file or folder in the user's own cache, as `~/.cache/searchrl/NAME`."""
    from platformdirs import user_cache_path

    return user_cache_path("searchrl") / name


def replace_file(path: Path, data: bytes) -> None:
    """Write beside and rename: readers see the old file or the new one, never a part.

    It is on disk when this returns; only the renaming may come later. Of two processes that do so
    at once, each writes a file of its own; the last one stays.
    """
    beside = path.with_name(f"{path.name}.{os.getpid()}.partial")
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
