"""The conformance checker in authors' own tests: as one assertion, or a test per criterion.

Owns `check_plugin`, `assert_conforms` and `conformance_cases`, and the text that a failing test
shows. The criteria are those of `searchrl check`, run by `testing.conformance`. Needs no pytest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from searchrl.errors import PluginError
from searchrl.plugins import load_plugins
from searchrl.plugins.registry import Entry, Registry
from searchrl.testing import conformance
from searchrl.testing.criteria import Criterion, Report, Result

Settings = Mapping[str, Any]
"""The settings of a factory, by name."""


def check_plugin(
    what: str, *, kind: str = "", settings: Settings | None = None, plugins: Sequence[str] = ()
) -> list[Report]:
    """Check every name that `what` means against the criteria of its kind; one report per name.

    Args:
        what: a plugin file, the name of a plugin, or a registered name, as for `searchrl check`.
        kind: check names of this kind only.
        settings: the factory's own.
        plugins: plugin files or modules to load that are not installed.

    Raises:
        PluginError: if the plugin cannot be loaded, with the line; if it registers nothing.
        UnknownNameError: if there is no such name.
    """
    registry, entries = _find(what, kind, plugins)
    return [conformance.check_entry(registry, entry, settings) for entry in entries]


def assert_conforms(
    what: str, *, kind: str = "", settings: Settings | None = None, plugins: Sequence[str] = ()
) -> None:
    """Raise AssertionError with every finding unless all criteria hold; see `check_plugin`."""
    reports = check_plugin(what, kind=kind, settings=settings, plugins=plugins)
    lines = [
        line
        for report in reports
        for result in report.failed
        for line in (f"{report.kind} '{report.name}':", describe_result(result))
    ]
    if lines:
        raise AssertionError("\n".join(lines))


@dataclass(frozen=True, slots=True)
class ConformanceCase:
    """One criterion for one registered name: a test. As text it is the test's id."""

    criterion: Criterion
    entry: Entry
    check_all: Callable[[], Report] = field(repr=False)

    def __str__(self) -> str:
        number = self.criterion.number
        return f"{self.entry.kind}:{self.entry.name}:{number} {self.criterion.title}"

    def check(self) -> None:
        """Raise AssertionError with the findings unless the criterion holds.

        All criteria of the name run when the first of its cases is checked.
        """
        for result in self.check_all().failed:
            if result.number == self.criterion.number:
                raise AssertionError(describe_result(result))


def conformance_cases(
    what: str, *, kind: str = "", settings: Settings | None = None, plugins: Sequence[str] = ()
) -> list[ConformanceCase]:
    """A case per name and criterion, for `pytest.mark.parametrize`; see `check_plugin`.

    Checks nothing yet, so that it may stand where tests are collected:

        @pytest.mark.parametrize("case", conformance_cases("capitals.py"), ids=str)
        def test_conforms(case):
            case.check()
    """
    registry, entries = _find(what, kind, plugins)
    cases = []
    for entry in entries:
        check = cache(partial(conformance.check_entry, registry, entry, settings))
        cases += [ConformanceCase(one, entry, check) for one in conformance.criteria_of(entry.kind)]
    return cases


def describe_result(result: Result) -> str:
    """A criterion that does not hold, in a few lines: what, where, why, how to fix it."""
    lines = [f"{result.number} does not hold: it {result.title}"]
    for finding in result.findings:
        lines += [f"  {finding.where}: {finding.what}", f"    to fix it: {finding.fix}"]
    return "\n".join([*lines, f"  why it matters: {result.why}"])


def _find(what: str, kind: str, plugins: Sequence[str]) -> tuple[Registry, tuple[Entry, ...]]:
    registry = load_plugins([*plugins, *([what] if conformance.is_file(what) else [])])
    for failure in conformance.find_failures(registry, what):
        raise PluginError(f"not loaded: {failure}\n{failure.detail}".rstrip())
    return registry, conformance.find_entries(registry, what, kind)
