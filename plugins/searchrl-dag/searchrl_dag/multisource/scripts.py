"""The scripted policies of `multisource`: an expert, two that are weak on purpose, heuristics.

Owns what each writes. The expert knows the plan of the task, and answers only what it was shown.
`passive` and `clumsy` are for a cold start that leaves something to learn: `clumsy` writes plans
with mistakes. The heuristics know the question and what they were shown, as a model does, and
nothing else: `one_general` asks General the whole question, `two_nodes` has one fixed plan of two,
`every_source` asks all sources twice, the second time with what the first found.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from searchrl.contracts import Expert
from searchrl.core.episode import ANSWER, Action, Passage, Task
from searchrl.envs.corpus import names_in
from searchrl.envs.shown import UNKNOWN, Shown
from searchrl_dag.multisource import words
from searchrl_dag.multisource.world import SOURCES
from searchrl_dag.plans.plan import Edge, Node, Plan
from searchrl_dag.plans.protocol import SearchDag

Answers = Callable[[], tuple[str, str]]
"""An answer, and the thought before it."""

_SMALL = frozenset(
    "a and as ask can do find for from give gives in is know look me need of please said say says "
    "tell that the to today up you".split()
)
_WORD = re.compile(r"\w+")


class _Planner:
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


class _Known(_Planner):
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
    return _Known(env, task, protocol, protocol.render_plan(_plan_of(task), _thought_of(task)))


def make_passive(env: Any, task: Task, protocol: SearchDag) -> Expert:
    """Answers at once with a value of the right shape, without any search."""
    rng = Random(f"passive/{task.id}")
    nouns = [thing.split()[-1] for thing in task.meta.get("things", ())]
    asked = nouns[1:] if task.meta.get("edges") else nouns
    values = {**words.TOWN_VALUES, **words.PERSON_VALUES}
    people = env.unwrapped.world(task.split).people
    answer = " and ".join(rng.choice(values.get(noun, people)) for noun in asked) or UNKNOWN
    return _Planner(env, protocol, "", lambda: (answer, "I know this."))


def make_clumsy(env: Any, task: Task, protocol: SearchDag) -> Expert:
    """The expert with a mistake in every plan: a fault of its form, or a wrong source."""
    if "nodes" not in task.meta:
        return make_every_source(env, task, protocol)
    rng = Random(f"clumsy/{task.id}")
    lines = protocol.render_plan(_plan_of(task), _thought_of(task))
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


def make_one_general(env: Any, task: Task, protocol: SearchDag) -> Expert:
    """The whole question as one query to General."""
    plan = Plan((Node("A", _short(task.question), "general"),))
    return _reader(env, task, protocol, plan)


def make_two_nodes(env: Any, task: Task, protocol: SearchDag) -> Expert:
    """One fixed plan: the question to General, and its result with the question to News."""
    question = _short(task.question)
    nodes = (Node("A", question, "general"), Node("B", f"{question} {{A}}", "news"))
    return _reader(env, task, protocol, Plan(nodes, (Edge("A", "B"),)))


def make_every_source(env: Any, task: Task, protocol: SearchDag) -> Expert:
    """The question to every source, and what each found with the question to that source again."""
    question = _short(task.question)
    pairs = list(zip("ABC", "DEF", SOURCES, strict=True))
    nodes = [Node(first, question, source) for first, _, source in pairs]
    nodes += [Node(then, f"{question} {{{first}}}", source) for first, then, source in pairs]
    edges = tuple(Edge(first, then) for first, then, _ in pairs)
    return _reader(env, task, protocol, Plan(tuple(nodes), edges))


def _reader(env: Any, task: Task, protocol: SearchDag, plan: Plan) -> Expert:
    """Runs a plan and answers from the passage nearest to the question."""

    def answer() -> tuple[str, str]:
        return _read(task.question, planner.shown.passages), "That is the nearest."

    planner = _Planner(env, protocol, protocol.render_plan(plan, "I look this up."), answer)
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


def _plan_of(task: Task) -> Plan:
    nodes = tuple(Node(*node) for node in task.meta["nodes"])
    return Plan(nodes, tuple(Edge(*edge) for edge in task.meta["edges"]))


def _thought_of(task: Task) -> str:
    """Which source has each thing: "The latest mayor is in News, then the studied drink …"."""
    sources = [source.title() for _, _, source in task.meta["nodes"]]
    said = [
        f"the {thing} is in {source}"
        for thing, source in zip(task.meta["things"], sources, strict=True)
    ]
    text = ", ".join(said)
    return f"{text[:1].upper()}{text[1:]}."
