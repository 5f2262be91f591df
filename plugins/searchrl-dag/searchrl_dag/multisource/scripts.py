"""The scripted policies of `multisource` that know the task: an expert, and weak ones.

Owns what each writes. The expert knows the plan of the task, and answers only what it was shown.
`brief` is the expert without a thought of its own, as a forced search has none. `passive`, `clumsy`
and `hasty` are for a cold start that leaves something to learn: `clumsy` writes plans with
mistakes, `hasty` has two habits. Policies that do not know the task are in `heuristics`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from searchrl.contracts import Expert, Task
from searchrl_dag.multisource import words
from searchrl_dag.multisource.heuristics import UNKNOWN, Planner, fit_sources, make_every_source
from searchrl_dag.multisource.world import SOURCES, Fact
from searchrl_dag.plans.plan import Edge, Node, Plan
from searchrl_dag.plans.protocol import FIRST_THOUGHT, SearchDag


class _Known(Planner):
    """One that knows the task, and answers it once it was shown all of the evidence."""

    def __init__(self, env: Any, task: Task, protocol: SearchDag, turn: str) -> None:
        super().__init__(env, protocol, turn, self._tell)
        self._task = task

    def _tell(self) -> tuple[str, str]:
        answer = self.shown.gold_answer(self._task)
        if answer == UNKNOWN:
            return answer, "I was not shown it."
        labels = [label for label, *_ in self._task.meta["nodes"]]
        said = zip(labels, self._task.meta["values"], strict=True)
        return answer, " ".join(f"{label} says {value}." for label, value in said)


def make_expert(env: Any, task: Task, protocol: SearchDag) -> Expert:
    """The plan that answers the task, and then what it was shown."""
    if "nodes" not in task.meta:  # a user's question
        return make_every_source(env, task, protocol)
    plan = _plan_of(task, protocol)
    return _Known(env, task, protocol, protocol.render_plan(plan, _thought_of(task, plan)))


def make_brief(env: Any, task: Task, protocol: SearchDag) -> Expert:
    """The expert, with the one thought that a search has which is forced upon a policy."""
    if "nodes" not in task.meta:
        return make_every_source(env, task, protocol)
    return _Known(
        env, task, protocol, protocol.render_plan(_plan_of(task, protocol), FIRST_THOUGHT)
    )


def make_passive(env: Any, task: Task, protocol: SearchDag) -> Expert:
    """Answers at once with a value of the right shape, without any search."""
    rng = Random(f"passive/{task.id}")
    nouns = [thing.split()[-1] for thing in task.meta.get("things", ())]
    asked = nouns[1:] if task.meta.get("edges") else nouns
    values = {**words.TOWN_VALUES, **words.PERSON_VALUES}
    people = env.unwrapped.world(task.split).people
    answer = " and ".join(rng.choice(values.get(noun, people)) for noun in asked) or UNKNOWN
    return Planner(env, protocol, "", lambda: (answer, "I know this."))


def make_clumsy(env: Any, task: Task, protocol: SearchDag) -> Expert:
    """The expert with a mistake in every plan: a fault of its form, or a wrong source."""
    if "nodes" not in task.meta:
        return make_every_source(env, task, protocol)
    rng = Random(f"clumsy/{task.id}")
    plan = _plan_of(task, protocol)
    lines = protocol.render_plan(plan, _thought_of(task, plan))
    thought, _, body = lines.partition("\n<search>\n")
    body = body.removesuffix(f"\n{protocol.stops[0]}")
    spoilt = rng.choice(_MISTAKES)(body, rng)
    turn = f"{thought}\n<search>\n{spoilt}\n{protocol.stops[0]}"
    return _Known(env, task, protocol, turn)


def _ask_elsewhere(body: str, rng: Random) -> str:
    """Every query goes to one source, whichever was meant."""
    return re.sub(r"\((?:General|News|Academic)\)", f"({rng.choice(SOURCES).title()})", body)


def _invent_source(body: str, rng: Random) -> str:
    return re.sub(r"\((?:General|News|Academic)\)", "(Book)", body, count=1)


def _forget_source(body: str, rng: Random) -> str:
    return re.sub(r" \((?:General|News|Academic)\)", "", body, count=1)


def _name_nobody(body: str, rng: Random) -> str:
    return f"{body.removesuffix('A -> B').rstrip()}\nA -> D"


def _go_round(body: str, rng: Random) -> str:
    return f"{body}\nB -> A" if "A -> B" in body else f"{body}\nA -> A"


def _forget_edges(body: str, rng: Random) -> str:
    """Without edges; where there were none, without the line Nodes:."""
    head, edges, _ = body.partition("\nEdges:\n")
    return f"{head}\nEdges:" if edges else body.removeprefix("Nodes:\n")


_MISTAKES: Sequence[Callable[[str, Random], str]] = (
    _ask_elsewhere,
    _invent_source,
    _forget_source,
    _name_nobody,
    _go_round,
    _forget_edges,
)


def make_hasty(env: Any, task: Task, protocol: SearchDag) -> Expert:
    """The expert with two habits: it asks General for everything, and draws edges both ways.

    Each is often but not always there, so that who learned it now and then leaves it out. It
    answers what was found, right or wrong; a plan whose edges go both ways finds nothing.
    """
    if "nodes" not in task.meta:
        return make_every_source(env, task, protocol)
    rng = Random(f"hasty/{task.id}")
    is_general, is_circle = (rng.random() < _HABIT_FRAC for _ in range(2))
    right = _plan_of(task, protocol)
    nodes = [one._replace(source=SOURCES[0]) if is_general else one for one in right.nodes]
    back = [Edge(edge.child, edge.parent) for edge in right.edges if is_circle]
    plan = fit_sources(Plan(tuple(nodes), (*right.edges, *back)), protocol)
    facts = _facts_of(env, task, plan)

    def answer() -> tuple[str, str]:
        if not planner.shown.has_all(fact.id for fact in facts.values()):
            return UNKNOWN, "I was not shown it."
        asked = [one for one in facts if not any(edge.parent == one for edge in plan.edges)]
        said = " ".join(f"{label} says {fact.value}." for label, fact in facts.items())
        return " and ".join(facts[label].value for label in asked), said

    planner = Planner(env, protocol, protocol.render_plan(plan, _thought_of(task, plan)), answer)
    return planner


_HABIT_FRAC = 0.85
"""How often `hasty` has each of its habits."""


def _facts_of(env: Any, task: Task, plan: Plan) -> dict[str, Fact]:
    """By label what the source that a node asks says, of the result of its parent if it has one."""
    known = env.unwrapped.world(task.split).facts
    parents = {child: parent for parent, child in task.meta["edges"]}
    facts: dict[str, Fact] = {}
    for label, query, source in plan.nodes:
        noun, _, name = query.partition(" of ")
        of = facts[parents[label]].value if label in parents else name
        facts[label] = known[source, of, noun]
    return facts


def _plan_of(task: Task, protocol: SearchDag) -> Plan:
    nodes = tuple(Node(*node) for node in task.meta["nodes"])
    plan = Plan(nodes, tuple(Edge(*edge) for edge in task.meta["edges"]))
    return fit_sources(plan, protocol)


def _thought_of(task: Task, plan: Plan) -> str:
    """Where a plan looks for each thing: "The latest mayor is in News, the studied drink is …"."""
    said = [
        f"the {thing} is in {node.source.title()}"
        for thing, node in zip(task.meta["things"], plan.nodes, strict=True)
    ]
    text = ", ".join(said)
    return f"{text[:1].upper()}{text[1:]}."
