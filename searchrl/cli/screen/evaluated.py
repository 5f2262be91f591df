"""The table of `searchrl eval`: every figure, by kind and difficulty, one policy beside another.

Owns the rows and columns. The figures are those of `engine.figures.breakdown`, the comparison that
of `results.paired`. Caller: `searchrl eval`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Column, Table

from searchrl.cli.screen.figures import format_metric, format_value, label, shown_keys
from searchrl.contracts import Metric, Paired
from searchrl.engine.figures.breakdown import DIFFICULTY, GROUPED

Figures = Mapping[str, Metric]

_CHOSEN = "p is for the figure you chose beforehand; by chance, one of twenty is below 0.05"


def show_table(console: Console, columns: Mapping[str, Figures]) -> None:
    """Print the figures of one or more policies, each in its column."""
    heads = [Column(f"{name}\n[95 % interval]", no_wrap=True) for name in columns]
    count = Column("n", justify="right")
    table = Table("metric", *heads, count, box=None, padding=(0, 3, 0, 0), header_style="dim")
    everything = list(columns.values())
    keys = shown_keys(everything)
    groups = _groups(everything)
    grouped = {key for key in keys if key.rpartition("/")[2] in groups}
    repeated = [key for key in everything[0] if "@" in key and "/" not in key]
    # The figures in the order of the breakdown; pass@k beside exact match, of which it is made.
    place = GROUPED.index("em") + 1
    figures = (*GROUPED[:place], *repeated, *GROUPED[place:])
    rest = [key for key in keys if key not in figures and key not in grouped]
    for key in (*figures, *rest):
        _add(table, label(key), key, everything)
    for group in groups:
        table.add_section()
        name = group.removeprefix(DIFFICULTY)
        heading = f"difficulty {name}" if name != group else group
        table.add_row(heading, *[""] * len(columns), "", style="bold")
        for figure in figures:
            _add(table, f"  {label(figure)}", f"{figure}/{group}", everything)
    console.print(table)


def show_paired(console: Console, names: Sequence[str], pairs: Mapping[str, Paired]) -> None:
    """Print the differences between two policies on the same tasks."""
    columns = ("difference [95 %]", "p", "test", "tasks")
    table = Table("metric", *columns, box=None, padding=(0, 3, 0, 0), header_style="dim")
    ordered = [key for key in GROUPED if key in pairs]
    for key in (*ordered, *(key for key in pairs if key not in ordered)):
        one = pairs[key]
        value = f"{one['value']:+.3f}"
        if "low" in one:
            value += f" [{format_value(key, one['low'])}, {format_value(key, one['high'])}]"
        p = f"{one['p']:.3f}" if one["p"] >= 0.001 else f"{one['p']:.1e}"
        table.add_row(label(key), value, p, one["test"], str(one["n"]))
    first, second = names
    console.print("", f"{first} minus {second}, task by task", sep="\n")
    console.print(table)
    console.print(_CHOSEN, style="dim")


def _add(table: Table, name: str, key: str, columns: Sequence[Figures]) -> None:
    """Add the row of a figure; none, if nobody measured it."""
    if not any(key in one for one in columns):
        return
    counts = sorted({str(one[key]["n"]) for one in columns if key in one}, key=int)
    table.add_row(name, *(format_metric(key, one) for one in columns), " / ".join(counts))


def _groups(columns: Sequence[Figures]) -> list[str]:
    """The names of groups, in the order in which they were measured: `TASK/` stays before them."""
    found: dict[str, None] = {}
    for one in columns:
        for key in one:
            head, slash, group = key.partition("/")
            if slash and head in GROUPED:
                found.setdefault(group)
    return list(found)
