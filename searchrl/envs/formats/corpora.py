"""The corpus of a path, in memory if it is small and on disk if it is not.

Owns the limit, and where large corpora are kept: in the user's cache folder, by the path, size and
time of their files. They are read once and mapped from then on. Called by `dataset`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from searchrl.core.episode import Passage
from searchrl.envs.formats.folders import find_corpus_file
from searchrl.envs.formats.passages import iter_corpus
from searchrl.envs.formats.problems import Problems
from searchrl.errors import ConfigError, DataError
from searchrl.retrieval.passages import (
    PassageStore,
    has_passages,
    open_passages,
    write_passages,
)
from searchrl.retrieval.progress import tracked

LARGE_BYTES = 32 << 20
"""Size of a file of rows from which on its passages are kept on disk."""

Fingerprint = tuple[tuple[str, int, int], ...]
"""Path, time and size of files: changes when one does."""


def load_corpus(path: Path, problems: Problems) -> Sequence[Passage]:
    """The passages of a file or folder: a tuple, or a `PassageStore` for a large file of rows.

    A folder that `write_passages` wrote is one, too.

    Raises:
        ConfigError: a large corpus cannot be kept on disk.
    """
    if has_passages(path):
        return open_passages(path)
    file = find_corpus_file(path)
    if file is None or sum(size for _, _, size in fingerprint([file])) < LARGE_BYTES:
        return tuple(iter_corpus(path, problems, places={}))
    marks = repr(fingerprint([file])).encode("utf-8", "surrogatepass")
    folder = corpora_folder() / hashlib.sha256(marks).hexdigest()[:24]
    if has_passages(folder):
        return open_passages(folder)
    return _store(file, folder, problems)


def corpora_folder() -> Path:
    """Where large corpora are kept; what is in it can be deleted, and is made again."""
    import platformdirs

    return platformdirs.user_cache_path("searchrl") / "corpora"


def fingerprint(paths: Sequence[Path]) -> Fingerprint:
    """Path, time and size of every file, and of every file in a folder but the hidden ones."""
    marks = []
    for path in paths:
        for file in _files_of(path) if os.path.isdir(path) else [path]:
            if os.path.isfile(file):
                stat = file.stat()
                marks.append((str(file.resolve()), stat.st_mtime_ns, stat.st_size))
    return tuple(marks)


def _files_of(folder: Path) -> list[Path]:
    return sorted(
        file
        for file in folder.rglob("*")
        if not any(part.startswith(".") for part in file.relative_to(folder).parts)
    )


def _store(file: Path, folder: Path, problems: Problems) -> PassageStore | tuple[()]:
    """Write the passages into `folder` in one go: another process may do the same."""
    num_before = problems.count
    building = folder.with_name(f"{folder.name}.{os.getpid()}")
    try:
        shutil.rmtree(building, ignore_errors=True)
        passages = tracked(iter_corpus(file, problems), f"reading {file.name}")
        try:
            write_passages(building, passages)
        except DataError as error:
            problems.add(file, 0, str(error))
        if problems.count > num_before:
            return ()
        try:
            building.rename(folder)
        except OSError:  # the other one was first
            if not has_passages(folder):
                raise
        return open_passages(folder)
    except OSError as error:
        raise ConfigError(
            f"{file}: a corpus of this size is kept in '{folder.parent}', and that failed: "
            f"{error.strerror or error}. Make room there, or set XDG_CACHE_HOME to another folder"
        ) from error
    finally:
        shutil.rmtree(building, ignore_errors=True)
