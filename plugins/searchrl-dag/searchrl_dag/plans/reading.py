"""Reading a plan: the text of a `<search>` block becomes a `Plan`, or the reason against it.

Total: it never raises on model text, and takes linear time. Knows no tags: the protocol does.

    Nodes:
    A: mayor of Lindry (News)
    B: drink of {A} (Academic)
    Edges:
    A -> B
"""

from __future__ import annotations

import itertools
import re
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from searchrl_dag.plans.plan import (
    LABEL,
    Edge,
    Node,
    Plan,
    braced_labels,
    make_graph,
    read_label,
)

REASONS: Mapping[str, str] = {
    "no_nodes_line": "A plan begins with the line Nodes: and has one node on each line below.",
    "section_twice": "A plan has one line Nodes: and one line Edges:, in this order.",
    "node_line": "A node is one line, such as A: query ({source}).",
    "empty_query": "A node has no query.",
    "unknown_source": "A node names an unknown source; there are {sources}.",
    "edge_line": "Edges are written A -> B, one on each line or with ; between them.",
    "no_nodes": "The plan has no node.",
    "too_many_nodes": "The plan has too many nodes; {most} at most.",
    "label_twice": "Two nodes have the same label.",
    "undeclared_node": "An edge names a node that the plan does not have.",
    "self_loop": "An edge leads from a node to itself.",
    "cycle": "The edges go round in a circle, so no node can be searched first.",
    "no_parent": "A query refers to a node that is not its parent; add the edge from it.",
}
"""Faults of a plan, in the order in which they are looked for, and what the model is told.

Those of lines, up to `edge_line`, come line by line; then those of the graph as a whole.
"""

# One character for one, so that places in the folded text are places in the text itself.
_FOLDED = str.maketrans("：（）；，、。．－＝＞\t\u00a0\u3000", ":();,,..-=>   ")
_SECTIONS = ("nodes", "edges")
"""The headers, which are no labels."""
_SECTION = re.compile(rf"({'|'.join(_SECTIONS)})\s*:", re.IGNORECASE)
_LABEL = re.compile(LABEL)
_MAX_SOURCE = 200
"""Characters of a source's name that are read: to normalise long texts takes long."""
_ARROW = re.compile(r"[-=]{1,2}>|[→⟶⇒]")


class _Invalid(Exception):
    """A fault of `REASONS`."""


@dataclass(frozen=True, slots=True)
class PlanReader:
    """Reads plans for a protocol.

    `sources` are the titles of the allowed sources by their names as `fold_source` has them (none:
    any name is a source), `aliases` further names, in the same form.
    """

    sources: Mapping[str, str]
    aliases: Mapping[str, str]
    max_nodes: int

    def read(self, text: str) -> Plan | str:
        """Return the plan that `text` holds, or the reason of its first fault."""
        try:
            return self._read(text)
        except _Invalid as fault:
            return self.reason(str(fault))

    def _read(self, text: str) -> Plan:
        nodes: list[Node] = []
        edges: list[Edge] = []
        section = ""
        for written in text.splitlines():
            line = written.strip()
            rest = line.translate(_FOLDED)
            if header := _SECTION.match(rest):
                name = header[1].casefold()
                if (name == "nodes") != (section == "") or name == section:
                    raise _Invalid("section_twice" if section else "no_nodes_line")
                section, rest = name, rest[header.end() :].strip()
                line = line[header.end() :].strip()
            if not rest:
                continue
            if section == "":
                raise _Invalid("no_nodes_line")
            if section == "nodes":
                nodes.append(self._read_node(line))
            else:
                edges += _read_edges(rest)
        return self._check(nodes, list(dict.fromkeys(edges)))

    def _read_node(self, line: str) -> Node:
        """`label: query (source)`, stripped; the query keeps its own characters."""
        folded = line.translate(_FOLDED)
        end = len(folded.rstrip(" ;,."))
        colon, opening = folded.find(":"), folded.rfind("(", 0, end)
        label = read_label(line[: max(colon, 0)])
        is_label = _LABEL.fullmatch(label) and label.casefold() not in _SECTIONS
        if not is_label or opening < colon or folded[end - 1 : end] != ")":
            raise _Invalid("node_line")
        query = line[colon + 1 : opening].strip()
        if not query:
            raise _Invalid("empty_query")
        source = fold_source(line[opening + 1 : end - 1])
        source = self.aliases.get(source, source)
        if not source or (self.sources and source not in self.sources):
            raise _Invalid("unknown_source")
        return Node(label, query, source)

    def _check(self, nodes: Sequence[Node], edges: Sequence[Edge]) -> Plan:
        """The plan, if the graph as a whole is one."""
        plan = Plan(tuple(nodes), tuple(edges))
        labels = {node.label for node in nodes}
        for fault, is_so in (
            ("no_nodes", not nodes),
            ("too_many_nodes", len(nodes) > self.max_nodes),
            ("label_twice", len(labels) < len(nodes)),
            ("undeclared_node", not labels.issuperset(itertools.chain(*edges))),
            ("self_loop", any(edge.parent == edge.child for edge in edges)),
        ):
            if is_so:
                raise _Invalid(fault)
        if edges and not _is_acyclic(nodes, edges):
            raise _Invalid("cycle")
        if any({*braced_labels(one.query)} - {*plan.parents(one.label)} for one in nodes):
            raise _Invalid("no_parent")
        return plan

    def reason(self, fault: str) -> str:
        """A fault as the model is told it."""
        names = tuple(self.sources.values()) or ("General",)
        listed = ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else names[0]
        return REASONS[fault].format(source=names[0], sources=listed, most=self.max_nodes)


def fold_source(written: str) -> str:
    """The name of a source without differences of case and width."""
    return unicodedata.normalize("NFKC", written[:_MAX_SOURCE]).strip().casefold()


def read_any_plan(text: str) -> Plan | str:
    """A plan of any size over any sources, for those who do not know the protocol's settings."""
    return _ANY.read(text)


_ANY = PlanReader({}, {}, sys.maxsize)


def _read_edges(text: str) -> list[Edge]:
    """The edges of a line, such as `A -> B; B -> C` and `A -> B -> C`."""
    edges: list[Edge] = []
    for part in filter(str.strip, re.split("[;,]", text)):
        labels = [read_label(one) for one in _ARROW.split(part)]
        if len(labels) < 2 or not all(_LABEL.fullmatch(label) for label in labels):
            raise _Invalid("edge_line")
        edges += itertools.starmap(Edge, itertools.pairwise(labels))
    return edges


def _is_acyclic(nodes: Sequence[Node], edges: Sequence[Edge]) -> bool:
    import networkx as nx

    return bool(nx.is_directed_acyclic_graph(make_graph(nodes, edges)))
