"""`searchrl check`: checks what a plugin registers against numbered criteria.

Owns the report for people and for machines. The criteria, and what a name or a file means, are
`searchrl.testing`. A file that cannot be loaded is a finding, like any other. Torch is imported
for algorithms and generators only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shlex
import sys
from collections.abc import Sequence
from functools import reduce
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.text import Text

from searchrl.cli import options
from searchrl.cli.lines import print_json
from searchrl.cli.options import Command, option
from searchrl.cli.screen.next_command import show_next
from searchrl.cli.terminal import make_console, show_finding
from searchrl.config import merge, parse_set
from searchrl.config.sections import TaskConfig
from searchrl.errors import ConfigError
from searchrl.plugins import Entry, PluginFailure, Registry, load_plugins
from searchrl.plugins.loading import absolute_source

if TYPE_CHECKING:
    from searchrl.testing.criteria import Report

_SETTINGS_OF = {
    **{kind: kind for kind in ("env", "protocol", "retriever", "judge")},
    "algorithm": "algorithm.settings",
    "generator": "engine.generator",
}
"""Where a configuration has the settings of a kind's factory."""

_INDENT = 9
_MARKS = {"passed": ("✓", "green"), "failed": ("✗", "red"), "not applicable": ("·", "dim")}


@click.command(cls=Command)
@click.argument("what", metavar="NAME|FILE")
@option("--kind", metavar="KIND", help="Look among the names of one kind only: env, reward, ….")
@option(
    "--set", multiple=True, metavar="K=V", help="A setting of what is checked, such as max_turns=6."
)
@options.PLUGIN
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
    settings: dict[str, Any] = reduce(merge, map(parse_set, values["set"]), {})
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
    found = describe(reports, failures)
    if console is None:
        print_json(found, indent=2)
    else:
        for failure in failures:
            _show_failure(console, failure)
        results = [result for report in reports for result in report.results]
        counts = {status: sum(r.status == status for r in results) for status in _MARKS}
        said = [f"{count} {status}" for status, count in counts.items() if count]
        said += ["not loaded"] if failures else []
        console.print(", ".join(said), style="bold green" if found["is_good"] else "bold red")
        if found["is_good"]:
            then = _next_command(registry, entries[0], values["set"], sources)
        else:
            words = ["searchrl", "check", what]
            words += [word for source in named for word in ("--plugin", source)]
            words += ["--kind", values["kind"]] if values["kind"] else []
            words += [word for text in values["set"] for word in ("--set", text)]
            then = f"fix it, then run  {shlex.join(words)}"
        if then:
            show_next(console, then)
    if not found["is_good"]:
        sys.exit(1)


def describe(reports: list[Report], failures: tuple[PluginFailure, ...]) -> dict[str, Any]:
    """Everything that was found, as JSON-able values."""
    return {
        "is_good": not failures and all(report.is_good for report in reports),
        "not_loaded": [dataclasses.asdict(failure) for failure in failures],
        "reports": [
            {"is_good": report.is_good, **dataclasses.asdict(report)} for report in reports
        ],
    }


def _show_report(console: Console, report: Report) -> None:
    where = f"{report.file}:{report.line}"
    console.print(
        Text.assemble((f"{report.kind} {report.name}", "bold"), f"  {report.plugin}  {where}")
    )
    for note, group in groupby(report.results, key=lambda result: result.note):
        results = list(group)
        if note and len(results) > 1:
            numbers = f"{results[0].number} to {results[-1].number}"
            console.print(Text(f"  {numbers} · not applicable: {note}", "dim"))
        else:
            for result in results:
                mark, style = _MARKS[result.status]
                line = Text.assemble(f"  {result.number:<4}", (mark, style), f" {result.title}")
                console.print(line.append(f"  (not applicable: {note})" if note else "", "dim"))
                for finding in result.findings:
                    show_finding(console, _INDENT, "what", finding.what, "red")
                    show_finding(console, _INDENT, "where", finding.where)
                    show_finding(console, _INDENT, "fix", finding.fix)
                if result.findings:
                    show_finding(console, _INDENT, "why", result.why)
    for warning in report.warnings:
        show_finding(console, _INDENT, "warns", warning, "yellow")
    console.print()


def _show_failure(console: Console, failure: PluginFailure) -> None:
    console.print(Text.assemble((f"plugin {failure.plugin}", "bold"), "  not loaded"))
    show_finding(console, _INDENT, "what", f"it {failure.message}", "red")
    show_finding(
        console,
        _INDENT,
        "where",
        f"{failure.file}:{failure.line}" if failure.line else failure.file,
    )
    show_finding(console, _INDENT, "why", "a plugin registers everything or nothing")
    show_finding(
        console,
        _INDENT,
        "fix",
        failure.fix or "change the line as it says; nothing else is at fault",
    )
    console.print()


def _next_command(
    registry: Registry, first: Entry, settings: Sequence[str], sources: Sequence[str]
) -> str:
    """What to type to use what was checked, the first of several; "" if that is not known."""
    kind = first.kind
    name = first.qualified if registry.rivals(first) else first.title
    if name.endswith(":"):
        if name != "gym:":
            return ""
        name = "gym:FrozenLake-v1"
    plugins = [word for source in sources for word in ("--plugin", source)]
    section = _SETTINGS_OF.get(kind)
    if kind == "tracker" and settings:
        own: dict[str, Any] = reduce(merge, map(parse_set, settings), {})
        settings, tracker = (), f"[{json.dumps({'name': name, **own})}]"
    else:
        tracker = name
    section = f"alarms.watch.{name}" if kind == "alarm" else section
    flags = [word for text in settings if section for word in ("--set", f"{section}.{text}")]
    scripted = ["--env", "regulations", "--policy", "scripted"]
    if kind == "reward" and first.name in TaskConfig().metrics:
        scripted += ["--set", "tasks.0.metrics=[]"] if name != first.name else []
    step = ["--model", "tiny", "--max-steps", "1"]
    words = {
        "env": ["play", "--env", name],
        "protocol": ["play", "--env", _env_for(registry, name), "--protocol", name],
        "reward": ["eval", *scripted, "--reward", f"em+{name}" if first.is_of_group else name],
        "judge": ["eval", *scripted, "--reward", "judge", "--set", f"judge={name}"],
        "retriever": ["eval", *scripted, "--retriever", name],
        "alarm": ["train", *step, "--alarm", name],
        "tracker": ["train", *step, "--set", f"log.trackers={tracker}"],
        "algorithm": ["train", *step, "--algorithm", name],
        "generator": ["bench", "--model", "tiny", "--set", f"engine.generator={name}"],
    }[kind]
    return shlex.join(["searchrl", words[0], *plugins, *words[1:], *flags])


def _env_for(registry: Registry, protocol: str) -> str:
    """An environment that is registered with this protocol as its own, or one that searches."""
    fit = [entry.name for entry in registry.entries() if entry.options.get("protocol") == protocol]
    found = next(iter(fit), "regulations")
    return "gym:FrozenLake-v1" if found == "gym:" else found
