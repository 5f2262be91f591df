"""What checks found, for people: a line each, what to do, and a picture of the tokens around it.

Owns the layout and the colours. The checks are `engine/checks`, the picture is `cli/excerpts`.
"""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from searchrl.cli.excerpts import render_excerpt
from searchrl.core.excerpt import visible
from searchrl.engine.checks.report import Checked, Report, State

_MARKS = {
    State.PASSED: ("✓", "green"),
    State.WARNED: ("!", "yellow"),
    State.FAILED: ("✗", "red"),
    State.SKIPPED: ("·", "dim"),
}
_INDENT = 14


def show_report(console: Console, report: Report) -> None:
    """Print all checks in order, then how many ended how."""
    for one in report.checks:
        _show_checked(console, one)
    console.print(Text(report.summary, "bold green" if report.is_good else "bold red"))


def _show_checked(console: Console, one: Checked) -> None:
    verdict = one.verdict
    mark, style = _MARKS[verdict.state]
    head = Text.assemble(f"  {one.name:<12}", (mark, style), f" {one.question}")
    if verdict.state is State.SKIPPED:
        head.append(f"  (not applicable: {visible(verdict.says)})", "dim")
    console.print(head)
    if verdict.state not in (State.WARNED, State.FAILED):
        return
    for label, text, colour in (("what", verdict.says, style), ("fix", verdict.fix, "")):
        row = Text.assemble((f"{label:<6}", "dim"), (visible(text), colour))
        if text:
            _show_below(console, row)
    if verdict.excerpt is not None:
        _show_below(console, render_excerpt(verdict.excerpt))


def _show_below(console: Console, part: Text | Table) -> None:
    """Indented; a text is wrapped below itself on a terminal, and elsewhere whole."""
    if isinstance(part, Text) and not console.is_terminal:
        console.print(Text.assemble(" " * _INDENT, part))
    else:
        console.print(Padding(part, (0, 0, 0, _INDENT), expand=False))
