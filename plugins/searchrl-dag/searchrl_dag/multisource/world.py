"""The made-up world: towns and people, and what each of the three sources says about them.

Owns names, facts and passages of a split. Every fact is in one source only: all three speak of the
crop of a town, and each says something else. So a question has to be put to the right one. Pure: a
function of seed and split; no name is in two splits.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from random import Random
from typing import NamedTuple

from searchrl.contracts import Passage
from searchrl_dag.multisource import words
from searchrl_dag.multisource.words import Wordings

SOURCES = tuple(words.PASSAGES)


class Size(NamedTuple):
    """How many towns and people a split has, and which fifths of all names are its own."""

    towns: int
    people: int
    fifths: range


SIZES: Mapping[str, Size] = {
    "train": Size(240, 320, range(3)),
    "validation": Size(60, 80, range(3, 4)),
    "test": Size(120, 160, range(4, 5)),
}


class Fact(NamedTuple):
    """What one source says; `is_seen` tells whether training shows this wording."""

    source: str
    noun: str
    entity: str
    value: str
    text: str
    is_seen: bool

    @property
    def id(self) -> str:
        """The id of its passage."""
        return f"{self.source}/{self.entity}/{self.noun}"


class World(NamedTuple):
    """One split. `facts` are found by (source, entity, noun)."""

    towns: tuple[str, ...]
    people: tuple[str, ...]
    facts: Mapping[tuple[str, str, str], Fact]
    corpora: Mapping[str, tuple[Passage, ...]]
    """The passages of each source."""


@lru_cache(maxsize=8)
def make_world(world_seed: int, split: str) -> World:
    """The world of a split."""
    size = SIZES[split]
    rng = Random(f"multisource/{world_seed}/{split}")
    towns = _draw_names(world_seed, words.TOWN_FIRST, words.TOWN_LAST, size.towns, size.fifths)
    people = _draw_names(
        world_seed, words.PERSON_FIRST, words.PERSON_LAST, size.people, size.fifths
    )
    asked: list[tuple[str, str, tuple[str, ...]]] = []
    for town in towns:
        asked += [(town, role, people) for role in words.ROLES]
        asked += [(town, noun, values) for noun, values in words.TOWN_VALUES.items()]
    for person in people:
        asked += [(person, noun, values) for noun, values in words.PERSON_VALUES.items()]
    facts: dict[tuple[str, str, str], Fact] = {}
    for entity, noun, values in asked:
        for source, value in zip(SOURCES, rng.sample(values, len(SOURCES)), strict=True):
            wording, is_seen = draw_wording(rng, words.PASSAGES[source], split)
            text = wording.format(n=noun, e=entity, v=value)
            facts[source, entity, noun] = Fact(source, noun, entity, value, text, is_seen)
    corpora = {
        source: tuple(Passage(f.id, f.text) for f in facts.values() if f.source == source)
        for source in SOURCES
    }
    return World(towns, people, facts, corpora)


def draw_wording(rng: Random, wordings: Wordings, split: str) -> tuple[str, bool]:
    """A wording, and whether training shows it; half of those of tests are held out."""
    is_seen = split != "test" or rng.random() < 0.5
    return rng.choice(wordings.seen if is_seen else wordings.held_out), is_seen


def _draw_names(
    world_seed: int, first: tuple[str, ...], last: tuple[str, ...], count: int, fifths: range
) -> tuple[str, ...]:
    """Names of two words out of some fifths of all; the fifths do not overlap."""
    names = [f"{one} {other}" for one in first for other in last]
    Random(f"multisource/{world_seed}/names").shuffle(names)
    own = [name for number, name in enumerate(names) if number % 5 in fifths]
    return tuple(own[:count])
