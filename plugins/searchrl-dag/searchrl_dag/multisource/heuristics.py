"""The scripted policy `cue_plan`: `multisource` without its table, a baseline without any learning.

It knows every word and form of the world, and asks as many sources as a plan has room for. Policies
that know the task are in `scripts`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from searchrl.contracts import ANSWER, Action, Task
from searchrl.envs import Shown
from searchrl_dag.multisource import words
from searchrl_dag.multisource.questions import BRIDGE, COMPARE, COUNT, FILTER, LOOKUP, combine
from searchrl_dag.multisource.world import SOURCES
from searchrl_dag.plans.plan import Edge, Node, Plan
from searchrl_dag.plans.protocol import FIRST_THOUGHT, SearchDag


def _any(choices: Sequence[str]) -> str:
    return f"(?:{'|'.join(choices)})"


_WORD = re.compile(r"\w+")
_PLACE = rf"{_any(words.PLACE_FIRST)} {_any(words.PLACE_LAST)} {_any(words.PLACES)}"
_NAME = re.compile(f"{_PLACE}|{_any(words.PERSON_FIRST)} {_any(words.PERSON_LAST)}")

UNKNOWN = "unknown"
"""The answer of a script that found nothing."""

Pairs = list[tuple[str, str]]
"""Nouns with the entity that each is asked of; "" is the result of the query before."""

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
        self._env, self._protocol = env.unwrapped, protocol
        self._turn, self._answer = turn, answer
        self.shown = Shown()

    def act(self, observation: str) -> str:
        """Return the next turn; passages are read from the environment."""
        self.shown.add(self._env.last_passages)
        if turn := self._turn:
            self._turn = ""
            return turn
        answer, thought = self._answer()
        return self._protocol.render_turn(Action(ANSWER, answer), thought)


def make_cue_plan(
    env: Any,
    task: Task,
    protocol: SearchDag,
    rank: Callable[[Pairs], Sequence[Sequence[str]]] | None = None,
) -> Planner:
    """The right shape from the words of the question, every query to every source if it fits.

    `rank` gives for each query the sources to ask, best first; the first that tells is believed.
    """
    kind, asked, pairs = guess_task(task.question)
    if not pairs:  # a user's question
        query = " ".join(_WORD.findall(task.question)) or "what"  # braces would refer to nodes
        plan = Plan(tuple(map(Node, "ABC", [query] * len(SOURCES), SOURCES)))
        turn = protocol.render_plan(fit_sources(plan, protocol), FIRST_THOUGHT)
        return Planner(env, protocol, turn, lambda: (UNKNOWN, "I cannot read that."))
    num_sources = max(1, protocol.reader.max_nodes // len(pairs))
    ranked = rank(pairs) if rank else [SOURCES[:num_sources]] * len(pairs)
    plans = zip(*ranked, strict=True)
    each = [(*pair, one) for plan in plans for pair, one in zip(pairs, plan, strict=True)]
    nodes = tuple(  # without an entity, what the query before found
        Node(label, f"{noun} of {entity or f'{{{before}}}'}", source)
        for before, label, (noun, entity, source) in zip("_ABCDE", "ABCDEF", each, strict=False)
    )
    braced = zip("_ABCDE", nodes, strict=False)
    edges = tuple(Edge(before, node.label) for before, node in braced if "{" in node.query)

    def answer() -> tuple[str, str]:
        texts = [passage.text for passage in planner.shown.passages]
        if kind == BRIDGE:
            (link, entity), (noun, _) = pairs
            met = [value for text in texts if (value := told(text, link, entity))]
            values = [value for one in met for text in texts if (value := told(text, noun, one))]
            return (values or [UNKNOWN])[0], "That is what I found."
        values = [next(filter(None, (told(t, *pair) for t in texts)), "0") for pair in pairs]
        return combine(kind, values, asked), "That is what I found."

    turn = protocol.render_plan(fit_sources(Plan(nodes, edges), protocol), FIRST_THOUGHT)
    planner = Planner(env, protocol, turn, answer)
    return planner


def guess_task(question: str) -> tuple[str, str, Pairs]:
    """Guess of a question's kind, the word asked for, and nouns with entities, for `cue_plan`."""
    names = _NAME.findall(question)
    rest = _NAME.sub("", question.partition("the ")[2]).split()
    nouns = [word for word in rest if word in words.NOUNS]
    if not names or not nouns:
        return LOOKUP, "", []
    if rest[0] == "count":
        return COUNT, rest[rest.index(nouns[0]) + 1], [(nouns[0], one) for one in names]
    if len(nouns) == 2:
        pairs = [(nouns[1], one) for one in names] + [(nouns[0], one) for one in names]
        return FILTER, rest[-1].rstrip(".?"), pairs
    if rest[0] in words.MOST:
        return COMPARE, rest[0], [(nouns[0], one) for one in names]
    if links := [link for link, cue in words.LINKS.items() if cue == rest[0]]:
        return BRIDGE, "", [(links[0], names[0]), (nouns[0], "")]
    return LOOKUP, "", [(nouns[0], names[0])]


def told(text: str, noun: str, entity: str) -> str:
    """The value that a passage tells of an entity; empty for another passage."""
    if entity not in text or f" {noun} " not in text:
        return ""
    if noun in words.LINKS:
        return next((one for one in _NAME.findall(text) if one != entity), "")
    return next((word for word in _WORD.findall(text) if word in words.VALUES[noun]), "")
