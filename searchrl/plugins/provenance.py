"""Owners of plugins: name, version and hash of the code, and the records of an earlier run.

A hash is that of the bytes of a single file, or of every source file of a package.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import Any

from searchrl.config import RunConfig
from searchrl.config.curriculum import stages_of

_SHORT = 12
"""Hexadecimal digits of a hash that are shown: enough to tell two files apart."""

_GIT_TIMEOUT_S = 5.0


class Origin(StrEnum):
    """The way by which a plugin was loaded."""

    BUILTIN = "builtin"
    """Part of SearchRL."""
    ENTRY_POINT = "entry point"
    """An installed distribution that names the entry-point group `searchrl`."""
    FILE = "file"
    """`--plugin path/to/file.py`."""
    MODULE = "module"
    """`--plugin package.module`."""
    PYTHON = "python"
    """Classes and functions in the settings of a Python program."""


@dataclass(frozen=True, slots=True)
class Owner:
    """One loaded plugin. `name` is unique in a registry and qualifies names: `name:reward`.

    `source` is what `load_plugins` was given (absolute path or module name; empty for built-ins
    and entry points). `sha256` is set for a file, whose hash is that of the bytes that ran.
    """

    name: str
    origin: Origin
    distribution: str = ""
    version: str = ""
    file: str = ""
    source: str = ""
    sha256: str = field(default="", repr=False)
    api: int | None = None

    def __str__(self) -> str:
        return f"plugin {self.name} {self.version}".rstrip()

    @property
    def is_installed(self) -> bool:
        """True for a part of SearchRL, or of an installed distribution that names it."""
        return self.origin in (Origin.BUILTIN, Origin.ENTRY_POINT)

    def answers_to(self, qualifier: str) -> bool:
        """Return True if `qualifier` is its name or its distribution's."""
        wanted = canonical(qualifier)
        return wanted in {canonical(self.name), canonical(self.distribution)} and bool(wanted)


def canonical(name: str) -> str:
    """A distribution name as PyPI compares them: lower case, runs of `-_.` are one `-`."""
    return re.sub(r"[-_.]+", "-", name).lower()


def hash_bytes(data: bytes) -> str:
    """SHA-256 as hexadecimal text."""
    return hashlib.sha256(data).hexdigest()


def find_file(plugin: object) -> str:
    """The source file of a plugin, which is a module or an object with hook methods."""
    if isinstance(plugin, ModuleType):
        return plugin.__file__ or ""
    name = plugin.__module__ if isinstance(plugin, type) else type(plugin).__module__
    return getattr(sys.modules.get(name), "__file__", "") or ""


def hash_owner(owner: Owner) -> str:
    """The SHA-256 of a plugin's code: its file, or all Python files of its package."""
    if owner.sha256 or not owner.file:
        return owner.sha256
    path = Path(owner.file)
    folder = path.parent
    if not (folder / "__init__.py").is_file():
        return hash_bytes(path.read_bytes())
    while (folder.parent / "__init__.py").is_file():
        folder = folder.parent
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        digest.update(file.relative_to(folder).as_posix().encode() + b"\0")
        digest.update(file.read_bytes() + b"\0")
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class PluginRecord:
    """One plugin as a run recorded it. `names` maps kinds to what it registered."""

    owner: Owner
    names: Mapping[str, Sequence[str]]

    def offers(self, kind: str, name: str) -> bool:
        """Return True if the run had `name` (plain, qualified, under a scheme) from it."""
        head, _, rest = name.partition(":")
        names = self.names.get(kind, ())
        if name in names or f"{head}:" in names:
            return True
        return bool(rest) and self.owner.answers_to(head) and self.offers(kind, rest)

    @property
    def way_back(self) -> str:
        """The command that brings this plugin back as it was."""
        was = self.owner
        if was.origin is Origin.PYTHON:
            told = ", ".join(name for names in self.names.values() for name in names)
            return f"give the same objects ({told}): searchrl.train({{…}}, resume=RUN)"
        if was.distribution:
            return f"`pip install '{was.distribution}=={was.version}'`"
        return f"restore {was.file} (sha256 {was.sha256})"

    def find_change(self, owners: Iterable[Owner]) -> str:
        """A sentence if this plugin is other code now than when the run began, else "".

        Of the built-in plugin only the version is compared: the code of a checkout changes with
        every edit.
        """
        was = self.owner
        same = (owner for owner in owners if canonical(owner.name) == canonical(was.name))
        if (here := next(same, None)) is None:
            return ""
        now = hash_owner(here)
        is_other = here.origin is not Origin.BUILTIN and now != was.sha256
        if here.version == was.version and not is_other:
            return ""
        return (
            f"plugin {was.name} was {was.version or 'code'} (sha256 {was.sha256[:_SHORT]}) "
            f"when the run began and is {here.version or 'code'} (sha256 {now[:_SHORT]}) now; do "
            f"not compare figures from before and after. To have it as it was: {self.way_back}"
        )


def read_records(run_dir: str | Path | None, config: RunConfig) -> tuple[PluginRecord, ...]:
    """The recorded plugins of the run in `run_dir` that its config needs; empty without records.

    A damaged file is a file without records: whoever reads the run says that it is damaged.
    """
    path = Path(run_dir) / "provenance.json" if run_dir is not None else None
    if path is None or not os.path.isfile(path):
        return ()
    try:
        rows = json.loads(path.read_text("utf-8"))["plugins"]
        records = [_read_record(row) for row in rows]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return ()
    used = {(part.kind, part.name) for part in config.parts()}
    for task in config.tasks:
        texts = (str(text) for _, text in stages_of(task.reward))
        words = re.findall(r"[\w.\-]+:\w+|\w+", " ".join((*texts, *task.metrics)))
        used |= {("reward", word) for word in words}
    return tuple(
        record
        for record in records
        if record.owner.source in config.plugins
        or record.owner.origin is Origin.PYTHON
        or any(record.offers(*one) for one in used)
    )


def _read_record(row: Mapping[str, Any]) -> PluginRecord:
    known = {key: row[key] for key in Owner.__slots__ if row.get(key)}
    # Nobody asks the records of other plugins for their origin.
    origin = Origin.PYTHON if row.get("origin") == Origin.PYTHON else Origin.MODULE
    owner = Owner(**known | {"name": row["plugin"], "origin": origin})
    return PluginRecord(owner, row.get("names", {}))


def find_commit(folder: Path, tracked: str = ".") -> str | None:
    """The commit of a folder; None if unknown, or if git does not know the file `tracked` in it."""
    # Never the program that a repository names to watch its files.
    git = ["git", "-c", "core.fsmonitor=false", "-C", str(folder)]
    outputs = []
    for words in (["ls-files", "--error-unmatch", tracked], ["rev-parse", "HEAD"]):
        try:
            answer = subprocess.run(
                [*git, *words], capture_output=True, text=True, timeout=_GIT_TIMEOUT_S, check=True
            )
        except (OSError, subprocess.SubprocessError):
            return None
        outputs.append(answer.stdout.strip())
    return outputs[-1]
