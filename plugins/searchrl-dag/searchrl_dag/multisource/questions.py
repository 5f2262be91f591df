"""The questions on the made-up world, each with the plan that answers it.

Owns the kinds of task and how one is drawn. A question says of each thing which kind of fact is
meant ("the latest crop"), and so which source has it. Pure: a function of seed, split and index.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from searchrl_dag.multisource import words
from searchrl_dag.multisource.world import Fact, World, draw_wording

LOOKUP, PAIR, CHAIN, FAN = "lookup", "pair", "chain", "fan"
KINDS = (LOOKUP, PAIR, CHAIN, FAN)
"""One fact; two that do not depend on each other; a second that needs the result of the first; two
that both need it."""


class Step(NamedTuple):
    """One query of the plan that answers: what is asked of whom, or of the result of `parent`."""

    label: str
    fact: Fact
    cue: str
    parent: str = ""

    @property
    def query(self) -> str:
        """As an expert writes it."""
        return f"{self.fact.noun} of {f'{{{self.parent}}}' if self.parent else self.fact.entity}"


class Draft(NamedTuple):
    """A question, the steps to its answer, and whether training shows all its wordings."""

    question: str
    steps: tuple[Step, ...]
    answer: str
    is_seen: bool


def draft_task(world: World, kind: str, key: str, split: str) -> Draft:
    """The task of a kind; `key` is what it is drawn from."""
    rng = Random(key)
    steps = _draw_steps(world, kind, rng)
    wording, is_seen = draw_wording(rng, words.QUESTIONS, split)
    asked = steps[1:] if kind in (CHAIN, FAN) else steps
    return Draft(
        wording.format(p=_phrase(kind, steps)),
        steps,
        " and ".join(step.fact.value for step in asked),
        is_seen and all(step.fact.is_seen for step in steps),
    )


def _draw_steps(world: World, kind: str, rng: Random) -> tuple[Step, ...]:
    if kind in (LOOKUP, PAIR):
        towns = rng.sample(world.towns, 2)
        nouns = [*words.TOWN_VALUES, *words.ROLES]
        count = 1 if kind == LOOKUP else 2
        drawn = [
            _draw_step(world, label, town, rng.choice(nouns), rng)
            for label, town in zip("AB", towns, strict=True)
        ]
        return tuple(drawn[:count])
    first = _draw_step(world, "A", rng.choice(world.towns), rng.choice(words.ROLES), rng)
    nouns = rng.sample(list(words.PERSON_VALUES), 1 if kind == CHAIN else 2)
    later = [
        _draw_step(world, label, first.fact.value, noun, rng, parent="A")
        for label, noun in zip("BC", nouns, strict=False)
    ]
    return (first, *later)


def _draw_step(
    world: World, label: str, entity: str, noun: str, rng: Random, parent: str = ""
) -> Step:
    source = rng.choice(list(words.CUES))
    return Step(label, world.facts[source, entity, noun], rng.choice(words.CUES[source]), parent)


def _phrase(kind: str, steps: tuple[Step, ...]) -> str:
    """What is asked for: "the studied drink of the latest mayor of Dalham"."""
    things = [f"the {step.cue} {step.fact.noun}" for step in steps]
    first = f"{things[0]} of {steps[0].fact.entity}"
    if kind == LOOKUP:
        return first
    if kind == PAIR:
        return f"{first} and {things[1]} of {steps[1].fact.entity}"
    return f"{' and '.join(things[1:])} of {first}"
