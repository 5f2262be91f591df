"""Bodies of `<search>` blocks, written by hand, each with its verdict, and scraps of others.

A body stands with the nodes and edges that are read, or with its fault. Used by `test_reading`.
"""

from __future__ import annotations

from searchrl_dag.plans.plan import Node

A, B, C = Node("A", "one", "general"), Node("B", "two", "news"), Node("C", "three", "academic")
TWO = "Nodes:\nA: one (General)\nB: two (News)\n"
THREE = f"{TWO}C: three (Academic)\n"

ONE_NODE = (
    "Nodes:\nA: one (General)\nEdges:",
    "Nodes:\nA: one (General)",
    "Nodes: A: one (General)\nEdges:",
    "Nodes：\nA：one（General）\nEdges：",
    "Nodes:\nＡ: one (Ｇeneral)\nEdges:",
    "Nodes:\n\tA:\tone\t(General)\nEdges:\t",
    "\n\nNodes:\n\n  A: one (General)  \n\n\nEdges:\n\n",
    "Nodes:\r\nA: one (General)\r\nEdges:\r\n",
    "Nodes:\n\u3000A:\u3000one\u3000(General)\nEdges:",
    "NODES:\nA: one (General)\nEDGES:",
    "Nodes:\nA: one (general)\nEdges:",
    "Nodes:\nA: one (GENERAL)\nEdges:",
    "Nodes:\nA: one (General).\nEdges:",
    "Nodes：\nA：one（General）。",
    "Nodes:\nA: one (General)\u2003\nEdges:",
)
"""All of them are read as the node A."""

EDGES = {
    "Edges:": "",
    "Edges:\nA -> B": "AB",
    "Edges:\nA → B": "AB",
    "Edges:\nA --> B": "AB",
    "Edges:\nA => B": "AB",
    "Edges:\nA －＞ B": "AB",
    "Edges:\nA->B": "AB",
    "Edges:\nA -> B;": "AB",
    "Edges:\nA -> B\nA -> B": "AB",
    "Edges: A -> B": "AB",
    "Edge\u017f:\nA -> B": "AB",
    "Edges:\nA -> B; A -> C": "AB AC",
    "Edges:\nA -> B, B -> C": "AB BC",
    "Edges：\nA → B；B → C": "AB BC",
    "Edges:\nA → B、A → C": "AB AC",
    "Edges:\nA -> B -> C": "AB BC",
    "Edges:\nB -> A; C -> B": "BA CB",
}
"""Texts below three nodes, and the edges that are read."""

OTHERS: dict[str, tuple[tuple[Node, ...], str]] = {
    "Nodes:\nC: three (Academy)\nEdges:": ((C,), ""),
    "Nodes:\nC: three ( academy )\nEdges:": ((C,), ""),
    "Nodes:\nnode_1: one (General)\nEdges:": ((Node("node_1", "one", "general"),), ""),
    f"Nodes:\n{'A' * 16}: one (General)": ((Node("A" * 16, "one", "general"),), ""),
    "Nodes:\n" + "\n".join(f"{x}: two (News);" for x in "ABCDEF"): (
        tuple(Node(x, "two", "news") for x in "ABCDEF"), "",
    ),
    "Nodes:\n1: one (General)\nEdges:": ((Node("1", "one", "general"),), ""),
    "Nodes:\nA: Dune: part two (News)\nEdges:": ((Node("A", "Dune: part two", "news"),), ""),
    "Nodes:\nA: Mercury (planet) mass (Academic)\nEdges:": (
        (Node("A", "Mercury (planet) mass", "academic"),), "",
    ),
    "Nodes:\nA: 北京，人口 (General)\nEdges:": ((Node("A", "北京，人口", "general"),), ""),
    "Nodes:\nA: one (General)\nB: mayor of {A} (News)\nEdges:\nA -> B": (
        (A, Node("B", "mayor of {A}", "news")), "AB",
    ),
    "Nodes:\nA: one (General)\nB: mayor using A (News)\nEdges:\nA -> B": (
        (A, Node("B", "mayor using A", "news")), "AB",
    ),
    "Nodes:\nＡ: one (General)\nB: mayor of ｛Ａ｝ (News)\nEdges:\nＡ → B": (
        (A, Node("B", "mayor of ｛Ａ｝", "news")), "AB",
    ),
    "Nodes:\nA: cooking using gas (General)\nEdges:": (
        (Node("A", "cooking using gas", "general"),), "",
    ),
    f"{THREE}D: two (News)\nEdges:\nA -> B; A -> C\nB -> D, C -> D": (
        (A, B, C, Node("D", "two", "news")), "AB AC BD CD",
    ),
}  # fmt: skip

VALID = [
    *((body, (A,), "") for body in ONE_NODE),
    *((f"{THREE}{text}", (A, B, C), edges) for text, edges in EDGES.items()),
    *((body, *read) for body, read in OTHERS.items()),
]

INVALID: dict[str, tuple[str, ...]] = {
    "no_nodes_line": (
        "mayor of Bonn",
        "A: one (General)\nEdges:",
        "Edges:\nA -> B\nNodes:\nA: one (General)",
        "Here is my plan.\nNodes:\nA: one (General)",
    ),
    "section_twice": (
        f"{TWO}Nodes:\nC: three (News)",
        f"{TWO}Edges:\nEdges:\nA -> B",
        f"{TWO}Edge\u017f:\nEdges:\nA -> B",
    ),
    "node_line": (
        "Nodes:\nA: one\nEdges:",
        "Nodes:\none (General)\nEdges:",
        "Nodes: Nodes: one (General)\nEdges:",
        "Nodes:\nnode A: one (General)\nEdges:",
        f"Nodes:\n{'A' * 17}: one (General)",
        "Nodes:\nA: one (General) please\nEdges:",
        "Nodes:\n- A: one (General)\nEdges:",
        "Nodes:\nA: one (General\nEdges:",
        f"{TWO}A -> B",
    ),
    "empty_query": ("Nodes:\nA: (General)\nEdges:",),
    "unknown_source": (
        "Nodes:\nA: one (Library)\nEdges:",
        "Nodes:\nA: one (General, News)\nEdges:",
        "Nodes:\nA: one ()\nEdges:",
    ),
    "no_nodes": ("Nodes:\nEdges:", "Nodes:"),
    "too_many_nodes": ("Nodes:\n" + "\n".join(f"{x}: one (News)" for x in "ABCDEFG"),),
    "label_twice": ("Nodes:\nA: one (General)\nA: two (News)\nEdges:",),
    "edge_line": (
        f"{TWO}Edges:\nA B",
        f"{TWO}Edges:\nA <- B",
        f"{TWO}Edges:\nA ->",
        f"{TWO}Edges: none",
        f"{TWO}Edges:\nA > B",
        f"{TWO}Edges:\nC: three (News)",
    ),
    "undeclared_node": (f"{TWO}Edges:\nA -> C", f"{TWO}Edges:\na -> B"),
    "self_loop": (f"{TWO}Edges:\nA -> A",),
    "cycle": (f"{TWO}Edges:\nA -> B; B -> A", f"{THREE}Edges:\nA -> B -> C -> A"),
    "no_parent": (
        "Nodes:\nA: one (General)\nB: mayor of {A} (News)\nEdges:",
        "Nodes:\nA: mayor of {A} (News)\nEdges:",
        "Nodes:\nA: mayor of {Z} (News)\nEdges:",
        "Nodes:\nA: mayor of {B} (News)\nB: two (News)\nEdges:\nA -> B",
    ),
}

SCRAPS = (
    *("Nodes:", "Edges:", "NODES：", "A: one (General)", "B: two of {A} (News)", "A -> B", "B → A"),
    *("A", "B", ":", "(", ")", "->", "→", ";", "，", "{A}", "{", "}", "using A", "\t", "\u3000"),
    *("\n", "\r\n", "\x00", "\u2028", "<b>", "General", "（Academy）", "🦊", "ﬁ", "‮", "\ud800", ""),
)
"""Parts of bodies made by chance."""
