"""Results of checks: a line each, what to do, and a picture of the tokens around a fault."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from searchrl.core.excerpt import visible
from searchrl.engine.checks.report import Report, State
from searchrl.screen.terminal import draw_excerpt, show_finding

_MARKS = {
    State.PASSED: ("✓", "green"),
    State.WARNED: ("!", "yellow"),
    State.FAILED: ("✗", "red"),
    State.SKIPPED: ("·", "dim"),
}
_INDENT = 14


def show_verdicts(console: Console, report: Report) -> None:
    """Print a table of checks: for each its outcome, what was found, and what to do."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for verdict in report.checks:
        mark, colour = _MARKS[verdict.state]
        text = f"{verdict.says}. {verdict.fix}" if verdict.fix else verdict.says
        table.add_row(verdict.name, Text(mark, colour), Text(visible(" ".join(text.split()))))
    console.print(table)
    console.print(Text(report.summary, "bold green" if report.is_good else "bold red"))


def show_report(console: Console, report: Report) -> None:
    """Print all checks in order, then how many ended how."""
    for verdict in report.checks:
        mark, colour = _MARKS[verdict.state]
        head = Text.assemble(f"  {verdict.name:<12}", (mark, colour), f" {verdict.question}")
        if verdict.state is State.SKIPPED:
            head.append(f"  (not applicable: {visible(verdict.says)})", "dim")
        console.print(head)
        if verdict.state in (State.WARNED, State.FAILED):
            show_finding(console, _INDENT, "what", visible(verdict.says), colour)
            if verdict.fix:
                show_finding(console, _INDENT, "fix", visible(verdict.fix))
            if verdict.excerpt is not None:
                picture = draw_excerpt(verdict.excerpt)
                console.print(Padding(picture, (0, 0, 0, _INDENT), expand=False))
    console.print(Text(report.summary, "bold green" if report.is_good else "bold red"))
