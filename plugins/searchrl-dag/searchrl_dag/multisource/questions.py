"""The questions on the made-up world, each with the plan that answers it.

A question never says where its answer is. Its words decide the shape of its plan: "the usual crop
of X" is one query, "the kitchen crop of X" two. Pure: a function of seed, split and index.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from searchrl_dag.multisource import words
from searchrl_dag.multisource.world import (
    Fact,
    World,
    draw_wording,
    kind_of,
    nouns_of,
)

LOOKUP, BRIDGE, COMPARE, FILTER, COUNT = "lookup", "bridge", "compare", "filter", "count"
KINDS = (LOOKUP, BRIDGE, COMPARE, FILTER, COUNT)
"""One fact; one of another entity, which must be found first; the greater or smaller of two
numbers; the fact of the one of two that has a number; how many of three have a value."""


class Step(NamedTuple):
    """One query of the plan that answers: a noun of an entity, or of the result of `parent`."""

    label: str
    fact: Fact
    parent: str = ""

    @property
    def query(self) -> str:
        """As an expert writes it."""
        return f"{self.fact.noun} of {f'{{{self.parent}}}' if self.parent else self.fact.entity}"


class Draft(NamedTuple):
    """A question and the steps to its answer; `is_seen`: training shows all its wordings."""

    question: str
    steps: tuple[Step, ...]
    asked: str
    """The word by which `combine` puts the results together."""
    answer: str
    is_seen: bool


def draft_task(world: World, kind: str, key: str, split: str) -> Draft:
    """The task of a kind; `key` is what it is drawn from."""
    rng = Random(key)
    steps, asked, phrase = _DRAW[kind](world, rng)
    wording, is_seen = draw_wording(rng, words.QUESTIONS, split)
    return Draft(
        wording.format(p=phrase),
        steps,
        asked,
        combine(kind, [step.fact.value for step in steps], asked),
        is_seen and all(step.fact.is_seen for step in steps),
    )


def combine(kind: str, values: Sequence[str], asked: str) -> str:
    """The answer to a question of `kind`, from what its queries found.

    >>> combine(FILTER, ["7", "3", "rye", "oats"], "3")
    'oats'
    """
    if kind == COMPARE:
        return words.MOST[asked](values)
    if kind == FILTER:
        return values[2 + values.index(asked)] if asked in values[:2] else values[2]
    if kind == COUNT:
        return str(list(values).count(asked))
    return values[-1]


Drawn = tuple[tuple[Step, ...], str, str]
"""Steps, the word asked for, and what is asked for in words."""


def _draw_lookup(world: World, rng: Random) -> Drawn:
    entity = rng.choice(world.entities)
    noun = rng.choice(nouns_of(kind_of(entity)))
    phrase = f"the {rng.choice(words.PLAIN)} {noun} of {entity}"
    return _steps(world, (noun, entity)), "", phrase


def _draw_bridge(world: World, rng: Random) -> Drawn:
    entity, link = rng.choice(world.places), rng.choice(list(words.LINKS))
    noun = rng.choice(list(words.VALUES))
    first = Step("A", world.right[entity, link])
    second = Step("B", world.right[first.fact.value, noun], "A")
    return (first, second), "", f"the {words.LINKS[link]} {noun} of {entity}"


def _draw_compare(world: World, rng: Random) -> Drawn:
    one, other = rng.sample(world.entities, 2)
    noun, asked = rng.choice(words.NUMBERS), rng.choice(list(words.MOST))
    phrase = f"the {asked} {noun} of {one} and {other}"
    return _steps(world, (noun, one), (noun, other)), asked, phrase


def _draw_filter(world: World, rng: Random) -> Drawn:
    noun, number = rng.choice(words.WORDS), rng.choice(words.NUMBERS)
    one, other = rng.sample(world.entities, 2)
    while world.right[one, number].value == world.right[other, number].value:
        one, other = rng.sample(world.entities, 2)
    asked = world.right[rng.choice((one, other)), number].value
    phrase = f"the {noun} of {one} or {other} by the {number} {asked}"
    pairs = (number, one), (number, other), (noun, one), (noun, other)
    return _steps(world, *pairs), asked, phrase


def _draw_count(world: World, rng: Random) -> Drawn:
    noun = rng.choice(words.WORDS)
    asked = world.right[rng.choice(world.entities), noun].value
    having = [one for one in world.entities if world.right[one, noun].value == asked]
    others = [one for one in world.entities if world.right[one, noun].value != asked]
    num_having = min(rng.randrange(4), len(having))
    drawn = [*rng.sample(having, num_having), *rng.sample(others, 3 - num_having)]
    one, two, three = rng.sample(drawn, 3)
    phrase = f"the count of the {noun} {asked} in {one} and {two} and {three}"
    return _steps(world, (noun, one), (noun, two), (noun, three)), asked, phrase


_DRAW = {
    LOOKUP: _draw_lookup,
    BRIDGE: _draw_bridge,
    COMPARE: _draw_compare,
    FILTER: _draw_filter,
    COUNT: _draw_count,
}


def _steps(world: World, *asked: tuple[str, str]) -> tuple[Step, ...]:
    """Steps that do not wait for each other, from pairs of a noun and an entity."""
    return tuple(
        Step("ABCDEF"[place], world.right[entity, noun])
        for place, (noun, entity) in enumerate(asked)
    )
