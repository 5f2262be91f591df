"""The scripted policies of `multisource` that know the task: an expert, and weak ones.

The expert knows the plan of the task, and answers only what it was shown. `random` knows all of it
but the sources, as a policy that was never in this world. `passive` never searches. The policy that
does not know the task is in `heuristics`.
"""

from __future__ import annotations

from random import Random
from typing import Any

from searchrl.contracts import Expert, Task
from searchrl_dag.multisource import words
from searchrl_dag.multisource.heuristics import UNKNOWN, Planner, fit_sources, make_cue_plan
from searchrl_dag.multisource.questions import COUNT, combine
from searchrl_dag.multisource.world import SOURCES
from searchrl_dag.plans.plan import Edge, Node, Plan
from searchrl_dag.plans.protocol import FIRST_THOUGHT, SearchDag


def make_expert(env: Any, task: Task, protocol: SearchDag) -> Expert:
    """The plan that answers the task, and then what it was shown."""
    if "nodes" not in task.meta:  # a user's question
        return make_cue_plan(env, task, protocol)
    return _follow(env, task, protocol, [source for *_, source in task.meta["nodes"]])


def make_random(env: Any, task: Task, protocol: SearchDag) -> Expert:
    """The right plan with a random source for each query, and what these sources say."""
    rng = Random(f"random/{task.id}")
    return _follow(env, task, protocol, rng.choices(SOURCES, k=len(task.meta["nodes"])))


def make_passive(env: Any, task: Task, protocol: SearchDag) -> Expert:
    """Answers at once with a value of the right shape, without any search."""
    rng = Random(f"passive/{task.id}")
    noun = task.meta["nodes"][-1][1].partition(" of ")[0] if "nodes" in task.meta else ""
    people = env.unwrapped.world(task.split).people
    values = "0123" if task.kind == COUNT else words.VALUES.get(noun, people)
    answer = rng.choice(values) if noun else UNKNOWN
    return Planner(env, protocol, "", lambda: (answer, "I know this."))


def _follow(env: Any, task: Task, protocol: SearchDag, sources: list[str]) -> Expert:
    """The plan of the task with these sources, then the answer from what they showed."""
    asked = zip(task.meta["nodes"], sources, strict=True)
    nodes = tuple(Node(label, query, source) for (label, query, _), source in asked)
    plan = fit_sources(Plan(nodes, tuple(Edge(*edge) for edge in task.meta["edges"])), protocol)
    facts = env.unwrapped.world(task.split).facts
    parents = {child: parent for parent, child in task.meta["edges"]}

    def answer() -> tuple[str, str]:
        found: dict[str, str] = {}
        for label, query, source in plan.nodes:
            noun, _, name = query.partition(" of ")
            fact = facts.get((source, found.get(parents.get(label, ""), name), noun))
            is_shown = fact is not None and planner.shown.has_all([fact.id])
            found[label] = fact.value if fact and is_shown else UNKNOWN
        if UNKNOWN in found.values():
            return UNKNOWN, "I was not shown it."
        asked = task.meta["asked"]
        # What is counted is marked: so small a model counts marks, not values that are equal.
        marks = {v: ", yes" if v == asked else ", no" for v in found.values() if task.kind == COUNT}
        thought = " ".join(
            f"{one} says {value}{marks.get(value, '')}." for one, value in found.items()
        )
        return combine(task.kind, [*found.values()], asked), thought

    planner = Planner(env, protocol, protocol.render_plan(plan, FIRST_THOUGHT), answer)
    return planner
