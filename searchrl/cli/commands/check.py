"""`searchrl check`: checks what a plugin registers against numbered criteria.

Owns the report for people and for machines. The criteria, and what a name or a file means, are
`searchrl.testing`. A file that cannot be loaded is a finding, like any other. Torch is imported
for algorithms and generators only.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from searchrl.cli.group import plugin_sources
from searchrl.cli.json_output import print_json
from searchrl.cli.options import CHECK, GroupedCommand, options
from searchrl.cli.screen.next_command import show_next
from searchrl.cli.terminal import make_console
from searchrl.config import merge, parse_set
from searchrl.config.sections import TaskConfig
from searchrl.contracts import CHOICE_TURNS
from searchrl.errors import ConfigError, SearchRLError
from searchrl.plugins import Entry, PluginFailure, Registry, load_plugins
from searchrl.plugins.loading import absolute_source

if TYPE_CHECKING:
    from searchrl.testing.criteria import Report, Result

_SETTINGS_OF = {
    **{kind: kind for kind in ("env", "protocol", "retriever", "judge", "policy")},
    "algorithm": "algorithm.settings",
    "generator": "engine.generator",
}
"""Where a configuration has the settings of a kind's factory."""

_MARKS = {"passed": ("✓", "green"), "failed": ("✗", "red"), "not applicable": ("·", "dim")}


@click.command(cls=GroupedCommand)
@click.argument("what", metavar="NAME|FILE")
@options(CHECK)
def check(what: str, **values: Any) -> None:
    """Check a plugin, or any registered name, against the criteria of its kind.

    NAME is a registered name of any kind, also written KIND:NAME or PLUGIN:NAME; a FILE stands for
    everything that it registers. Each is checked in a process of its own, which is killed if it
    hangs. Exit status 1 if something does not hold.

    \b
    Examples:
      searchrl check regulations
      searchrl check my_plugin.py
      searchrl check env:capitals --plugin capitals.py --set max_turns=6
    """
    from searchrl.testing.apart import run_apart
    from searchrl.testing.conformance import check_entry, find_entries, find_failures, is_file

    named = [*plugin_sources(click.get_current_context()), *(values["plugin"] or ())]
    sources = [*named, *([what] if is_file(what) else [])]
    registry = load_plugins([absolute_source(source) for source in sources])
    entries = find_entries(registry, what, values["kind"] or "")
    failures = find_failures(registry, what)
    settings: dict[str, Any] = reduce(merge, map(parse_set, values["set"] or ()), {})
    if settings and len(entries) != 1:
        names = ", ".join(f"{entry.kind}:{entry.name}" for entry in entries)
        raise ConfigError(f"--set is for one name, and {what} stands for several: {names}")
    console = None if values["json"] else make_console()
    reports = []
    for entry in entries:
        reports.append(check_entry(registry, entry, settings, run_apart))
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
        then = f"fix it, then run  {_again(what, values, named)}"
        if found["is_good"]:
            then = _next_command(registry, entries[0], values["set"] or (), sources)
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
                _show_result(console, result)
    for warning in report.warnings:
        _show_row(console, "warns", warning, "yellow")
    console.print()


def _show_result(console: Console, result: Result) -> None:
    mark, style = _MARKS[result.status]
    line = Text.assemble(f"  {result.number:<4}", (mark, style), f" {result.title}")
    if result.note:
        line.append(f"  (not applicable: {result.note})", "dim")
    console.print(line)
    for finding in result.findings:
        _show_row(console, "what", finding.what, "red")
        _show_row(console, "where", finding.where)
        _show_row(console, "fix", finding.fix)
    if result.findings:
        _show_row(console, "why", result.why)


def _show_failure(console: Console, failure: PluginFailure) -> None:
    console.print(Text.assemble((f"plugin {failure.plugin}", "bold"), "  not loaded"))
    _show_row(console, "what", f"it {failure.message}", "red")
    _show_row(console, "where", f"{failure.file}:{failure.line}" if failure.line else failure.file)
    _show_row(console, "why", "a plugin registers everything or nothing")
    _show_row(console, "fix", failure.fix or "change the line as it says; nothing else is at fault")
    console.print()


def _show_row(console: Console, label: str, text: str, style: str = "") -> None:
    """A labelled text, wrapped below itself on a terminal; elsewhere every line is whole."""
    for number, line in enumerate(text.splitlines() or [""]):
        row = Text.assemble((f"{'' if number else label:<7}", "dim"), (line, style))
        if console.is_terminal:
            console.print(Padding(row, (0, 0, 0, 9)))
        else:
            console.print(Text.assemble(" " * 9, row))


def _again(what: str, values: Mapping[str, Any], sources: Sequence[str]) -> str:
    """The same check once more."""
    words = ["searchrl", "check", what]
    words += [word for source in sources for word in ("--plugin", source)]
    words += ["--kind", values["kind"]] if values["kind"] else []
    words += [word for text in values["set"] or () for word in ("--set", text)]
    return shlex.join(words)


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
    trained = _network_for(registry, first) if kind == "algorithm" else ()
    one_step = ["--max-steps", "1"]
    step = [*(trained or ["--model", "tiny"]), *one_step]
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
        "policy": ["train", "--env", _env_of_choices(registry), "--policy", name, *one_step],
    }[kind]
    return shlex.join(["searchrl", words[0], *plugins, *words[1:], *flags])


def _network_for(registry: Registry, algorithm: Entry) -> Sequence[str]:
    """A network with a critic, if the algorithm needs one; nothing if a language model will do."""
    try:
        needs_values = algorithm.make().needs_values
    except SearchRLError:  # it needs settings of its own, and was checked with them
        needs_values = False
    if not needs_values:
        return ()
    critic = ["--policy", "mlp", "--set", "policy.critic=true"]
    return ["--env", _env_of_choices(registry), *critic]


def _env_of_choices(registry: Registry) -> str:
    """An environment whose turns are choices; a word for one if there is none yet."""
    found = [entry.name for entry in registry.entries() if entry.turns == CHOICE_TURNS]
    return next(iter(found), "ENV")


def _env_for(registry: Registry, protocol: str) -> str:
    """An environment that is registered with this protocol as its own, or one that searches."""
    fit = [entry.name for entry in registry.entries() if entry.options.get("protocol") == protocol]
    found = next(iter(fit), "regulations")
    return "gym:FrozenLake-v1" if found == "gym:" else found
