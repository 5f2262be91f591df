"""A scripted policy that plans once and then answers: the common part of all scripts.

Owns the two turns, which sources a plan may ask, and what the episode has shown so far. Called by
`scripts` and `heuristics`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from searchrl.contracts import ANSWER, Action
from searchrl.envs import Shown
from searchrl_dag.plans.plan import Plan
from searchrl_dag.plans.protocol import SearchDag

UNKNOWN = "unknown"
"""The answer of those who found nothing."""

Answers = Callable[[], tuple[str, str]]
"""An answer, and the thought before it."""


def fit_sources(plan: Plan, protocol: SearchDag) -> Plan:
    """A plan that asks the first source of a protocol in place of those that it leaves out."""
    first = protocol.sources[0]
    nodes = (
        node if node.source in protocol.sources else node._replace(source=first)
        for node in plan.nodes
    )
    return Plan(tuple(nodes), plan.edges)


class Planner:
    """Searches once with a turn that is given, then answers."""

    def __init__(self, env: Any, protocol: SearchDag, turn: str, answer: Answers) -> None:
        self._env = env.unwrapped
        self._protocol = protocol
        self._turn = turn
        self._answer = answer
        self._has_searched = False
        self.shown = Shown()

    def act(self, observation: str) -> str:
        """Return the next turn; what was found is read from the environment."""
        self.shown.add(self._env.last_passages)
        if not self._has_searched and self._turn:
            self._has_searched = True
            return self._turn
        answer, thought = self._answer()
        return self._protocol.render_turn(Action(ANSWER, answer), thought)
