"""Making an index folder: the old index is there until the new one is whole.

A build holds the folder, stores the passages, lets the kind write its files, sums them up, and
replaces the manifest. Everything is written in `building/` inside the folder. A killed build leaves
it there, and the same build goes on with it.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from searchrl import Manifest
from searchrl.contracts import Passage
from searchrl_retrieval.index.folder import (
    BUILDING,
    FILES,
    PASSAGES,
    Index,
    IndexKind,
    has_index,
    open_index,
)
from searchrl_retrieval.index.manifest import (
    CHANGING,
    IndexFault,
    IndexManifest,
    read_manifest,
    write_manifest,
)
from searchrl_retrieval.index.passages import PassageStore, write_passages

CACHE_VARIABLE = "SEARCHRL_INDEXES"
"""Environment variable: the folder for indexes that nobody named."""

LOCK, _STATE = ".lock", "build.json"


def build_index(
    kind: IndexKind,
    passages: Iterable[Passage],
    folder: Path,
    *,
    sources: Sequence[str] = (),
    wait_s: float = 0,
    is_kept: bool = False,
    previous: Index | None = None,
) -> Index:
    """Build an index in a folder and open it; the one that is there is replaced at the end.

    Args:
        kind: the retriever with its settings.
        passages: the corpus. It may be an iterator over more than fits into memory.
        folder: is made if it is not there.
        sources: flags that name the corpus, for the command that builds it again.
        wait_s: seconds to wait for another process that builds here; -1 waits without limit.
        is_kept: an index that is there when the folder is free is opened, and nothing is built.
        previous: the index of this folder, of `kind`, whose passages are the first of `passages`.
    """
    began = time.monotonic()
    try:
        _ensure_ours(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / LOCK, timeout=wait_s):
            if is_kept and has_index(folder):
                return open_index(folder)
            if (
                previous is not None
                and read_manifest(previous.folder).data != previous.manifest.data
            ):
                raise IndexFault(
                    f"index '{folder}' was changed by another process meanwhile, and nothing was "
                    "added to it; give the same command again"
                )
            _build(kind, passages, folder, tuple(sources), previous, began)
            return open_index(folder)
    except Timeout:
        raise IndexFault(
            f"index '{folder}' is being built by another process; wait for it, or name another "
            "folder with --out"
        ) from None
    except OSError as error:
        raise IndexFault(
            f"index '{folder}' cannot be built: {error}. Once that is put right, the build goes on "
            f"where it was. {CACHE_VARIABLE} names another folder for indexes that nobody named"
        ) from error


def _build(
    kind: IndexKind,
    passages: Iterable[Passage],
    folder: Path,
    sources: tuple[str, ...],
    previous: Index | None,
    began: float,
) -> None:
    work = folder / BUILDING
    data, new = work / "data", work / PASSAGES
    work.mkdir(exist_ok=True)
    fingerprint = write_passages(new, passages)
    state = {
        "kind": kind.name,
        "settings": dict(kind.built_with),
        "fingerprint": fingerprint,
        "previous": len(previous.passages) if previous else 0,
    }
    text = json.dumps(state, sort_keys=True)
    if not (work / _STATE).exists() or (work / _STATE).read_text("utf-8") != text:
        shutil.rmtree(data, ignore_errors=True)  # left by another build
        (work / _STATE).write_text(text, "utf-8")
    (data / FILES).mkdir(parents=True, exist_ok=True)
    os.replace(new, data / PASSAGES)
    store = PassageStore(data / PASSAGES)
    kind.build(store, data / FILES, previous)
    manifest = IndexManifest(
        kind=kind.name,
        settings=dict(kind.built_with),
        fingerprint=fingerprint,
        count=len(store),
        sources=sources,
        data=f"data-{uuid.uuid4().hex[:8]}",
        files=Manifest.of(data, {}, {CHANGING}).files,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        took_s=round(time.monotonic() - began, 3),
    )
    for path in filter(Path.is_file, data.rglob("*")):
        with path.open("rb") as file:  # or a power cut might leave the manifest alone
            os.fsync(file.fileno())
    os.replace(data, folder / manifest.data)
    write_manifest(folder, manifest)
    for old in folder.glob("data-*"):
        if old.name != manifest.data:  # who has mapped its files keeps them
            shutil.rmtree(old, ignore_errors=True)
    shutil.rmtree(work, ignore_errors=True)


def _ensure_ours(folder: Path) -> None:
    """Refuse a folder that holds anything but an index: a build deletes what it replaces."""
    if not folder.exists() or has_index(folder):
        return
    if not folder.is_dir():
        raise IndexFault(f"index '{folder}' is a file; name a folder")
    # A build that is killed before its first manifest leaves `data-…` alone.
    names = {path.name for path in folder.iterdir()} - {LOCK, BUILDING}
    if others := sorted(name for name in names if not name.startswith("data-")):
        raise IndexFault(
            f"'{folder}' is a folder with other files in it ({others[0]}, …); name a new one"
        )
