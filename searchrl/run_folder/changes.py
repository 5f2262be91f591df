"""Changes of the data files, weights and plugins that a run rests on.

Steps before and after a change are no longer of one run, so it has to be allowed, and is then
recorded (`changes` in `provenance.json`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from searchrl.config import RunConfig
from searchrl.config.packaged import EMBEDDED, find_packaged
from searchrl.errors import ChangedError
from searchrl.plugins import Registry
from searchrl.plugins.provenance import read_records
from searchrl.run_folder.manifest import hash_file
from searchrl.run_folder.reader import Run, read_or_empty

CACHE_SETTING = "cache"
"""The setting that names the file or folder in which answers of a server are kept."""
RECORDING = {"inner", "file"}
"""The settings of `recorded`, which keeps answers in a file. It writes nothing with `replay`."""
WHOLE_BYTES = 64 << 20
"""Files up to this size are hashed whole; of larger ones `NUM_PARTS` parts of `PART_BYTES`."""
NUM_PARTS, PART_BYTES = 64, 1 << 20

_FACTS = {
    "data": "the data",
    "weights": "the embedded policy",
    "tasks": "the number of tasks in split",
}
"""Names of the facts in a sentence."""


def describe_sources(config: RunConfig, num_tasks: Mapping[str, int]) -> dict[str, Any]:
    """Facts of the provenance about data (hash by absolute path), weights (hash by name) and tasks.

    Data are all files and folders, but for caches, that a setting of a task's environment,
    retriever, protocol and judge names, one of the algorithm, or `sft.traces`; weights are those of
    a policy that a package brings.
    """
    parts = [p for task in config.tasks for p in (task.env, task.retriever, task.protocol)]
    settings = [part.settings for part in (*parts, *(task.judge for task in config.tasks))]
    settings.append(config.algorithm.settings)
    name = EMBEDDED if config.model.name == "tiny" else config.model.name
    folder = find_packaged(name)
    return {
        "data": {str(path): _hash(path) for path in _paths_in([*settings, config.sft.traces])},
        "weights": {} if folder is None else {name: _hash(folder)},
        "tasks": dict(num_tasks),
    }


def find_changes(
    recorded: Mapping[str, Any], now: Mapping[str, Any], registry: Registry
) -> list[str]:
    """Describe each thing that is not what it was in a sentence."""
    changes = list(registry.changes)
    for fact, what in _FACTS.items():
        for name, was in recorded.get(fact, {}).items():
            if (value := now[fact].get(name)) != was:
                told = "not there" if value is None else str(value)[:12]
                changes.append(f"{what} '{name}' was {str(was)[:12]} and is {told} now")
    return changes


def ensure_unchanged(
    run: Run, config: RunConfig, registry: Registry, num_tasks: Mapping[str, int], *, allow: bool
) -> dict[str, Any]:
    """Look whether a run that is resumed still has what it began with.

    Returns the new facts of its provenance, empty if nothing has changed. A damaged or missing
    provenance says nothing, so nothing is compared. Raises `ChangedError` if something has changed
    and `allow` is not set.
    """
    recorded = read_or_empty(lambda: run.provenance)  # whoever reads a damaged one says so
    if not registry.recorded:
        registry = replace(registry, recorded=read_records(run.path, config))
    now = describe_sources(config, num_tasks)
    changes = find_changes(recorded, now, registry)
    if not changes:
        return {}
    if not allow:
        told = "".join(f"\n  {change}" for change in changes)
        raise ChangedError(
            f"'{run.path}' is not continued, because what it rests on has changed since it began:"
            f"{told}\nPut it back as it was, or go on with --allow-change: the run then records "
            "that its steps are not all of one kind"
        )
    change = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "what": changes}
    return {
        "plugins": registry.provenance(),
        "changes": [*recorded.get("changes", ()), change],
        **now,
    }


def _paths_in(value: Any) -> Iterator[Path]:
    if isinstance(value, str):
        name = value.removeprefix("@")  # as instructions name the file with their text
        try:
            if name and os.path.exists(name):
                yield Path(name).absolute()
        except (OSError, ValueError):  # a text, and no name that a file can have
            return
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            # What was answered before grows while a run works, unless it is what is replayed.
            is_recorded = key == "file" and value.keys() >= RECORDING
            if key != CACHE_SETTING and not (is_recorded and value.get("replay") is not True):
                yield from _paths_in(inner)
    elif isinstance(value, Sequence):
        for inner in value:
            yield from _paths_in(inner)


def _hash(path: Path) -> str:
    """SHA-256 of a file, or of all names and files in a folder; "" where it cannot be read."""
    digest = hashlib.sha256()
    try:
        if path.is_dir():
            for inner in sorted(one for one in path.rglob("*") if one.is_file()):
                digest.update(f"{inner.relative_to(path).as_posix()}\0{_hash(inner)}\0".encode())
            return digest.hexdigest()
        if not path.is_file():  # a device or a pipe has no content to compare
            return ""
        size = path.stat().st_size
        if size <= WHOLE_BYTES:
            return hash_file(path)
        digest.update(str(size).encode())
        with path.open("rb") as file:
            for part in range(NUM_PARTS):
                file.seek(part * (size - PART_BYTES) // (NUM_PARTS - 1))
                digest.update(file.read(PART_BYTES))
    except (OSError, UnicodeEncodeError):
        return ""
    return digest.hexdigest()
