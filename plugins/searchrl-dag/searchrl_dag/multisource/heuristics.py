"""Scripted policies of `multisource` that match words: how far one comes without any learning.

Owns the two turns of every script, which plans these write, and how they read. They know the
question and what they were shown, as a model does: `one_general` asks General the whole question,
`every_source` asks all sources twice, the second time with what the first found. `general_plan`
takes the question apart as its writer put it together, so its plans have the right shape; it does
not know which source has what. Policies that know the task are in `scripts`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from searchrl.contracts import ANSWER, Action, Expert, Passage, Task
from searchrl.envs import Shown, names_in
from searchrl_dag.multisource.world import SOURCES
from searchrl_dag.plans.plan import Edge, Node, Plan
from searchrl_dag.plans.protocol import SearchDag

_SMALL = frozenset(
    "a and as ask can do find for from give gives have in is know like look me name need of please "
    "said say says search tell that the to today up what would you".split()
)
_WORD = re.compile(r"\w+")
_HEAD = re.compile(r"^([A-Z]): (.+) \((?:General|News|Academic)\)$", re.MULTILINE)
"""The line above what a node found."""


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


def make_one_general(env: Any, task: Task, protocol: SearchDag) -> Expert:
    """The whole question as one query to General."""
    plan = Plan((Node("A", _short(task.question), "general"),))
    return _reader(env, task, protocol, plan)


def make_every_source(env: Any, task: Task, protocol: SearchDag) -> Expert:
    """The question to every source, and what each found with the question to that source again."""
    question = _short(task.question)
    pairs = list(zip("ABC", "DEF", SOURCES, strict=True))
    nodes = [Node(first, question, source) for first, _, source in pairs]
    nodes += [Node(then, f"{question} {{{first}}}", source) for first, then, source in pairs]
    edges = tuple(Edge(first, then) for first, then, _ in pairs)
    return _reader(env, task, protocol, Plan(tuple(nodes), edges))


def make_general_plan(env: Any, task: Task, protocol: SearchDag) -> Expert:
    """A plan of the right shape that asks General for everything."""
    plan = guess_plan(task.question)
    if plan is None:
        return make_one_general(env, task, protocol)
    return _PlanReader(env, task, protocol, plan)


def guess_plan(question: str) -> Plan | None:
    """What a question asks for, one node each; None if it is not put as those of the world are."""
    asked = question.partition("the ")[2].rstrip("?. ")
    things = [[_short(part) for part in thing.split(" of ")] for thing in asked.split(" and ")]
    *names, last = (thing[-1] for thing in things)
    if not asked or not last[:1].isupper():
        return None
    groups = [[part.split()[-1] for part in thing] for thing in things]
    if all(name[:1].isupper() for name in names):  # each thing has an owner of its own
        steps = [(thing[-1], group[:-1]) for thing, group in zip(things, groups, strict=True)]
        shared: list[str] = []
    else:
        steps = [(last, [groups[-1][-2]])]
        shared = [group[0] for group in groups]
    nodes: list[Node] = []
    edges: list[Edge] = []
    for owner, nouns in steps:
        for noun in reversed(nouns):
            label = "ABCDEF"[len(nodes)]
            is_first = noun == nouns[-1]
            nodes.append(Node(label, f"{noun} of {owner if is_first else '{A}'}", "general"))
            edges += [] if is_first else [Edge("A", label)]
    for noun in shared:
        label = "ABCDEF"[len(nodes)]
        nodes.append(Node(label, f"{noun} of {{A}}", "general"))
        edges.append(Edge("A", label))
    return Plan(tuple(nodes), tuple(edges))


class _PlanReader(Planner):
    """Reads what each last node of a plan found, by its query as it was sent."""

    def __init__(self, env: Any, task: Task, protocol: SearchDag, plan: Plan) -> None:
        turn = protocol.render_plan(fit_sources(plan, protocol), "I look this up.")
        super().__init__(env, protocol, turn, self._tell)
        self._last = {one.label for one in plan.nodes} - {edge.parent for edge in plan.edges}
        self._sent: dict[str, str] = {}

    def act(self, observation: str) -> str:
        """Return the next turn; the queries as they were sent stand in the observation."""
        self._sent = dict(_HEAD.findall(observation.replace("<result>", "\n")))
        return super().act(observation)

    def _tell(self) -> tuple[str, str]:
        found = [
            _read(query, self.shown.passages)
            for label, query in self._sent.items()
            if label in self._last
        ]
        return " and ".join(found) or UNKNOWN, "That is what each found."


def _reader(env: Any, task: Task, protocol: SearchDag, plan: Plan) -> Expert:
    """Runs a plan and answers from the passage nearest to the question."""

    def answer() -> tuple[str, str]:
        return _read(task.question, planner.shown.passages), "That is the nearest."

    turn = protocol.render_plan(fit_sources(plan, protocol), "I look this up.")
    planner = Planner(env, protocol, turn, answer)
    return planner


def _read(question: str, passages: Sequence[Passage]) -> str:
    """What is new in the passage that shares most words with the question: a name, a rare word.

    Of the two nearest passages, if the question asks for two things.
    """
    asked = set(_telling(question))
    counts = Counter(word for one in passages for word in set(_telling(one.text)))
    ranked = sorted(passages, key=lambda one: -len(asked & set(_telling(one.text))))
    found: dict[str, None] = {}
    for passage in ranked:
        new = [word for word in _telling(passage.text) if word not in asked]
        if names := names_in(passage.text, besides=question):
            found.setdefault(names[0])
        elif new:
            found.setdefault(min(new, key=lambda word: counts[word]))
    count = 2 if " and " in question else 1
    return " and ".join([*found][:count]) or UNKNOWN


def _telling(text: str) -> list[str]:
    return [word for word in _WORD.findall(text.casefold()) if word not in _SMALL]


def _short(question: str) -> str:
    """The question without its marks; braces would refer to nodes."""
    return " ".join(_WORD.findall(question)) or "what"
