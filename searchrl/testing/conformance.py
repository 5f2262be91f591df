"""The conformance checker: the criteria of a registered name, and what a name means.

Owns the way from what somebody types (a name, a file) to entries of a registry, and from an entry
to its `Report`. The criteria of a kind are imported when they are needed, so that checking a reward
imports no environment. `searchrl check` and authors' tests call it.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from searchrl.errors import ConfigError, PluginError, SearchRLError, UnknownNameError, suggest
from searchrl.hookspecs import HOOKS
from searchrl.plugins.loading import absolute_source
from searchrl.plugins.registry import Entry, PluginFailure, Registry
from searchrl.rewards.expression import RewardSchedule
from searchrl.testing import criteria
from searchrl.testing.criteria import Criterion, Finding, Report
from searchrl.testing.kit.subject import Subject

_MODULES = {
    "env": ("envs.tasks", "envs.episodes", "envs.choices", "envs.drawings"),
    "protocol": ("protocols", "envs.drawings"),
    "reward": ("rewards", "envs.drawings"),
    "policy": ("policies",),
}
"""Kind -> the modules of `testing.kinds` with its criteria, where they are not one `<kind>s`."""

CHECKED = tuple(kind for kind in HOOKS if kind != "command")
"""The kinds that have criteria: a command may do anything."""


def criteria_of(kind: str) -> tuple[Criterion, ...]:
    """The criteria of a plugin kind, in order."""
    names = _MODULES.get(kind, (f"{kind}s",))
    modules = [importlib.import_module(f"searchrl.testing.kinds.{name}") for name in names]
    return tuple(one for module in modules for one in criteria.criteria_in(vars(module)))


Run = Callable[[Subject], tuple[criteria.Result, ...]]
"""Checks a subject against the criteria of its kind."""


def run_here(subject: Subject) -> tuple[criteria.Result, ...]:
    """Check a subject in this process."""
    entry = subject.entry
    wanted = criteria_of(entry.kind)
    return criteria.run_criteria(wanted, subject, file=entry.owner.file, line=entry.line)


def check_entry(
    registry: Registry,
    entry: Entry,
    settings: Mapping[str, Any] | None = None,
    run: Run = run_here,
) -> Report:
    """Check a registered name against every criterion of its kind.

    Args:
        registry: where the entry is from.
        entry: what `registry.get` or `find_entries` returned.
        settings: the factory's own, as a configuration would have them.
        run: what checks it; `apart.run_apart` does it in a process that can be killed.

    Raises:
        ConfigError: for settings that the factory does not take. Nothing else that the plugin does
            is raised: it is a finding.
    """
    wanted = criteria_of(entry.kind)
    file, line = entry.owner.file, entry.line
    try:
        subject = Subject.of(registry, entry, settings)
    except ConfigError:
        raise
    except SearchRLError as error:  # what a lazy string names cannot be imported, say
        place = criteria.find_place(error.__cause__ or error, file, line)
        finding = Finding(str(error), "fix what it names", *place)
        first, *others = wanted
        note = f"it could not be loaded ({first.number})"
        results = (first.result(finding), *(other.result(note=note) for other in others))
    else:
        results = run(subject)
    warnings = tuple(_find_warnings(registry, entry))
    return Report(entry.kind, entry.title, str(entry.owner), file, line, results, warnings)


def _find_warnings(registry: Registry, entry: Entry) -> Iterator[str]:
    """What a user of the plugin will run into though all criteria hold."""
    for other in registry.rivals(entry):
        yield (
            f"the name is taken: {other.owner} ({other.where}) registers the {other.kind} "
            f"'{other.name}' too. Neither wins, so --{other.kind} "
            f"{other.name} is refused wherever both are installed; choose another name, or tell "
            f"users to write '{entry.qualified}'"
        )
    if reward := entry.options.get("reward"):
        try:
            RewardSchedule.parse(reward, registry.spellings("reward"))
        except ConfigError as error:
            yield f"its default reward cannot be used: {error}"


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
    if kind and kind not in CHECKED:
        raise ConfigError(f"there is no kind {kind!r} to check.{suggest(kind, CHECKED)}")
    kinds = (kind,) if kind else CHECKED
    if is_file(what):
        path = absolute_source(what)
        listed = [e for e in registry.entries() if e.owner.file == path and e.kind in kinds]
        if not listed and not find_failures(registry, what):
            raise PluginError(f"{path} registers no {' and no '.join(kinds)}; nothing to check")
        return tuple(listed)
    head, _, rest = what.partition(":")
    if rest and head in kinds:
        return (registry.get(head, rest),)
    found: list[Entry] = []
    for one in kinds:
        with contextlib.suppress(UnknownNameError):
            found.append(registry.get(one, what))
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
    path = absolute_source(what)
    return tuple(f for f in registry.failures if path in (f.source, f.file))
