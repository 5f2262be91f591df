"""Reading a plan: the text of a `<search>` block becomes a `Plan`, or the one fault it has.

Owns the grammar, the faults and what the model is told about each. Total: it never raises on model
text, and takes linear time. Knows no tags: the protocol does. Called by `protocol`.

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
from enum import StrEnum

from searchrl_dag.plans.plan import (
    LABEL,
    Edge,
    Node,
    Plan,
    braced_labels,
    make_graph,
    read_label,
)


class Fault(StrEnum):
    """What is wrong with a plan; `_REASONS` says each. Faults of lines come first, line by line.

    Then those of the graph, which are looked for in this order, from `NO_NODES` on.
    """

    NO_NODES_LINE = "no_nodes_line"
    SECTION_TWICE = "section_twice"
    NODE_LINE = "node_line"
    EMPTY_QUERY = "empty_query"
    UNKNOWN_SOURCE = "unknown_source"
    EDGE_LINE = "edge_line"
    NO_NODES = "no_nodes"
    TOO_MANY_NODES = "too_many_nodes"
    LABEL_TWICE = "label_twice"
    UNDECLARED_NODE = "undeclared_node"
    SELF_LOOP = "self_loop"
    CYCLE = "cycle"
    NO_PARENT = "no_parent"


_REASONS: Mapping[Fault, str] = {
    Fault.NO_NODES_LINE: "A plan begins with the line Nodes: and has one node on each line below.",
    Fault.SECTION_TWICE: "A plan has one line Nodes: and one line Edges:, in this order.",
    Fault.NODE_LINE: "A node is one line, such as A: query ({source}).",
    Fault.EMPTY_QUERY: "A node has no query.",
    Fault.UNKNOWN_SOURCE: "A node names an unknown source; there are {sources}.",
    Fault.EDGE_LINE: "Edges are written A -> B, one on each line or with ; between them.",
    Fault.NO_NODES: "The plan has no node.",
    Fault.TOO_MANY_NODES: "The plan has too many nodes; {most} at most.",
    Fault.LABEL_TWICE: "Two nodes have the same label.",
    Fault.UNDECLARED_NODE: "An edge names a node that the plan does not have.",
    Fault.SELF_LOOP: "An edge leads from a node to itself.",
    Fault.CYCLE: "The edges go round in a circle, so no node can be searched first.",
    Fault.NO_PARENT: "A query refers to a node that is not its parent; add the edge from it.",
}

# One character for one, so that places in the folded text are places in the text itself.
_FOLDED = str.maketrans("：（）；，、。．－＝＞\t\u00a0\u3000", ":();,,..-=>   ")
_SECTIONS = ("nodes", "edges")
"""The headers, which are no labels."""
_SECTION = re.compile(rf"({'|'.join(_SECTIONS)})\s*:", re.IGNORECASE)
_LABEL = re.compile(LABEL)
_MAX_SOURCE = 200
"""Characters of a source's name that are looked at: to normalise long texts takes long."""
_ARROW = re.compile(r"[-=]{1,2}>|[→⟶⇒]")


@dataclass(frozen=True, slots=True)
class Violation:
    """Why a text is no valid plan. `about` is the label, source or line at fault, if there is one.

    `about` is text of the model; `reason` is not.
    """

    fault: Fault
    reason: str
    about: str = ""


@dataclass(frozen=True, slots=True)
class PlanReader:
    """Reads plans for a protocol.

    Args:
        sources: the names of the allowed sources as `fold_source` has them, each with what it is
            called; none: any name is a source.
        aliases: further names of them, in the same form.
        max_nodes: nodes that a plan may have.
    """

    sources: Mapping[str, str]
    aliases: Mapping[str, str]
    max_nodes: int

    def read(self, text: str) -> Plan | Violation:
        """The plan that `text` holds, or its first fault; see `Fault` for the order."""
        nodes: list[Node] = []
        edges: list[Edge] = []
        section = ""
        for written in text.splitlines():
            line = written.strip()
            rest = line.translate(_FOLDED)
            if header := _SECTION.match(rest):
                name = header[1].casefold()
                if (name == "nodes") != (section == ""):
                    is_first = section == ""
                    fault = Fault.NO_NODES_LINE if is_first else Fault.SECTION_TWICE
                    return self._say(fault, header[0])
                if name == section:
                    return self._say(Fault.SECTION_TWICE, header[0])
                section, rest = name, rest[header.end() :].strip()
                line = line[header.end() :].strip()
            if not rest:
                continue
            if section == "":
                return self._say(Fault.NO_NODES_LINE, rest)
            if section == "nodes":
                node = self._read_node(line)
                if isinstance(node, Violation):
                    return node
                nodes.append(node)
            elif (found := _read_edges(rest)) is not None:
                edges += found
            else:
                return self._say(Fault.EDGE_LINE, rest)
        return self._check(nodes, list(dict.fromkeys(edges)))

    def _read_node(self, line: str) -> Node | Violation:
        """`label: query (source)`, stripped; the query keeps its own characters."""
        folded = line.translate(_FOLDED)
        end = len(folded.rstrip(" ;,."))
        colon, opening = folded.find(":"), folded.rfind("(", 0, end)
        label = read_label(line[: max(colon, 0)])
        is_label = _LABEL.fullmatch(label) and label.casefold() not in _SECTIONS
        if not is_label or opening < colon or folded[end - 1 : end] != ")":
            return self._say(Fault.NODE_LINE, line)
        query = line[colon + 1 : opening].strip()
        if not query:
            return self._say(Fault.EMPTY_QUERY, label)
        written = line[opening + 1 : end - 1].strip()
        source = self._find_source(written)
        if not source:
            return self._say(Fault.UNKNOWN_SOURCE, written)
        return Node(label, query, source)

    def _find_source(self, written: str) -> str:
        name = fold_source(written)
        name = self.aliases.get(name, name)
        return name if name in self.sources or not self.sources else ""

    def _check(self, nodes: Sequence[Node], edges: Sequence[Edge]) -> Plan | Violation:
        """What concerns the graph as a whole."""
        if not nodes:
            return self._say(Fault.NO_NODES)
        if len(nodes) > self.max_nodes:
            return self._say(Fault.TOO_MANY_NODES, str(len(nodes)))
        labels: set[str] = set()
        for node in nodes:
            if node.label in labels:
                return self._say(Fault.LABEL_TWICE, node.label)
            labels.add(node.label)
        for edge in edges:
            for label in edge:
                if label not in labels:
                    return self._say(Fault.UNDECLARED_NODE, label)
        for edge in edges:
            if edge.parent == edge.child:
                return self._say(Fault.SELF_LOOP, edge.parent)
        if edges and not _is_acyclic(nodes, edges):
            return self._say(Fault.CYCLE)
        plan = Plan(tuple(nodes), tuple(edges))
        for node in nodes:
            for label in braced_labels(node.query):
                if label not in plan.parents(node.label):
                    return self._say(Fault.NO_PARENT, label)
        return plan

    def _say(self, fault: Fault, about: str = "") -> Violation:
        return Violation(fault, self.reasons()[fault], about)

    def reasons(self) -> dict[Fault, str]:
        """What the model is told about each fault."""
        names = tuple(self.sources.values()) or ("General",)
        listed = ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else names[0]
        return {
            fault: text.format(source=names[0], sources=listed, most=self.max_nodes)
            for fault, text in _REASONS.items()
        }


def fold_source(written: str) -> str:
    """The name of a source without differences of case and width."""
    return unicodedata.normalize("NFKC", written[:_MAX_SOURCE]).strip().casefold()


def read_any_plan(text: str) -> Plan | Violation:
    """A plan of any size over any sources, for those who do not know the protocol's settings."""
    return _ANY.read(text)


_ANY = PlanReader({}, {}, sys.maxsize)


def _read_edges(text: str) -> list[Edge] | None:
    """The edges of a line, such as `A -> B; B -> C` and `A -> B -> C`; None if it is no such."""
    edges: list[Edge] = []
    for part in re.split("[;,]", text):
        if not part.strip():
            continue
        labels = [read_label(one) for one in _ARROW.split(part)]
        if len(labels) < 2 or not all(_LABEL.fullmatch(label) for label in labels):
            return None
        edges += [Edge(*pair) for pair in itertools.pairwise(labels)]
    return edges


def _is_acyclic(nodes: Sequence[Node], edges: Sequence[Edge]) -> bool:
    import networkx as nx

    return bool(nx.is_directed_acyclic_graph(make_graph(nodes, edges)))
