"""`searchrl check`: checks what a plugin registers against numbered criteria.

A file that cannot be loaded is a finding, like any other.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.text import Text

from searchrl.cli import options
from searchrl.cli.options import Command, option
from searchrl.config import parse_sets
from searchrl.errors import ConfigError
from searchrl.plugins import load_plugins
from searchrl.plugins.loading import absolute_source
from searchrl.screen.lines import print_json
from searchrl.screen.terminal import make_console, show_finding

if TYPE_CHECKING:
    from searchrl.testing.criteria import Report

_INDENT = 9
_MARKS = {
    "passed": ("✓", "green"),
    "failed": ("✗", "red"),
    "not applicable": ("·", "dim"),
    "not checked": ("?", "yellow"),
}


@click.command(cls=Command)
@click.argument("what", metavar="NAME|FILE")
@option("--kind KIND", "Look among the names of one kind only: env, reward, ….")
@option("--set K=V", "A setting of what is checked, such as max_turns=6.", multiple=True)
@options.PLUGIN
@option("--strict", "What is not checked, for want of settings, counts as a fault.", is_flag=True)
@options.JSON
def check(what: str, **values: Any) -> None:
    """Check a plugin, or any registered name, against the criteria of its kind.

    NAME is a registered name of any kind, also written KIND:NAME or PLUGIN:NAME; a FILE stands for
    everything that it registers. Exit status 1 if something does not hold.

    \b
    Examples:
      searchrl check regulations
      searchrl check my_plugin.py
      searchrl check env:capitals --plugin capitals.py --set max_turns=6
    """
    from searchrl.testing.conformance import check_entry, find_entries, find_failures, is_file

    named = values["plugin"]
    sources = [*named, *([what] if is_file(what) else [])]
    registry = load_plugins([absolute_source(source) for source in sources])
    entries = find_entries(registry, what, values["kind"] or "")
    failures = find_failures(registry, what)
    settings = parse_sets(values["set"])
    if settings and len(entries) != 1:
        names = ", ".join(f"{entry.kind}:{entry.name}" for entry in entries)
        raise ConfigError(f"--set is for one name, and {what} stands for several: {names}")
    console = None if values["json"] else make_console()
    reports = []
    for entry in entries:
        with contextlib.redirect_stdout(sys.stderr):  # what the plugin prints
            reports.append(check_entry(registry, entry, settings))
        if console is not None:
            _show_report(console, reports[-1])
    whole = {
        "is_good": not failures and all(report.is_good for report in reports),
        "is_checked": all(report.is_checked for report in reports),
        "not_loaded": [dataclasses.asdict(failure) for failure in failures],
        "reports": [
            {"is_good": report.is_good, **dataclasses.asdict(report)} for report in reports
        ],
    }
    if console is None:
        print_json(whole, indent=2)
    else:
        for failure in failures:
            console.print(Text.assemble((f"plugin {failure.plugin}", "bold"), "  not loaded"))
            where = f"{failure.file}:{failure.line}" if failure.line else failure.file
            show_finding(console, _INDENT, "what", f"it {failure.message}", "red")
            show_finding(console, _INDENT, "where", where)
            console.print()
        results = [result for report in reports for result in report.results]
        counts = {status: sum(r.status == status for r in results) for status in _MARKS}
        told = [f"{count} {status}" for status, count in counts.items() if count]
        told += ["not loaded"] if failures else []
        console.print(", ".join(told), style="bold green" if whole["is_good"] else "bold red")
    if not whole["is_good"] or (values["strict"] and not whole["is_checked"]):
        sys.exit(1)


def _show_report(console: Console, report: Report) -> None:
    where = f"  {report.plugin}  {report.file}:{report.line}"
    console.print(Text.assemble((f"{report.kind} {report.name}", "bold"), where))
    for note, group in groupby(report.results, key=lambda result: result.note):
        results = list(group)
        mark, style = _MARKS[results[0].status]
        if note and len(results) > 1:
            numbers = f"{results[0].number} to {results[-1].number}"
            console.print(Text(f"  {numbers} {mark} {results[0].status}: {note}", style))
        else:
            for result in results:
                mark, style = _MARKS[result.status]
                line = Text.assemble(f"  {result.number:<4}", (mark, style), f" {result.title}")
                console.print(line.append(f"  ({result.status}: {note})" if note else "", "dim"))
                for finding in result.findings:
                    show_finding(console, _INDENT, "what", finding.what, "red")
                    show_finding(console, _INDENT, "where", finding.where)
                    show_finding(console, _INDENT, "fix", finding.fix)
                if result.findings:
                    show_finding(console, _INDENT, "why", result.why)
    console.print()
