"""A plan: queries with their sources, and which of them wait for which.

A query refers to a parent as `{A}` or "using A". `reading` reads a plan, the environment runs it.
networkx is imported when levels are asked for.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

LABEL = r"\w{1,16}"
"""A label: up to 16 letters, digits and underscores."""

_REFERENCE = re.compile(rf"[{{｛]\s*({LABEL})\s*[}}｝]|\b[Uu]sing\s+({LABEL})\b")
_MAX_WRITTEN = 64
"""Characters of a label as it is written, at most: to normalise long texts takes long."""


class Node(NamedTuple):
    """One query: its label, what is asked, and the source that is asked, as the protocol has it."""

    label: str
    query: str
    source: str


class Edge(NamedTuple):
    """`child` waits for `parent`."""

    parent: str
    child: str


@dataclass(frozen=True)
class Plan:
    """A valid graph of queries, in the order in which they were written."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...] = ()

    @property
    def queries(self) -> tuple[str, ...]:
        """The queries as they were written."""
        return tuple(node.query for node in self.nodes)

    @cached_property
    def levels(self) -> tuple[tuple[Node, ...], ...]:
        """The nodes by topological level: those of one level wait only for earlier levels."""
        import networkx as nx

        places = {node.label: place for place, node in enumerate(self.nodes)}
        generations = nx.topological_generations(make_graph(self.nodes, self.edges))
        return tuple(
            tuple(self.nodes[place] for place in sorted(places[label] for label in level))
            for level in generations
        )

    def parents(self, label: str) -> tuple[str, ...]:
        """The labels that a node waits for, in the order of the edges."""
        return tuple(edge.parent for edge in self.edges if edge.child == label)


def make_graph(nodes: Sequence[Node], edges: Sequence[Edge]) -> Any:
    """The plan as a `networkx.DiGraph` of labels."""
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_nodes_from(node.label for node in nodes)
    graph.add_edges_from(edges)
    return graph


def read_label(written: str) -> str:
    """A label as nodes, edges and references share it: full-width letters are plain ones.

    Empty for a text that is too long for a label.
    """
    text = written.strip()
    return "" if len(text) > _MAX_WRITTEN else unicodedata.normalize("NFKC", text).strip()


def braced_labels(query: str) -> tuple[str, ...]:
    """The labels that a query refers to in braces, `{A}`."""
    return tuple(read_label(match[1]) for match in _REFERENCE.finditer(query) if match[1])


def fill(query: str, parents: Sequence[str], result: Callable[[str], str]) -> str:
    """A query with the results of its parents in place of what refers to them.

    `{A}` always refers to a parent; "using A" only if A is one, because it is also plain English.
    """

    def replace(match: re.Match[str]) -> str:
        label = read_label(match[1] or match[2])
        return result(label) if label in parents else match[0]

    return " ".join(_REFERENCE.sub(replace, query).split())
