"""Plans run: levels one after another, sources of a level at once, parents before children."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
from searchrl_dag.multisource.sources import Sources, SourceSettings, parent_text
from searchrl_dag.plans.plan import Edge, Node, Plan
from searchrl_dag.plans.protocol import NodeResult, SearchDag

from searchrl import RetrieverFailure
from searchrl.contracts import Passage
from searchrl.retrieval import IndexCache

SOURCES = ("general", "news", "academic")
DIAMOND = Plan(
    (
        Node("A", "mayor", "general"),
        Node("B", "drink of {A}", "news"),
        Node("C", "tool of {A}", "academic"),
        Node("D", "{B} and {C}", "general"),
    ),
    (Edge("A", "B"), Edge("A", "C"), Edge("B", "D"), Edge("C", "D")),
)


class Telling:
    """Says which query it got, after a while; remembers its batches."""

    def __init__(self, source: str, wait_s: float = 0.0) -> None:
        self.source, self.wait_s = source, wait_s
        self.batches: list[list[str]] = []

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """One passage for each query: a new name."""
        self.batches.append(list(queries))
        time.sleep(self.wait_s)
        said = [f"The {query} is {self.source.title()} {len(query)}." for query in queries]
        return [[Passage(text, text)] * (k + 1) for text in said]


class Runner(NamedTuple):
    sources: Sources
    made: dict[str, Telling]

    def run(self, plan: Plan) -> dict[str, NodeResult]:
        return self.sources.run(plan, lambda source: (source, ()))


def make_runner(
    make: Callable[[str], Telling], timeout_s: float = 30.0, parent_results: bool = True
) -> Runner:
    made = {source: make(source) for source in SOURCES}
    own: Any = {source: lambda passages, one=one: one for source, one in made.items()}
    shared = IndexCache(lambda passages: Telling("none"))
    settings = SourceSettings(
        topk=2, parent_results=parent_results, search_timeout_s=timeout_s, **own
    )
    return Runner(Sources(SearchDag(), settings, shared, "env x"), made)


def test_children_get_the_results_of_their_parents_unless_these_are_left_out() -> None:
    runner = make_runner(Telling)
    results = runner.run(DIAMOND)
    told = ["mayor", "drink of General 5", "tool of General 5", "News 18 and Academic 17"]
    assert [results[label].query for label in "ABCD"] == told
    assert len(results["D"].passages) == 2
    assert runner.made["general"].batches == [["mayor"], ["News 18 and Academic 17"]]
    results = make_runner(Telling, parent_results=False).run(DIAMOND)
    assert [results[label].query for label in "ABCD"] == ["mayor", "drink of", "tool of", "and"]


def test_a_turn_shows_what_its_nodes_found_in_turn_and_in_the_order_that_was_asked_for() -> None:
    class Numbered(Telling):
        def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
            return [[Passage(f"{q}{n}", f"text {q}{n}") for n in range(k)] for q in queries]

    nodes = (Node("A", "a", "news"), Node("B", "b", "general"))
    sources, turn = make_runner(Numbered).sources, SearchDag().render_plan(Plan(nodes))
    found = sources.look_up(turn, lambda source: (source, ()), lambda p: tuple(p[::-1]), None)
    assert [passage.id for passage in found.passages] == ["a1", "b1", "a0", "b0"]
    assert found.observation.index("text a1") < found.observation.index("text a0")


def test_queries_of_one_level_and_source_are_one_batch_and_its_sources_asked_at_once() -> None:
    runner = make_runner(Telling)
    nodes = tuple(Node(label, label.lower(), "news") for label in "ABC")
    runner.run(Plan(nodes, (Edge("A", "C"),)))
    assert runner.made["news"].batches == [["a", "b"], ["c"]]
    meeting = threading.Barrier(3, timeout=20)

    class Meeting(Telling):
        def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
            meeting.wait()  # raises if the others do not come
            return super().search(queries, k)

    runner = make_runner(Meeting)
    nodes = tuple(Node(source[0], "q", source) for source in SOURCES)
    assert len(runner.run(Plan(nodes))) == 3


def test_a_source_that_is_late_is_named() -> None:
    runner = make_runner(lambda source: Telling(source, 3.0 if source == "news" else 0.0), 0.3)
    start = time.monotonic()
    with pytest.raises(RetrieverFailure, match="env x, source news"):
        runner.run(Plan((Node("A", "q", "general"), Node("B", "q", "news"))))
    assert time.monotonic() - start < 2.5


@pytest.mark.parametrize(
    ("result", "said"),
    [([["x"]], " returned for a query"), ([], ": expected one list of passages"),
     (None, " raised SystemExit: 3")],
)  # fmt: skip
def test_a_result_that_is_no_list_of_passages_is_named(result: Any, said: str) -> None:
    class Odd(Telling):
        def search(self, queries: Sequence[str], k: int) -> Any:
            if result is None:
                raise SystemExit(3)
            return result

    with pytest.raises(RetrieverFailure, match=f"^env x, source news{said}"):
        make_runner(Odd).run(Plan((Node("A", "q", "news"),)))


@pytest.mark.parametrize(
    ("query", "text", "said"),
    [
        ("mayor of Dalham", "The mayor of Dalham is Ada Kemp.", "Ada Kemp"),
        ("crop of Dalham", "The crop of Dalham is rye.", "The is rye"),
        ("director of Dune", "Dune was directed by Denis Villeneuve for us.", "Denis Villeneuve"),
        ("北京 人口", "北京人口多", "北京人口多"),
        ("Dalham", "Dalham.", ""),
        ("end", "said Ada Kemp, Bo Lind, then Cy Moor.", "Ada Kemp Bo Lind"),
        ("q of", "".join(f"w{n} of " for n in range(20)), " ".join(f"w{n}" for n in range(12))),
    ],
)
def test_what_a_parent_is_replaced_by(query: str, text: str, said: str) -> None:
    assert parent_text(NodeResult(query, (Passage("p", text),))) == said


def test_a_parent_that_found_nothing_is_replaced_by_nothing() -> None:
    assert parent_text(NodeResult("mayor", ())) == ""
    titled = Passage("p", "is the mayor", "Ada Kemp")
    assert parent_text(NodeResult("mayor", (titled, Passage("r", "Bo Lind")))) == "Ada Kemp"
