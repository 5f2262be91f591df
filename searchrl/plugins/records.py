"""The plugins of an earlier run: what the run recorded, and what is missing or changed now.

Owns reading the records from a run folder's `provenance.json`, choosing those that the run's config
needs, and the messages: what is missing, what has another version now, how to get it back. It loads
no plugin. The CLI and the programs pass the records to `load_plugins(…, recorded=…)`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from searchrl.config.policy import MODEL, is_registered, policy_name
from searchrl.errors import PluginError
from searchrl.plugins.owners import Origin, Owner, canonical, find_installed, hash_owner

_SHORT = 12
"""Hexadecimal digits of a hash that are shown: enough to tell two files apart."""


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

    @classmethod
    def parse(cls, row: Mapping[str, Any]) -> PluginRecord:
        """Read one row of `provenance.json`; what an older searchrl did not write stays empty."""
        return cls(**{key: row[key] for key in cls.__slots__ if row.get(key) is not None})

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
            if self.installed_from:
                return f"`pip install '{self.installed_from}'` (it was not from an index)"
            return f"`pip install '{self.distribution}=={self.version}'`"
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
            now = f"which is here as version {here.version}" if here.version else "which is loaded"
            fate = f"{now} and does not offer it any more. To have it as it was"
        elif canonical(self.plugin) in map(canonical, failed):
            fate = "which failed to load. Fix it, or to have it as it was"
        elif self.distribution and find_installed(self.distribution) is None:
            fate = "which is not installed now. To get it back"
        elif self.distribution:
            fate = "which is installed but not loaded now. To have it as it was"
        else:
            fate = f"of the file {self.file}, which is not loaded now. To get it back"
        return f"The run had it from {self}, {fate}: {self.way_back}"

    def find_change(self, owners: Iterable[Owner]) -> str:
        """Say that the plugin changed since the run began, or "" if it did not.

        For the built-in plugin only the version is compared: the code of a checkout changes with
        every edit.
        """
        here = self._find(owners)
        if here is None:
            return ""
        facts = hash_owner(here)
        is_other_version = here.version != self.version
        can_compare = facts["hash_of"] == self.hash_of and here.origin is not Origin.BUILTIN
        is_other_code = can_compare and facts["sha256"] != self.sha256
        if not is_other_version and not is_other_code:
            return ""
        was, now = (
            f"{version or 'code'} (sha256 {digest[:_SHORT]})"
            for version, digest in ((self.version, self.sha256), (here.version, facts["sha256"]))
        )
        return (
            f"plugin {self.plugin} was {was} when the run began and is {now} now; do not compare "
            f"figures from before and after. To have it as it was: {self.way_back}"
        )

    def find_takeover(self, kind: str, name: str, owner: Owner) -> str:
        """Say that a name which the run had from this plugin is another one's now, or ""."""
        if canonical(owner.name) == canonical(self.plugin):
            return ""  # `find_change` looks at its code
        was = f"{self} ({self._describe(self.sha256)})"
        now = f"{owner} ({self._describe(hash_owner(owner)['sha256'])})"
        return (
            f"{kind} '{name}' was of {was} when the run began and is of {now} now; do not compare "
            f"figures from before and after. To have it as it was: {self.way_back}"
        )

    @staticmethod
    def _describe(digest: str) -> str:
        return f"sha256 {digest[:_SHORT]}" if digest else "of unknown code"

    def _find(self, owners: Iterable[Owner]) -> Owner | None:
        return next((o for o in owners if canonical(o.name) == canonical(self.plugin)), None)


def read_records(run_dir: str | Path | None, config: Mapping[str, Any]) -> tuple[PluginRecord, ...]:
    """The recorded plugins of the run in `run_dir` that its config needs; empty without records.

    A damaged file is a file without records.

    `config` is the tree as plain values; its names and expressions decide what is needed.
    """
    path = Path(run_dir) / "provenance.json" if run_dir is not None else None
    if path is None or not os.path.isfile(path):
        return ()
    try:
        rows = json.loads(path.read_text("utf-8"))["plugins"]
        records = [PluginRecord.parse(row) for row in rows]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return ()  # whoever reads the run says that the file is damaged
    used = tuple(dict.fromkeys(_used_names(config)))
    sources = config.get("plugins") or ()
    found = []
    for record in records:
        own = tuple(pair for pair in used if record.offers(*pair))
        if own or record.source in sources:
            found.append(replace(record, used=own))
    return tuple(found)


def ensure_sources(recorded: Iterable[PluginRecord], sources: Sequence[str]) -> None:
    """Raise `PluginError` if a file or module that the run was started with is gone.

    The error says what it provided and how to get it back.
    """
    lost = [r for r in recorded if r.source and r.source in sources and not _is_there(r)]
    if lost:
        lines = [
            f"{record} ({record.source}) is gone; the run had {_list_names(record.names)} from it. "
            f"To get it back: {record.way_back}"
            for record in lost
        ]
        raise PluginError(
            "the run was started with plugins that cannot be loaded now:\n"
            + "\n".join(lines)
            + "\nIf a file was only moved, give `searchrl eval` and `searchrl ask` its new path "
            "with --plugin; for other commands, change `plugins` in the run's config.yaml"
        )


def _is_there(record: PluginRecord) -> bool:
    if record.origin == Origin.FILE:
        return os.path.isfile(record.source)
    try:
        return importlib.util.find_spec(record.source) is not None
    except ModuleNotFoundError:  # its package is gone
        return False


def _list_names(names: Mapping[str, Sequence[str]]) -> str:
    """`env 'rivers', reward 'em' and 'f1'`."""
    parts = [f"{kind} {' and '.join(repr(n) for n in found)}" for kind, found in names.items()]
    return ", ".join(parts) or "nothing"


def _used_names(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(kind, name) of everything that a config names; of an expression, every possible name."""
    for task in config.get("tasks") or ():
        for kind in ("env", "protocol", "retriever"):
            yield kind, str(task[kind]["name"])
        if "judge" in task:  # runs of older releases have none
            yield "judge", str(task["judge"]["name"])
        reward = task["reward"]
        texts = [reward] if isinstance(reward, str) else [stage["expr"] for stage in reward]
        for text in (*texts, *task["metrics"]):
            for word in re.findall(r"[\w.\-]+:\w+|\w+", text):
                yield "reward", word
    policy = policy_name(config.get("policy", MODEL))
    if is_registered(policy):
        yield "policy", policy
    yield "algorithm", str(config["algorithm"]["name"])
    yield "generator", str(config["engine"]["generator"]["name"])
    for tracker in config["log"]["trackers"]:
        yield "tracker", str(tracker["name"])
    for name in config.get("alarms", {}).get("watch", ()):  # runs of older releases have none
        yield "alarm", str(name)
