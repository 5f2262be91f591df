"""Plans are read: the verdict on bodies written by hand and by chance; what a plan says."""

from __future__ import annotations

import time

import pytest
from bodies import INVALID, SCRAPS, VALID
from hypothesis import given
from hypothesis import strategies as st
from searchrl_dag.plans.plan import Edge, Node, Plan, fill
from searchrl_dag.plans.protocol import SearchDag
from searchrl_dag.plans.reading import REASONS, PlanReader

from searchrl.contracts import INVALID as INVALID_KIND
from searchrl.contracts import SEARCH

READER = PlanReader(
    {"general": "General", "news": "News", "academic": "Academic"}, {"academy": "academic"}, 6
)


@pytest.mark.parametrize(("body", "nodes", "edges"), VALID)
def test_a_valid_plan_is_read(body: str, nodes: tuple[Node, ...], edges: str) -> None:
    assert READER.read(body) == Plan(nodes, tuple(Edge(*pair) for pair in edges.split()))


@pytest.mark.parametrize(
    ("body", "fault"), [(body, fault) for fault, bodies in INVALID.items() for body in bodies]
)
def test_an_invalid_plan_has_its_fault(body: str, fault: str) -> None:
    assert READER.read(body) == READER.reason(fault)


@given(st.lists(st.sampled_from(SCRAPS), max_size=14), st.sampled_from(("", "Nodes:\n")))
def test_a_body_made_by_chance_is_read_as_the_protocol_reads_it(
    scraps: list[str], head: str
) -> None:
    protocol, body = SearchDag(), head + "\n".join(scraps)
    read = READER.read(body)
    action = protocol.parse(f"<think>x</think>\n<search>\n{body}\n</search>")
    if isinstance(read, str):
        assert action.kind == INVALID_KIND
    else:
        assert (action.kind, action.payload) == (SEARCH, read.queries)
        assert protocol.read_plan(protocol.render_plan(read)) == read


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        (["A: (News)", "B: two (Moon)"], "empty_query"),
        (["A: one ( The Moon )"], "unknown_source"),
        (["A: one (News)", "B two"], "node_line"),
        (["A: one (News)", "A: {A} (News)", "Edges:", "A -> Z"], "label_twice"),
        (["A: {B} (News)", "Edges:", "A -> A; A -> Z"], "undeclared_node"),
        (["A: {B} (News)", "B: b (News)", "Edges:", "A -> B -> A -> A"], "self_loop"),
        (["A: {B} (News)", "B: b (News)", "Edges:", "A -> B -> A"], "cycle"),
        (["A: a (News)", "B: {C} (News)", "C: c (News)", "Edges: A -> B"], "no_parent"),
        ([f"{x}: a (News)" for x in "ABCDEFGA"], "too_many_nodes"),
        (["A: a (News)", "Edges:", "A -> B", "A B"], "edge_line"),
        (["A: a (News)", "Nodes: B"], "section_twice"),
        (["A: a (News)", "Edges:", "edges : A"], "section_twice"),
    ],
)
def test_the_first_fault_is_told(lines: list[str], fault: str) -> None:
    assert READER.read("Nodes:\n" + "\n".join(lines)) == READER.reason(fault)


def test_a_reason_names_the_sources_and_the_number_of_nodes() -> None:
    assert {*map(READER.reason, REASONS)} > {
        "A node is one line, such as A: query (General).",
        "A node names an unknown source; there are General, News and Academic.",
        "The plan has too many nodes; 6 at most.",
    }


PIECES = (
    *("A", " ", "(", "A: a (News)\n", "A -> "),
    *("Edges:\n", "\u3000", "\u0315\u0300", "{", "using "),
)


@pytest.mark.parametrize("piece", PIECES)
def test_a_long_body_is_read_in_linear_time(piece: str) -> None:
    start = time.process_time()
    many = piece * 10_000
    READER.read("Nodes:\n" + many)
    READER.read(f"Nodes:\n{many}: a (News)")
    READER.read(f"Nodes:\nA: {many} (News)")
    READER.read(f"Nodes:\nA: a ({many})")
    READER.read("Nodes:\nA: a (News)\nEdges:\n" + many)
    assert time.process_time() - start < 2


def test_the_levels_of_a_plan() -> None:
    """In each, nodes stand as they were written, though C waits for B and D for A."""
    nodes = tuple(Node(label, "q", "news") for label in "ABCDE")
    plan = Plan(nodes, tuple(Edge(*pair) for pair in ("AD", "BC", "DE", "CE", "BE")))
    levels = [[node.label for node in level] for level in plan.levels]
    assert levels == [["A", "B"], ["C", "D"], ["E"]]
    assert (plan.parents("E"), plan.parents("A")) == (("D", "C", "B"), ())


def test_a_query_is_filled_with_the_results_of_its_parents_alone() -> None:
    results = {"A": "Ada Kemp", "B": "tea"}
    query = "Using Ａ: {A}, ｛B｝ and {C} using A, using gas"
    filled = fill(query, ("A", "B"), results.__getitem__)
    assert filled == "Ada Kemp: Ada Kemp, tea and {C} Ada Kemp, using gas"
