"""What the protocol `dag` draws of an episode: each plan, and what its nodes found by level.

Owns the two figures of a plan. What was found is read from the observation, as the model read it.
Pure. Called by `protocol`; whoever shows a rollout asks that.
"""

from __future__ import annotations

from collections.abc import Iterable

from searchrl.contracts import EpisodeTurn, Graph, Table
from searchrl_dag.plans.plan import Plan

_MAX_LABEL, _MAX_FOUND = 120, 400
"""Characters of a node's label, and of what it found."""


def draw_plans(turns: Iterable[tuple[Plan | None, EpisodeTurn]]) -> list[Graph | Table]:
    """A graph and a table for each turn that holds a plan."""
    drawings: list[Graph | Table] = []
    for number, (plan, turn) in enumerate(turns, 1):
        if plan is not None:
            found = _read_results(plan, turn.observation)
            drawings += [_draw_graph(plan, number), _draw_levels(plan, number, found)]
    return drawings


def _draw_graph(plan: Plan, number: int) -> Graph:
    nodes = {
        node.label: _cut(f"{node.label}: {node.query} ({node.source})", _MAX_LABEL)
        for node in plan.nodes
    }
    edges = [(edge.parent, edge.child) for edge in plan.edges]
    return Graph(f"plan of turn {number}", nodes, edges)


def _draw_levels(plan: Plan, number: int, found: dict[str, tuple[str, str]]) -> Table:
    rows = []
    for level, nodes in enumerate(plan.levels, 1):
        for node in nodes:
            query, texts = found.get(node.label, (node.query, ""))
            rows.append((level, node.label, node.source, _cut(query, _MAX_LABEL), texts))
    columns = ("level", "node", "source", "query as sent", "found")
    return Table(f"what the plan of turn {number} found, level by level", columns, rows)


def _read_results(plan: Plan, observation: str) -> dict[str, tuple[str, str]]:
    """By label the query that was sent and what it found, from what `render_results` wrote."""
    lines = observation.partition(">")[2].rpartition("</")[0].splitlines()
    waiting = [node.label for node in plan.nodes]
    found: dict[str, tuple[str, str]] = {}
    label = ""
    for line in lines:
        if waiting and line.startswith(f"{waiting[0]}: "):
            label = waiting.pop(0)
            found[label] = (line.removeprefix(f"{label}: ").rpartition(" (")[0], "")
        elif label:
            query, texts = found[label]
            found[label] = (query, _cut(f"{texts}\n{line}".strip(), _MAX_FOUND))
    return found


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"
