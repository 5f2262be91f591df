"""Whose code it is: the owner of a plugin, its version and hash, and what an earlier run recorded.

Owns how a hash is computed: the bytes of a single file, the RECORD of an installed distribution, or
every source file of a package that runs from a checkout (an editable install's RECORD never changes
when the code does). Owns the messages about a plugin that is missing or changed since a run began,
and the commit of a folder. It loads no plugin. A run folder stores what `Registry.provenance` says.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from searchrl.errors import PluginError

_OF_THE_INSTALLER = re.compile(r'"?(\.\./|[^,]*(\.dist-info|__pycache__)/)')
"""Lines of a RECORD that are not about the package's own files: metadata, compiled files, scripts.
They differ between installers and machines."""

_SHORT = 12
"""Hexadecimal digits of a hash that are shown: enough to tell two files apart."""

_GIT_TIMEOUT_S = 5.0


class Origin(StrEnum):
    """How a plugin came to be loaded."""

    BUILTIN = "builtin"
    """Part of SearchRL."""
    ENTRY_POINT = "entry point"
    """An installed distribution that names the entry-point group `searchrl`."""
    FILE = "file"
    """`--plugin path/to/file.py`."""
    MODULE = "module"
    """`--plugin package.module`."""


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
        """Whether it is a part of SearchRL, or of an installed distribution that names it."""
        return self.origin in (Origin.BUILTIN, Origin.ENTRY_POINT)

    def answers_to(self, qualifier: str) -> bool:
        """Whether `qualifier:name` means this plugin: its name or its distribution's."""
        wanted = canonical(qualifier)
        return wanted in {canonical(self.name), canonical(self.distribution)} and bool(wanted)


def canonical(name: str) -> str:
    """A distribution name as PyPI compares them: lower case, runs of `-_.` are one `-`."""
    return re.sub(r"[-_.]+", "-", name).lower()


def hash_bytes(data: bytes) -> str:
    """SHA-256 as hexadecimal text."""
    return hashlib.sha256(data).hexdigest()


def find_distribution(module_name: str) -> importlib.metadata.Distribution | None:
    """The installed distribution a module belongs to, or None for loose modules."""
    owners = importlib.metadata.packages_distributions().get(module_name.partition(".")[0], [])
    return importlib.metadata.distribution(owners[0]) if owners else None


def find_file(plugin: object) -> str:
    """The source file of a plugin, which is a module or an object with hook methods."""
    if isinstance(plugin, ModuleType):
        return plugin.__file__ or ""
    name = plugin.__module__ if isinstance(plugin, type) else type(plugin).__module__
    module = sys.modules.get(name)
    return (module.__file__ or "") if module is not None else ""


def hash_owner(owner: Owner) -> Mapping[str, str]:
    """Return `{"sha256", "hash_of"}`: `hash_of` is `file`, `RECORD`, `package` or `nothing`."""
    if owner.sha256:
        return {"sha256": owner.sha256, "hash_of": "file"}
    found = _find_installed(owner.distribution)
    # Of an editable install, RECORD does not describe the code.
    if found and not read_origin(owner.distribution).get("dir_info", {}).get("editable", False):
        lines = (found.read_text("RECORD") or "").splitlines()
        own = "\n".join(sorted(line for line in lines if not _OF_THE_INSTALLER.match(line)))
        if own:
            return {"sha256": hash_bytes(own.encode()), "hash_of": "RECORD"}
    if not owner.file:
        return {"sha256": "", "hash_of": "nothing"}
    path = Path(owner.file)
    folder = path.parent
    if not (folder / "__init__.py").is_file():
        return {"sha256": hash_bytes(path.read_bytes()), "hash_of": "file"}
    while (folder.parent / "__init__.py").is_file():
        folder = folder.parent
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        digest.update(file.relative_to(folder).as_posix().encode() + b"\0")
        digest.update(file.read_bytes() + b"\0")
    return {"sha256": digest.hexdigest(), "hash_of": "package"}


def find_url(distribution: str) -> str:
    """Where a distribution was installed from, as pip takes it; "" if from an index, or unknown.

    A folder, an archive or a repository: what `direct_url.json` (PEP 610) says.
    """
    origin = read_origin(distribution)
    url = str(origin.get("url", ""))
    repository = origin.get("vcs_info")
    return f"{repository['vcs']}+{url}@{repository['commit_id']}" if repository else url


def read_origin(distribution: str) -> Mapping[str, Any]:
    """What `direct_url.json` of a distribution says; empty if it has none."""
    found = _find_installed(distribution)
    text = found.read_text("direct_url.json") if found is not None else None
    return dict(json.loads(text or "{}"))


def _find_installed(distribution: str) -> importlib.metadata.Distribution | None:
    try:
        return importlib.metadata.distribution(distribution) if distribution else None
    except importlib.metadata.PackageNotFoundError:
        return None


@contextmanager
def tracing(owner: Owner, what: str, registered: Sequence[Any] | None = None) -> Iterator[None]:
    """With `SEARCHRL_TRACE=1`, print what a plugin does in here, its seconds and what it raised."""
    if os.environ.get("SEARCHRL_TRACE", "0") in ("", "0"):
        yield
        return
    start, fault = time.perf_counter(), ""
    try:
        yield
    except BaseException as error:
        fault = f", then raised {type(error).__name__}"
        raise
    finally:
        seconds = time.perf_counter() - start
        if registered is not None:
            names = [f"{entry.kind} '{entry.name}'" for entry in registered]
            what = f"{what}: {', '.join(names) or 'nothing'}"
        text = f"searchrl trace: {seconds:8.4f} s  {owner}: {what}{fault}"
        print(text, file=sys.stderr, flush=True)


# --- the plugins of an earlier run ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PluginRecord:
    """One plugin as a run recorded it. `names` maps kinds to what it registered.

    `installed_from` is the URL of a package that did not come from an index, else empty.
    """

    plugin: str
    origin: str = ""
    distribution: str = ""
    version: str = ""
    file: str = ""
    source: str = ""
    sha256: str = ""
    hash_of: str = ""
    installed_from: str = ""
    names: Mapping[str, Sequence[str]] = field(default_factory=lambda: MappingProxyType({}))
    used: tuple[tuple[str, str], ...] = ()
    """(kind, name) of those that the run's config uses, as it writes them."""

    def __str__(self) -> str:
        return f"plugin {self.plugin} {self.version}".rstrip()

    def offers(self, kind: str, name: str) -> bool:
        """Whether the run could write `name` (plain, qualified, under a scheme) for this plugin."""
        head, _, rest = name.partition(":")
        names = self.names.get(kind, ())
        if name in names or f"{head}:" in names:
            return True
        own = {canonical(self.plugin), canonical(self.distribution)}
        return bool(rest) and canonical(head) in own and self.offers(kind, rest)

    @property
    def way_back(self) -> str:
        """What to do to have this plugin as it was."""
        if self.distribution:
            wanted = self.installed_from or f"{self.distribution}=={self.version}"
            return f"`pip install '{wanted}'`"
        digest = f" (sha256 {self.sha256})" if self.sha256 else ""
        if self.origin == Origin.MODULE:
            return f"make the module {self.source} importable again: {self.file}{digest}"
        return f"restore the file {self.file}{digest}"

    def explain_loss(self, owners: Iterable[Owner], failed: Iterable[str]) -> str:
        """Say why a name that this plugin provided is unknown now, and how to get it back.

        `owners` are the plugins that are loaded, `failed` the names of those that failed to load.
        """
        here = self._find(owners)
        if here is not None:
            fate = f"is here as version {here.version or '?'} and does not offer it any more"
        elif canonical(self.plugin) in map(canonical, failed):
            fate = "failed to load"
        elif self.distribution and _find_installed(self.distribution) is None:
            fate = "is not installed now"
        else:
            fate = "is not loaded now"
        return f"The run had it from {self}, which {fate}. To get it back: {self.way_back}"

    def find_changes(self, owners: Iterable[Owner], now: Iterable[tuple[str, Owner]]) -> list[str]:
        """What is other code now than when the run began: the plugin, or names of another one now.

        `now` is whose the names are that the run had from this plugin. Of the built-in plugin only
        the version is compared: the code of a checkout changes with every edit.
        """
        pairs = [(f"{what} of {self}", owner) for what, owner in now if not self._is_of(owner)]
        if (here := self._find(owners)) and self._differs_from(here):
            pairs.insert(0, (f"plugin {self.plugin}", here))
        return [
            f"{what} was {self.version or 'code'} (sha256 {self.sha256[:_SHORT]}) when the run "
            f"began and is {owner.version or 'code'} (sha256 "
            f"{hash_owner(owner)['sha256'][:_SHORT]}) of {owner.name} now; do not compare "
            f"figures from before and after. To have it as it was: {self.way_back}"
            for what, owner in pairs
        ]

    def _differs_from(self, owner: Owner) -> bool:
        facts = hash_owner(owner)
        can_compare = facts["hash_of"] == self.hash_of and owner.origin is not Origin.BUILTIN
        is_other_code = can_compare and facts["sha256"] != self.sha256
        return owner.version != self.version or is_other_code

    def _is_of(self, owner: Owner) -> bool:
        return canonical(owner.name) == canonical(self.plugin)

    def _find(self, owners: Iterable[Owner]) -> Owner | None:
        return next(filter(self._is_of, owners), None)


def read_records(run_dir: str | Path | None, config: Mapping[str, Any]) -> tuple[PluginRecord, ...]:
    """The recorded plugins of the run in `run_dir` that its config needs; empty without records.

    A damaged file is a file without records. `config` is the tree as plain values; its names and
    expressions decide what is needed.
    """
    path = Path(run_dir) / "provenance.json" if run_dir is not None else None
    if path is None or not os.path.isfile(path):
        return ()
    keys = PluginRecord.__slots__
    try:
        rows = json.loads(path.read_text("utf-8"))["plugins"]
        records = [PluginRecord(**{k: row[k] for k in keys if row.get(k)}) for row in rows]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return ()  # whoever reads the run says that the file is damaged
    used = tuple(dict.fromkeys(_used_names(config)))
    sources = config.get("plugins") or ()
    needed = (
        replace(record, used=tuple(pair for pair in used if record.offers(*pair)))
        for record in records
    )
    return tuple(record for record in needed if record.used or record.source in sources)


def ensure_sources(recorded: Iterable[PluginRecord], sources: Sequence[str]) -> None:
    """Raise `PluginError` if a file or module that the run was started with is gone.

    The error says what it provided and how to get it back.
    """
    lost = [r for r in recorded if r.source and r.source in sources and not _is_there(r)]
    if lost:
        lines = "\n".join(
            f"{record} ({record.source}) is gone; the run had {_list_names(record.names)} from it. "
            f"To get it back: {record.way_back}"
            for record in lost
        )
        raise PluginError(
            f"the run was started with plugins that cannot be loaded now:\n{lines}\nIf a file was "
            "only moved, give `searchrl eval` and `searchrl ask` its new path with --plugin; for "
            "other commands, change `plugins` in the run's config.yaml"
        )


def _is_there(record: PluginRecord) -> bool:
    if record.origin == Origin.FILE:
        return os.path.isfile(record.source)
    try:
        return importlib.util.find_spec(record.source) is not None
    except ModuleNotFoundError:  # its package is gone
        return False


def _list_names(names: Mapping[str, Sequence[str]]) -> str:
    """`env 'rivers', reward 'em', reward 'f1'`."""
    return ", ".join(f"{kind} {name!r}" for kind, own in names.items() for name in own) or "nothing"


def _used_names(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(kind, name) of everything that a config names; of an expression, every possible name."""
    for task in config.get("tasks") or ():
        for kind in ("env", "protocol", "retriever", "judge"):
            yield kind, str(task[kind]["name"])
        reward = task["reward"]
        texts = [reward] if isinstance(reward, str) else [*reward.values()]
        for text in (*texts, *task["metrics"]):
            for word in re.findall(r"[\w.\-]+:\w+|\w+", text):
                yield "reward", word
    yield "algorithm", str(config["algorithm"]["name"])
    yield "generator", str(config["engine"]["generator"]["name"])
    for tracker in config["log"]["trackers"]:
        yield "tracker", str(tracker["name"])
    for name in config["alarms"]["watch"]:
        yield "alarm", str(name)


# --- commits -------------------------------------------------------------------------------


def find_commit(folder: Path, distribution: str = "") -> str | None:
    """The commit of a folder, `+changes` behind it if tracked files differ; None if unknown.

    `+unchecked` stands there if git would run programs that the repository's own settings name: one
    that came with somebody's runs can name a program as its filter of files.

    With `distribution`, the folder is that of an installed package: the repository it was
    installed from counts, and one that it merely lies in (a virtual environment) does not.
    """
    if distribution:
        _, at, commit = find_url(distribution).rpartition("@")
        if at and commit.isalnum():
            return commit
        if _ask_git(folder, "ls-files", "--error-unmatch", "__init__.py") is None:
            return None
    here = _ask_git(folder, "rev-parse", "HEAD")
    if not here:
        return None
    listed = _ask_git(folder, "config", "--list", "--name-only", "--show-scope")
    own = [line.lower().split("\t") for line in (listed or "local\tfilter.unknown").splitlines()]
    if any(s in ("local", "worktree") and n.startswith(("filter.", "include")) for s, n in own):
        return f"{here}+unchecked"
    words = ("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all")
    return f"{here}+changes" if _ask_git(folder, *words) else here


def _ask_git(folder: Path, *words: str) -> str | None:
    """What git says, or None if it says nothing good."""
    try:
        answer = subprocess.run(
            # Never the program that a repository names to watch its files.
            ["git", "-c", "core.fsmonitor=false", "-C", str(folder), *words],
            capture_output=True,
            text=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
