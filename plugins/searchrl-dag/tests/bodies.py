"""Bodies of `<search>` blocks, written by hand, each with its verdict, and scraps of others.

A body stands with the nodes and edges that are read, or with its fault. Used by `test_reading`.
"""

from __future__ import annotations

from searchrl_dag.plans.reading import Fault

Nodes = tuple[tuple[str, str, str], ...]
Edges = tuple[tuple[str, str], ...]

A, B, C = ("A", "one", "general"), ("B", "two", "news"), ("C", "three", "academic")
THREE = "Nodes:\nA: one (General)\nB: two (News)\nC: three (Academic)\n"
TWO = "Nodes:\nA: one (General)\nB: two (News)\n"

VALID: dict[str, tuple[str, Nodes, Edges]] = {
    "one node": ("Nodes:\nA: one (General)\nEdges:", (A,), ()),
    "no line Edges": ("Nodes:\nA: one (General)", (A,), ()),
    "two without edges": (f"{TWO}Edges:", (A, B), ()),
    "one edge": (f"{TWO}Edges:\nA -> B", (A, B), (("A", "B"),)),
    "an arrow of one sign": (f"{TWO}Edges:\nA → B", (A, B), (("A", "B"),)),
    "a long arrow": (f"{TWO}Edges:\nA --> B", (A, B), (("A", "B"),)),
    "a double arrow": (f"{TWO}Edges:\nA => B", (A, B), (("A", "B"),)),
    "a full-width arrow": (f"{TWO}Edges:\nA －＞ B", (A, B), (("A", "B"),)),
    "an arrow without blanks": (f"{TWO}Edges:\nA->B", (A, B), (("A", "B"),)),
    "edges with a semicolon": (
        f"{THREE}Edges:\nA -> B; A -> C",
        (A, B, C),
        (("A", "B"), ("A", "C")),
    ),
    "edges with a comma": (f"{THREE}Edges:\nA -> B, B -> C", (A, B, C), (("A", "B"), ("B", "C"))),
    "edges with full-width signs": (
        f"{THREE}Edges：\nA → B；B → C",
        (A, B, C),
        (("A", "B"), ("B", "C")),
    ),
    "edges with a listing comma": (
        f"{THREE}Edges:\nA → B、A → C",
        (A, B, C),
        (("A", "B"), ("A", "C")),
    ),
    "a chain of arrows": (f"{THREE}Edges:\nA -> B -> C", (A, B, C), (("A", "B"), ("B", "C"))),
    "a semicolon at the end": (f"{TWO}Edges:\nA -> B;", (A, B), (("A", "B"),)),
    "an edge twice": (f"{TWO}Edges:\nA -> B\nA -> B", (A, B), (("A", "B"),)),
    "edges beside the header": (f"{TWO}Edges: A -> B", (A, B), (("A", "B"),)),
    "a node beside the header": ("Nodes: A: one (General)\nEdges:", (A,), ()),
    "full-width punctuation": ("Nodes：\nA：one（General）\nEdges：", (A,), ()),
    "full-width letters": ("Nodes:\nＡ: one (Ｇeneral)\nEdges:", (A,), ()),
    "tabs": ("Nodes:\n\tA:\tone\t(General)\nEdges:\t", (A,), ()),
    "blank lines": ("\n\nNodes:\n\n  A: one (General)  \n\n\nEdges:\n\n", (A,), ()),
    "Windows line ends": ("Nodes:\r\nA: one (General)\r\nEdges:\r\n", (A,), ()),
    "ideographic spaces": ("Nodes:\n\u3000A:\u3000one\u3000(General)\nEdges:", (A,), ()),
    "headers in capitals": ("NODES:\nA: one (General)\nEDGES:", (A,), ()),
    "sources in small letters": ("Nodes:\nA: one (general)\nEdges:", (A,), ()),
    "sources in capitals": ("Nodes:\nA: one (GENERAL)\nEdges:", (A,), ()),
    "an alias": ("Nodes:\nC: three (Academy)\nEdges:", (C,), ()),
    "an alias in small letters": ("Nodes:\nC: three ( academy )\nEdges:", (C,), ()),
    "a stop after the source": ("Nodes:\nA: one (General).\nEdges:", (A,), ()),
    "a full-width stop after the source": ("Nodes：\nA：one（General）。", (A,), ()),
    "an em space after the source": ("Nodes:\nA: one (General)\u2003\nEdges:", (A,), ()),
    "a header with a long s": (f"{TWO}Edge\u017f:\nA -> B", (A, B), (("A", "B"),)),
    "a long label": ("Nodes:\nnode_1: one (General)\nEdges:", (("node_1", "one", "general"),), ()),
    "a label of 16 letters": (
        f"Nodes:\n{'A' * 16}: one (General)",
        (("A" * 16, "one", "general"),),
        (),
    ),
    "six nodes": (
        "Nodes:\n" + "\n".join(f"{x}: two (News);" for x in "ABCDEF"),
        tuple((x, "two", "news") for x in "ABCDEF"),
        (),
    ),
    "a number as label": ("Nodes:\n1: one (General)\nEdges:", (("1", "one", "general"),), ()),
    "a colon in the query": (
        "Nodes:\nA: Dune: part two (News)\nEdges:",
        (("A", "Dune: part two", "news"),),
        (),
    ),
    "parentheses in the query": (
        "Nodes:\nA: Mercury (planet) mass (Academic)\nEdges:",
        (("A", "Mercury (planet) mass", "academic"),),
        (),
    ),
    "Chinese": ("Nodes:\nA: 北京，人口 (General)\nEdges:", (("A", "北京，人口", "general"),), ()),
    "a reference in braces": (
        "Nodes:\nA: one (General)\nB: mayor of {A} (News)\nEdges:\nA -> B",
        (A, ("B", "mayor of {A}", "news")),
        (("A", "B"),),
    ),
    "a reference with using": (
        "Nodes:\nA: one (General)\nB: mayor using A (News)\nEdges:\nA -> B",
        (A, ("B", "mayor using A", "news")),
        (("A", "B"),),
    ),
    "a reference with full-width letters": (
        "Nodes:\nＡ: one (General)\nB: mayor of ｛Ａ｝ (News)\nEdges:\nＡ → B",
        (A, ("B", "mayor of ｛Ａ｝", "news")),
        (("A", "B"),),
    ),
    "using as plain English": (
        "Nodes:\nA: cooking using gas (General)\nEdges:",
        (("A", "cooking using gas", "general"),),
        (),
    ),
    "a diamond": (
        f"{THREE}D: two (News)\nEdges:\nA -> B; A -> C\nB -> D, C -> D",
        (A, B, C, ("D", "two", "news")),
        (("A", "B"), ("A", "C"), ("B", "D"), ("C", "D")),
    ),
}

INVALID: dict[str, tuple[str, Fault]] = {
    "plain words": ("mayor of Bonn", Fault.NO_NODES_LINE),
    "no line Nodes": ("A: one (General)\nEdges:", Fault.NO_NODES_LINE),
    "edges first": ("Edges:\nA -> B\nNodes:\nA: one (General)", Fault.NO_NODES_LINE),
    "a sentence first": ("Here is my plan.\nNodes:\nA: one (General)", Fault.NO_NODES_LINE),
    "nodes twice": (f"{TWO}Nodes:\nC: three (News)", Fault.SECTION_TWICE),
    "edges twice": (f"{TWO}Edges:\nEdges:\nA -> B", Fault.SECTION_TWICE),
    "edges twice, once with a long s": (f"{TWO}Edge\u017f:\nEdges:\nA -> B", Fault.SECTION_TWICE),
    "no source": ("Nodes:\nA: one\nEdges:", Fault.NODE_LINE),
    "no label": ("Nodes:\none (General)\nEdges:", Fault.NODE_LINE),
    "a header as label": ("Nodes: Nodes: one (General)\nEdges:", Fault.NODE_LINE),
    "a label of two words": ("Nodes:\nnode A: one (General)\nEdges:", Fault.NODE_LINE),
    "a label that is too long": (f"Nodes:\n{'A' * 17}: one (General)", Fault.NODE_LINE),
    "words behind the source": ("Nodes:\nA: one (General) please\nEdges:", Fault.NODE_LINE),
    "a bullet": ("Nodes:\n- A: one (General)\nEdges:", Fault.NODE_LINE),
    "a parenthesis that is not closed": ("Nodes:\nA: one (General\nEdges:", Fault.NODE_LINE),
    "an edge among the nodes": (f"{TWO}A -> B", Fault.NODE_LINE),
    "an empty query": ("Nodes:\nA: (General)\nEdges:", Fault.EMPTY_QUERY),
    "an unknown source": ("Nodes:\nA: one (Library)\nEdges:", Fault.UNKNOWN_SOURCE),
    "two sources": ("Nodes:\nA: one (General, News)\nEdges:", Fault.UNKNOWN_SOURCE),
    "an empty source": ("Nodes:\nA: one ()\nEdges:", Fault.UNKNOWN_SOURCE),
    "no nodes": ("Nodes:\nEdges:", Fault.NO_NODES),
    "the header alone": ("Nodes:", Fault.NO_NODES),
    "seven nodes": (
        "Nodes:\n" + "\n".join(f"{x}: one (News)" for x in "ABCDEFG"),
        Fault.TOO_MANY_NODES,
    ),
    "a label twice": ("Nodes:\nA: one (General)\nA: two (News)\nEdges:", Fault.LABEL_TWICE),
    "an edge without an arrow": (f"{TWO}Edges:\nA B", Fault.EDGE_LINE),
    "an arrow back": (f"{TWO}Edges:\nA <- B", Fault.EDGE_LINE),
    "an arrow to nobody": (f"{TWO}Edges:\nA ->", Fault.EDGE_LINE),
    "the word none": (f"{TWO}Edges: none", Fault.EDGE_LINE),
    "a plain greater-than sign": (f"{TWO}Edges:\nA > B", Fault.EDGE_LINE),
    "a node among the edges": (f"{TWO}Edges:\nC: three (News)", Fault.EDGE_LINE),
    "an edge to a node that is not there": (f"{TWO}Edges:\nA -> C", Fault.UNDECLARED_NODE),
    "an edge in another case": (f"{TWO}Edges:\na -> B", Fault.UNDECLARED_NODE),
    "an edge to itself": (f"{TWO}Edges:\nA -> A", Fault.SELF_LOOP),
    "a circle of two": (f"{TWO}Edges:\nA -> B; B -> A", Fault.CYCLE),
    "a circle of three": (f"{THREE}Edges:\nA -> B -> C -> A", Fault.CYCLE),
    "a reference without an edge": (
        "Nodes:\nA: one (General)\nB: mayor of {A} (News)\nEdges:",
        Fault.NO_PARENT,
    ),
    "a reference to itself": ("Nodes:\nA: mayor of {A} (News)\nEdges:", Fault.NO_PARENT),
    "a reference to nobody": ("Nodes:\nA: mayor of {Z} (News)\nEdges:", Fault.NO_PARENT),
    "a reference to a child": (
        "Nodes:\nA: mayor of {B} (News)\nB: two (News)\nEdges:\nA -> B",
        Fault.NO_PARENT,
    ),
}


SCRAPS = (
    *("Nodes:", "Edges:", "NODES：", "A: one (General)", "B: two of {A} (News)", "A -> B", "B → A"),
    *("A", "B", ":", "(", ")", "->", "→", ";", "，", "{A}", "{", "}", "using A", "\t", "\u3000"),
    *("\n", "\r\n", "\x00", "\u2028", "<b>", "General", "（Academy）", "🦊", "ﬁ", "‮", "\ud800", ""),
)
"""What bodies made by chance consist of."""
