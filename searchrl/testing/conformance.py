"""The conformance checker: finds what a name means and holds it to the criteria of its kind."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from searchrl.errors import ConfigError, PluginError, SearchRLError, UnknownNameError, suggest
from searchrl.hookspecs import HOOKS
from searchrl.plugins import load_plugins
from searchrl.plugins.loading import absolute_source
from searchrl.plugins.provenance import Origin
from searchrl.plugins.registry import Entry, PluginFailure, Registry
from searchrl.testing.criteria import (
    Criterion,
    Finding,
    Problem,
    Report,
    Result,
    criterion,
)
from searchrl.testing.kit.subject import GIVE, Subject
from searchrl.testing.running import TIMEOUT_S, find_place, run_criteria

CHECKED = tuple(kind for kind in HOOKS if kind != "command")
"""The kinds that have criteria: a command may do anything."""
SLOW_S = 1800.0
"""Seconds for a criterion of a generator with settings: they may be those of a server to start."""
Settings = Mapping[str, Any]


@criterion("N1")
def _has_its_own_name(subject: Subject) -> Iterator[Problem]:
    kind, name = subject.entry.kind, subject.entry.name
    same = [one for one in subject.registry.entries() if (one.kind, one.name) == (kind, name)]
    if Origin.BUILTIN in {one.owner.origin for one in same} - {subject.entry.owner.origin}:
        yield Problem(f"{kind} '{name}' is built in; the plain name is refused")


def criteria_of(kind: str) -> tuple[Criterion, ...]:
    """The criteria of a plugin kind, in order, and the one of every name."""
    module = importlib.import_module(f"searchrl.testing.kinds.{kind}s")
    criteria = [value for value in vars(module).values() if isinstance(value, Criterion)]
    criteria.sort(key=lambda one: int(one.number[1:]))
    return (*criteria, _has_its_own_name)


def check_entry(registry: Registry, entry: Entry, settings: Settings | None = None) -> Report:
    """Check a name against every criterion of its kind; `settings` are the factory's own.

    Raises `ConfigError` for settings that the factory does not take. All else that the plugin
    raises is a finding.
    """
    wanted = criteria_of(entry.kind)
    file, line = entry.owner.file, entry.line
    try:
        subject = Subject.of(registry, entry, settings)
    except ConfigError as error:
        if settings:
            raise
        note = f"{error}; {GIVE}"
        results = tuple(Result.of(one, note=note, is_checked=False) for one in wanted)
    except SearchRLError as error:  # of a lazy string that names nothing, say
        place = find_place(error.__cause__ or error, file, line)
        note = f"it could not be loaded ({wanted[0].number})"
        loaded = Result.of(wanted[0], Finding(str(error), "fix what it names", *place))
        results = (loaded, *(Result.of(other, note=note) for other in wanted[1:]))
    else:
        timeout_s = SLOW_S if entry.kind == "generator" and settings else TIMEOUT_S
        results = run_criteria(wanted, subject, file=file, line=line, timeout_s=timeout_s)
    return Report(entry.kind, entry.title, str(entry.owner), file, line, results)


def is_file(what: str) -> bool:
    """True for a plugin file, False for a name, also if it is one under a scheme (`mcp:a.py`)."""
    return ":" not in what[2:] and (what.endswith(".py") or "/" in what or "\\" in what)


def find_entries(registry: Registry, what: str, kind: str = "") -> tuple[Entry, ...]:
    """The entries of a `kind`, or of any, that `what` names.

    It is a name (of any kind: all that have it), `plugin:name`, `kind:name`, the name of a plugin
    or the path of its file (all that it registers). Raises ConfigError for a kind that there is
    not, UnknownNameError with near matches, and PluginError if two plugins offer the name, or the
    file registers nothing of the kind.
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
    entries: list[Entry] = []
    for one in kinds:
        with contextlib.suppress(UnknownNameError):
            entries.append(registry.get(one, what))
    if not entries:
        owned = (entry for entry in registry.entries() if entry.owner.answers_to(what))
        entries = [entry for entry in owned if entry.kind in kinds]
    if not entries:
        known = {name for k in kinds for name in registry.names(k)}
        lost = "".join(f"\nNot loaded: {failure}" for failure in registry.failures)
        hint = suggest(what, known)
        raise UnknownNameError(f"unknown {kind or 'plugin'} name {what!r}.{hint}{lost}")
    return tuple(entries)


def find_failures(registry: Registry, what: str) -> tuple[PluginFailure, ...]:
    """Reasons why the file `what` could not be loaded; empty if it was, or if `what` is a name."""
    path = absolute_source(what) if is_file(what) else ""
    return tuple(f for f in registry.failures if path and path in (f.source, f.file))


def check_plugin(
    what: str, *, kind: str = "", settings: Settings | None = None, plugins: Sequence[str] = ()
) -> list[Report]:
    """Check every name that `what` means against the criteria of its kind; one report per name.

    Args:
        what: a plugin file, the name of a plugin, or a registered name, as for `searchrl check`.
        kind: check names of this kind only.
        settings: the factory's own.
        plugins: plugin files or modules to load that are not installed.

    Raises `PluginError` if the plugin cannot be loaded, with the line, or registers nothing, and
    `UnknownNameError` if there is no such name.
    """
    registry = load_plugins([*plugins, *([what] if is_file(what) else [])])
    for failure in find_failures(registry, what):
        raise PluginError(f"not loaded: {failure}\n{failure.detail}".rstrip())
    entries = find_entries(registry, what, kind)
    return [check_entry(registry, entry, settings) for entry in entries]


def assert_conforms(
    what: str, *, kind: str = "", settings: Settings | None = None, plugins: Sequence[str] = ()
) -> None:
    """Raise AssertionError with every finding unless all criteria hold; see `check_plugin`."""
    lines: list[str] = []
    for report in check_plugin(what, kind=kind, settings=settings, plugins=plugins):
        for result in report.failed:
            lines.append(
                f"{report.kind} '{report.name}': {result.number} does not hold: it {result.title}"
            )
            for finding in result.findings:
                lines += [f"  {finding.where}: {finding.what}", f"    to fix it: {finding.fix}"]
            lines.append(f"  why it matters: {result.why}")
    if lines:
        raise AssertionError("\n".join(lines))
