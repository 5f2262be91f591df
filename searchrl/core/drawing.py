"""Simple figures of a rollout that protocols, environments and rewards hand to whoever shows it.

Owns their data, and the check of what came in place of it. What shows them (the report page)
decides how they look; a title, a cell or a label is text and never markup. Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from searchrl.core.episode import is_finite_number


@dataclass(frozen=True, slots=True)
class Text:
    """A text as it stands, every character equally wide: a map, a listing, a plan."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of texts and numbers below column names; every row has one cell per column."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | float]]


@dataclass(frozen=True, slots=True)
class Graph:
    """A directed graph: `nodes` maps names to labels, `edges` are pairs of names (from, to)."""

    title: str
    nodes: Mapping[str, str]
    edges: Sequence[tuple[str, str]] = field(default=())


Drawing = Text | Table | Graph

MAX_DRAWING = 50_000
"""Most characters of one drawing: every row of a run holds its drawings."""


def find_drawings_problem(value: object) -> str:
    """Say what came in place of a list of drawings, or "" if `value` is one that can be stored.

    Drawings come from `draw_episode`.
    """
    if isinstance(value, str) or not isinstance(value, Sequence):
        return f"{type(value).__name__}; expected a list of Text, Table and Graph"
    for one in value:
        if not isinstance(one, Drawing):
            return f"a list that holds {type(one).__name__}; expected Text, Table and Graph"
        if problem := _find_drawing_problem(one):
            return f"a {type(one).__name__} with {problem}"
        if (size := len(repr(one))) > MAX_DRAWING:
            return f"a {type(one).__name__} of {size:,} characters; at most {MAX_DRAWING:,}"
    return ""


def _find_drawing_problem(one: Drawing) -> str:
    if not isinstance(one.title, str):
        return f"the title {one.title!r}; expected text"
    match one:
        case Text():
            return "" if isinstance(one.text, str) else f"the text {one.text!r}; expected text"
        case Table():
            if not all(isinstance(name, str) for name in one.columns):
                return f"the columns {one.columns!r}; expected texts"
            for row in one.rows:
                if len(row) != len(one.columns):
                    return f"a row of {len(row)} cells below {len(one.columns)} columns"
                for cell in row:
                    if not isinstance(cell, str) and not is_finite_number(cell):
                        return f"the cell {cell!r}; expected text or a finite number"
            return ""
        case Graph():
            labels = [*one.nodes, *one.nodes.values()]
            if not all(isinstance(label, str) for label in labels):
                return f"the nodes {one.nodes!r}; expected names and labels, both texts"
            for edge in one.edges:
                if len(edge) != 2 or not set(edge) <= set(one.nodes):
                    return f"the edge {edge!r}; expected the names of two nodes"
            return ""
