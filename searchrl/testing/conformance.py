"""The conformance checker: which criteria a registered name is held to, and what a name means.

Owns the way from what somebody types (a name, a file) to entries of a registry, and from an entry
to its `Report`. Knows the criteria of no kind: each is imported when it is needed, so that checking
a reward imports no environment. `searchrl check` and authors' tests call it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from searchrl.errors import ConfigError, PluginError, SearchRLError, UnknownNameError, suggest
from searchrl.hookspecs import HOOKS
from searchrl.plugins.registry import Entry, PluginFailure, Registry
from searchrl.testing.criteria import Finding, Report, Result, Status, find_place, run_criteria

_MODULES = {
    "env": ("envs", "EnvSubject", "ENV_CRITERIA"),
    "protocol": ("protocols", "ProtocolSubject", "PROTOCOL_CRITERIA"),
    "reward": ("rewards", "RewardSubject", "REWARD_CRITERIA"),
    "retriever": ("retrievers", "RetrieverSubject", "RETRIEVER_CRITERIA"),
    "tracker": ("trackers", "TrackerSubject", "TRACKER_CRITERIA"),
    "algorithm": ("algorithms", "AlgorithmSubject", "ALGORITHM_CRITERIA"),
    "generator": ("generators", "GeneratorSubject", "GENERATOR_CRITERIA"),
    "command": ("commands", "CommandSubject", "COMMAND_CRITERIA"),
}
"""Kind -> module of `searchrl.testing`, its subject, its criteria."""


def check_entry(
    registry: Registry, entry: Entry, settings: Mapping[str, Any] | None = None
) -> Report:
    """Hold a registered name to every criterion of its kind.

    Args:
        registry: where the entry is from.
        entry: what `registry.get` or `find_entries` returned.
        settings: the factory's own, as a configuration would have them.

    Raises:
        ConfigError: for settings that the factory does not take. Nothing else that the plugin does
            is raised: it is a finding.
    """
    module_name, subject_name, criteria_name = _MODULES[entry.kind]
    module = importlib.import_module(f"searchrl.testing.kinds.{module_name}")
    criteria = getattr(module, criteria_name)
    file, line = entry.owner.file, entry.line
    try:
        subject = getattr(module, subject_name).of(registry, entry, settings)
    except ConfigError:
        raise
    except SearchRLError as error:  # what a lazy string names cannot be imported, say
        place = find_place(error.__cause__ or error, file, line)
        finding = Finding(str(error), "mend what it names", *place)
        first, *others = criteria
        results = (
            Result(first.number, first.title, first.why, Status.FAILED, (finding,)),
            *(_skip(other, f"it could not be loaded ({first.number})") for other in others),
        )
    else:
        results = run_criteria(criteria, subject, file=file, line=line)
    name = f"{entry.name}{entry.argument}"
    return Report(entry.kind, name, str(entry.owner), file, line, results)


def _skip(criterion: Any, note: str) -> Result:
    return Result(
        criterion.number, criterion.title, criterion.why, Status.NOT_APPLICABLE, note=note
    )


def is_file(what: str) -> bool:
    """Whether somebody means a plugin file, not a name."""
    return what.endswith(".py") or "/" in what or "\\" in what


def find_entries(registry: Registry, what: str, kind: str = "") -> tuple[Entry, ...]:
    """The entries that somebody means.

    Args:
        registry: with the file loaded, if `what` is one.
        what: a name (of any kind: all that have it), `plugin:name`, `kind:name`, the name of a
            plugin or the path of its file (all that it registers).
        kind: look among these only.

    Raises:
        ConfigError: for a `kind` that there is not.
        UnknownNameError: if there is no such name, with near matches.
        PluginError: if two plugins offer the name, or the file registers nothing of the kind.
    """
    if kind and kind not in HOOKS:
        raise ConfigError(f"there is no plugin kind {kind!r}.{suggest(kind, HOOKS)}")
    kinds = (kind,) if kind else tuple(HOOKS)
    if is_file(what):
        path = str(Path(what).expanduser().resolve())
        return _all_of(registry, path, kinds) if not find_failures(registry, what) else ()
    head, _, rest = what.partition(":")
    if rest and head in HOOKS and head in kinds:
        return (registry.get(head, rest),)
    found = [entry for k in kinds if (entry := _get(registry, k, what)) is not None]
    found = found or [e for e in registry.entries() if e.kind in kinds and e.owner.answers_to(what)]
    if not found:
        known = {name for k in kinds for name in registry.names(k)}
        lost = "".join(f"\nNot loaded: {failure}" for failure in registry.failures)
        asked = f"{kind or 'plugin'} name"
        raise UnknownNameError(f"unknown {asked} {what!r}.{suggest(what, known)}{lost}")
    return tuple(found)


def find_failures(registry: Registry, what: str) -> tuple[PluginFailure, ...]:
    """Why the file `what` could not be loaded; empty if it was, or if `what` is a name."""
    if not is_file(what):
        return ()
    path = str(Path(what).expanduser().resolve())
    return tuple(f for f in registry.failures if path in (f.source, f.file))


def _get(registry: Registry, kind: str, name: str) -> Entry | None:
    try:
        return registry.get(kind, name)
    except UnknownNameError:
        return None


def _all_of(registry: Registry, path: str, kinds: tuple[str, ...]) -> tuple[Entry, ...]:
    found = tuple(e for e in registry.entries() if e.owner.file == path and e.kind in kinds)
    if not found:
        raise PluginError(f"{path} registers no {' and no '.join(kinds)}; nothing to check")
    return found
