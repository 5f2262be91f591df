"""Plans are read: the verdict on bodies written by hand and by chance; what a plan says."""

from __future__ import annotations

import time

import pytest
from bodies import INVALID, SCRAPS, VALID
from hypothesis import given
from hypothesis import strategies as st
from searchrl_dag.plans.plan import Edge, Node, Plan, fill
from searchrl_dag.plans.protocol import SearchDag
from searchrl_dag.plans.reading import Fault, PlanReader, Violation

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
def test_an_invalid_plan_has_its_fault(body: str, fault: Fault) -> None:
    violation = READER.read(body)
    assert isinstance(violation, Violation) and violation.fault is fault


@given(st.lists(st.sampled_from(SCRAPS), max_size=14), st.sampled_from(("", "Nodes:\n")))
def test_a_body_made_by_chance_is_read_as_the_protocol_reads_it(
    scraps: list[str], head: str
) -> None:
    protocol, body = SearchDag(), head + "\n".join(scraps)
    read = READER.read(body)
    action = protocol.parse(f"<think>x</think>\n<search>\n{body}\n</search>")
    if isinstance(read, Violation):
        assert action.kind == INVALID_KIND
    else:
        assert (action.kind, action.payload) == (SEARCH, read.queries)
        assert protocol.read_plan(protocol.render_plan(read)) == read


@pytest.mark.parametrize(
    ("lines", "fault", "about"),
    [
        (["A: (News)", "B: two (Moon)"], Fault.EMPTY_QUERY, "A"),
        (["A: one ( The Moon )"], Fault.UNKNOWN_SOURCE, "The Moon"),
        (["A: one (News)", "B two"], Fault.NODE_LINE, "B two"),
        (["A: one (News)", "A: {A} (News)", "Edges:", "A -> Z"], Fault.LABEL_TWICE, "A"),
        (["A: {B} (News)", "Edges:", "A -> A; A -> Z"], Fault.UNDECLARED_NODE, "Z"),
        (["A: {B} (News)", "B: b (News)", "Edges:", "A -> B -> A -> A"], Fault.SELF_LOOP, "A"),
        (["A: {B} (News)", "B: b (News)", "Edges:", "A -> B -> A"], Fault.CYCLE, ""),
        (["A: a (News)", "B: {C} (News)", "C: c (News)", "Edges: A -> B"], Fault.NO_PARENT, "C"),
        ([f"{x}: a (News)" for x in "ABCDEFGA"], Fault.TOO_MANY_NODES, "8"),
        (["A: a (News)", "Edges:", "A -> B", "A B"], Fault.EDGE_LINE, "A B"),
        (["A: a (News)", "Nodes: B"], Fault.SECTION_TWICE, "Nodes:"),
        (["A: a (News)", "Edges:", "edges : A"], Fault.SECTION_TWICE, "edges :"),
    ],
)
def test_the_first_fault_is_told_with_what_it_is_about(
    lines: list[str], fault: Fault, about: str
) -> None:
    violation = READER.read("Nodes:\n" + "\n".join(lines))
    assert isinstance(violation, Violation)
    assert (violation.fault, violation.about) == (fault, about)
    reasons = READER.reasons()
    assert violation.reason == reasons[fault] and "query (General)" in reasons[Fault.NODE_LINE]
    assert "there are General, News and Academic." in reasons[Fault.UNKNOWN_SOURCE]


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
