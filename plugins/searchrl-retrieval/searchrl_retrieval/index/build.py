"""Making an index folder: resumable, and the old index is there until the new one is whole.

Owns the steps of a build: hold the folder, store the passages, let the kind write its files, sum
them up, and replace the manifest. Everything is written in `building/` inside the folder. A killed
build leaves it there, with the parts that were finished; the same build takes them up. Called by
`searchrl index` and by `places`.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from searchrl.contracts import Passage
from searchrl_retrieval.index.folder import Index, find_index, open_index
from searchrl_retrieval.index.kinds import IndexKind
from searchrl_retrieval.index.manifest import (
    BUILDING,
    CACHE_VARIABLE,
    STATE,
    IndexFault,
    Manifest,
    list_files,
    read_manifest,
    write_json,
    write_manifest,
)
from searchrl_retrieval.index.passages import (
    PassageStore,
    has_passages,
    open_passages,
    write_passages,
)
from searchrl_retrieval.index.work import Previous, Work, sync

_LOCK, _PASSAGES, _FILES = ".lock", "passages", "index"
_PACKAGES = ("searchrl", "searchrl-retrieval", "bm25s", "faiss-cpu", "sentence-transformers")


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

    Raises:
        IndexFault: another process builds here, or has replaced `previous`, the folder holds
            something else, or the disk is full.
        DataError: two passages have the same id.
    """
    began = time.monotonic()
    try:
        _ensure_ours(folder)
        with holding(folder, wait_s):
            if is_kept and find_index(folder):
                return open_index(folder)
            if previous is not None:
                _ensure_current(previous)
            return _build(kind, passages, folder, tuple(sources), previous, began)
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
) -> Index:
    work = folder / BUILDING
    data = work / "data"
    store = _store(passages, work)
    _clear_unless_same(kind, store, work, sources)
    _place(store, data / _PASSAGES)
    store = open_passages(data / _PASSAGES)
    (data / _FILES).mkdir(exist_ok=True)
    extends = None
    if previous is not None and previous.is_of(kind):
        extends = Previous(previous.files, len(previous.passages))
    kind.build(store, Work(data / _FILES, work / "parts", extends))
    manifest = Manifest(
        kind=kind.name,
        kind_version=kind.version,
        settings=dict(kind.built_with),
        fingerprint=store.fingerprint,
        count=len(store),
        sources=sources,
        data=f"data-{uuid.uuid4().hex[:8]}",
        files=list_files(data),
        versions=_versions(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        took_s=round(time.monotonic() - began, 3),
    )
    sync(data)  # or a power cut might leave the manifest and lose what it speaks of
    os.replace(data, folder / manifest.data)
    write_manifest(folder, manifest)
    for old in folder.glob("data-*"):
        if old.name != manifest.data:  # who has mapped its files keeps them
            shutil.rmtree(old, ignore_errors=True)
    shutil.rmtree(work, ignore_errors=True)
    return open_index(folder)


@contextmanager
def holding(folder: Path, wait_s: float = 0) -> Iterator[None]:
    """Hold an index folder: one process at a time builds in it. Readers need no lock."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / _LOCK, timeout=wait_s):
            yield
    except Timeout:
        raise IndexFault(
            f"index '{folder}' is being built by another process; wait for it, or name another "
            "folder with --out"
        ) from None


def _ensure_ours(folder: Path) -> None:
    """Refuse a folder that holds anything but an index: a build deletes what it replaces."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise IndexFault(f"index '{folder}' is a file; name a folder")
    others = {path.name for path in folder.iterdir()} - {_LOCK, BUILDING}
    # A build that is killed before its first manifest leaves `data-…` alone.
    if find_index(folder) or all(name.startswith("data-") for name in others):
        return
    raise IndexFault(
        f"'{folder}' is a folder with other files in it ({min(others)}, …); name a new one"
    )


def _ensure_current(previous: Index) -> None:
    """Refuse to extend an index that was replaced since it was read: its new passages would go."""
    if read_manifest(previous.folder).data != previous.manifest.data:
        raise IndexFault(
            f"index '{previous.folder}' was changed by another process meanwhile, and nothing was "
            "added to it; give the same command again"
        )


def _store(passages: Iterable[Passage], work: Path) -> PassageStore:
    """The passages as a store beside the build."""
    new = work / "passages.new"
    if new.is_dir():
        shutil.rmtree(new)
    try:
        return write_passages(new, passages)
    except Exception:  # a bad row, say: half of a corpus is of no use
        shutil.rmtree(new, ignore_errors=True)
        raise


def _clear_unless_same(
    kind: IndexKind, store: PassageStore, work: Path, sources: tuple[str, ...]
) -> None:
    """Drop what a killed build left, unless it was this very build."""
    state: dict[str, Any] = {
        "kind": kind.name,
        "kind_version": kind.version,
        "settings": dict(kind.built_with),
        "fingerprint": store.fingerprint,
    }
    try:
        found = json.loads((work / STATE).read_bytes())
    except (OSError, ValueError):
        found = {}
    # As JSON has them: a tuple in the settings comes back as a list.
    if {key: found.get(key) for key in state} != json.loads(json.dumps(state)):
        for name in ("data", "parts"):
            shutil.rmtree(work / name, ignore_errors=True)
    work.mkdir(exist_ok=True)
    write_json(work / STATE, state | {"sources": sources})


def _place(store: PassageStore, target: Path) -> None:
    """Move a store to where the index has its passages."""
    if has_passages(target):
        shutil.rmtree(store.path)
        return
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(store.path, target)


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
