"""The tag protocol `dag`: think, then search with a plan of queries or answer.

Owns its tags, the instruction, how plans and their results are written and drawn. Reading a turn,
the format verdict and foreign text are those of `searchrl.protocols.inline`; the grammar of plans
is in `reading`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Annotated, NamedTuple

from pydantic import Field

from searchrl import ConfigError
from searchrl.contracts import (
    ANSWER,
    INVALID,
    SEARCH,
    Action,
    Episode,
    Graph,
    Passage,
    Table,
    TokenBudget,
)
from searchrl.protocols import (
    InlineProtocol,
    Line,
    Tags,
    ensure_tag_names,
    invalid,
    load_instruction,
)
from searchrl_dag.plans.plan import Node, Plan
from searchrl_dag.plans.reading import PlanReader, fold_source

FIRST_THOUGHT = "I should look this up."
_LAST_THOUGHT = "I know enough to answer."
_NO_PASSAGE = "No passage matches this query."

SOURCES = ("General", "News", "Academic")
"""The sources of the published system."""

ALIASES: Mapping[str, str] = {"academy": "academic"}
"""Further names of sources."""

MAX_NODES = 6
"""Nodes of a plan in the published system."""

_NO_SOURCE = re.compile(r"[()（）\r\n]")
_INSTRUCTION = Path(__file__).with_name("dag.txt")


_MAX_LABEL, _MAX_FOUND = 120, 400
"""Characters of a node's label, and of what it found."""


class NodeResult(NamedTuple):
    """The result of a node: the query as it was sent, and the passages, best first."""

    query: str
    passages: tuple[Passage, ...]


class SearchDag(InlineProtocol):
    """Protocol `dag`; implements `contracts.TagProtocol`.

    The payload of its searches are the queries; `read_plan` gives the graph.

    Args:
        sources: what the sources are called; case does not matter when a plan is read.
        aliases: further names, each of a source. Aliases of sources left out are ignored.
        max_nodes: nodes that a plan may have.
        result: the tag in which results come back: `result`, `r`, `information`, …
        instruction: replaces the default instruction; `@path` reads it from a UTF-8 file.

    Raises:
        ConfigError: a setting is unusable, or the instruction's file cannot be read.

    >>> SearchDag().parse("<search>Nodes:\\nA: mayor of Bonn (News)\\nEdges:</search>").queries
    ('mayor of Bonn',)
    """

    example = "plan"

    def __init__(
        self,
        *,
        sources: Sequence[str] = SOURCES,
        aliases: Mapping[str, str] = ALIASES,
        max_nodes: Annotated[int, Field(ge=1)] = MAX_NODES,
        result: str = "result",
        instruction: str | None = None,
    ) -> None:
        ensure_tag_names(
            {"think": "think", "search": "search", "answer": "answer", "result": result}
        )
        super().__init__("dag", Tags("think", "search", result, "answer"))
        named = {fold_source(name): name.strip() for name in sources}
        if not named or "" in named or len(named) < len(sources):
            raise ConfigError(
                f"protocol.sources: expected different names of sources, got {list(sources)!r}"
            )
        if unfit := [name for name in sources if _NO_SOURCE.search(name)]:
            raise ConfigError(
                f"protocol.sources: {unfit[0]!r} cannot stand in the parentheses behind a query; "
                "expected one line without parentheses"
            )
        if max_nodes < 1:
            raise ConfigError(f"protocol.max_nodes must be at least 1, got {max_nodes}")
        known = {
            fold_source(name): fold_source(source)
            for name, source in aliases.items()
            if fold_source(source) in named
        }
        self.reader = PlanReader(named, known, max_nodes)
        self.instruction = (
            self._write_instruction()
            if instruction is None
            else load_instruction(instruction, "dag")
        )

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources that a plan may name, in lower case."""
        return tuple(self.reader.sources)

    def read_request(self, text: str) -> Action:
        """A search for the queries of the plan, or an invalid action that says what is wrong."""
        plan = self.reader.read(text)
        return invalid(plan) if isinstance(plan, str) else Action(SEARCH, plan.queries)

    def read_plan(self, turn: str) -> Plan | None:
        """The plan of a turn that parses to a search; None for every other turn."""
        if self.parse(turn).kind != SEARCH:
            return None
        body = next(s.text for s in self._grammar.split(turn) if s.part == "request")
        plan = self.reader.read(body)
        return plan if isinstance(plan, Plan) else None

    def render_plan(self, plan: Plan, thought: str = "") -> str:
        """Write the turn that reads as `plan`. Protocol tags in its texts are neutralised."""
        nodes = [
            f"{node.label}: {self._one_line(node.query)} ({self.reader.sources[node.source]})"
            for node in plan.nodes
        ]
        edges = [f"{edge.parent} -> {edge.child}" for edge in plan.edges]
        lines = [self._render_thought(thought), "<search>", "Nodes:", *nodes, "Edges:", *edges]
        return "\n".join([*lines, self.stops[0]])

    def render_turn(self, action: Action, thought: str = "") -> str:
        """Write the turn that parses to `action`. Protocol tags in its texts are neutralised.

        The queries of a search become nodes without edges that ask the first source.
        """
        if action.kind == SEARCH:
            source, queries = self.sources[0], enumerate(action.queries)
            nodes = tuple(Node(_label(number), query, source) for number, query in queries)
            return self.render_plan(Plan(nodes), thought)
        think = self._render_thought(thought)
        if action.kind == ANSWER:
            return f"{think}\n<answer> {self.neutralise(str(action.payload))} {self.stops[1]}"
        if action.kind == INVALID:
            return think
        raise ValueError(f"{self.name} writes search, answer and invalid turns, not {action.kind}")

    def opening(self, kind: str) -> str:
        """Text that commits a turn to a `search` or an `answer`, up to and with its tag."""
        # With the line end that every plan begins with: without it, small models lose the thread.
        openings = {SEARCH: (FIRST_THOUGHT, "search>\n"), ANSWER: (_LAST_THOUGHT, "answer>")}
        if kind not in openings:
            raise ValueError(f"{self.name} can open a search or an answer, not {kind!r}")
        thought, tag = openings[kind]
        return f"{self._render_thought(thought)}\n<{tag}"

    def render_results(
        self, plan: Plan, results: Mapping[str, NodeResult], budget: TokenBudget | None = None
    ) -> str:
        """Wrap the results of a plan, node by node: `A: query (Source)`, then `1. text` lines.

        With a budget, every passage is cut to an equal share of it first; the whole, tags included,
        is within it. Raises `ConfigError` if the budget cannot hold even the two tags.
        """
        lines = [line for node in plan.nodes for line in self._result_lines(node, results)]
        whole = self._wrap(lines, None)
        if budget is None or budget.count(whole) <= budget.max_tokens:
            return whole
        heads = self._wrap([Line(line.head, "") for line in lines], None)
        num_texts = max(1, sum(bool(line.text) for line in lines))
        share = max(1, (budget.max_tokens - budget.count(heads)) // num_texts)
        cut = [Line(line.head, budget.cut(line.text, share).rstrip()) for line in lines]
        return self._wrap(cut, budget)

    def draw_episode(self, episode: Episode) -> Sequence[Graph | Table]:
        """The plan of every turn as a graph, and what each of its nodes found, level by level."""
        drawings: list[Graph | Table] = []
        for number, turn in enumerate(episode.turns, 1):
            if plan := self.read_plan(turn.text):
                results = _read_results(plan, turn.observation)
                drawings += [_draw_graph(plan, number), _draw_levels(plan, number, results)]
        return drawings

    def _result_lines(self, node: Node, results: Mapping[str, NodeResult]) -> list[Line]:
        query, passages = results[node.label]
        head = f"{node.label}: {self._one_line(query)} ({self.reader.sources[node.source]})"
        lines = []
        for number, passage in enumerate(passages, 1):
            title = " ".join(passage.title.split())
            shown = f"{number}. ({title}) " if title else f"{number}. "
            lines.append(Line(shown, " ".join(passage.text.split())))
        return [Line(head, ""), *(lines or [Line(_NO_PASSAGE, "")])]

    def _render_thought(self, thought: str) -> str:
        return f"<think>{self.neutralise(thought)}</think>"

    def _one_line(self, text: str) -> str:
        return " ".join(self.neutralise(text).splitlines())

    def _write_instruction(self) -> str:
        names, most = list(self.reader.sources.values()), self.reader.max_nodes
        lines = _INSTRUCTION.read_text(encoding="utf-8").strip().splitlines()
        if most == 1:  # its example is a plan that may be written
            lines = [line for line in lines if not line.startswith(("B: ", "A -> B"))]
        return "\n".join(lines).format(
            source=names[0],
            last=names[min(1, len(names) - 1)],
            sources=", ".join(names),
            size="1 node" if most == 1 else f"1 to {most} nodes",
            result=self.tags.information,
        )


def _label(number: int) -> str:
    """A, B, …, Z, A1, B1, …"""
    rounds, letter = divmod(number, len(ascii_uppercase))
    return f"{ascii_uppercase[letter]}{rounds or ''}"


def _draw_graph(plan: Plan, number: int) -> Graph:
    nodes = {
        node.label: _cut(f"{node.label}: {node.query} ({node.source})", _MAX_LABEL)
        for node in plan.nodes
    }
    edges = [(edge.parent, edge.child) for edge in plan.edges]
    return Graph(f"plan of turn {number}", nodes, edges)


def _draw_levels(plan: Plan, number: int, results: dict[str, tuple[str, str]]) -> Table:
    rows = []
    for level, nodes in enumerate(plan.levels, 1):
        for node in nodes:
            query, texts = results.get(node.label, (node.query, ""))
            rows.append((level, node.label, node.source, _cut(query, _MAX_LABEL), texts))
    columns = ("level", "node", "source", "query as sent", "found")
    return Table(f"what the plan of turn {number} found, level by level", columns, rows)


def _read_results(plan: Plan, observation: str) -> dict[str, tuple[str, str]]:
    """By label the query that was sent and what it found, from what `render_results` wrote."""
    lines = observation.partition(">")[2].rpartition("</")[0].splitlines()
    waiting = [node.label for node in plan.nodes]
    results: dict[str, tuple[str, str]] = {}
    label = ""
    for line in lines:
        if waiting and line.startswith(f"{waiting[0]}: "):
            label = waiting.pop(0)
            results[label] = (line.removeprefix(f"{label}: ").rpartition(" (")[0], "")
        elif label:
            query, texts = results[label]
            results[label] = (query, _cut(f"{texts}\n{line}".strip(), _MAX_FOUND))
    return results


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"
