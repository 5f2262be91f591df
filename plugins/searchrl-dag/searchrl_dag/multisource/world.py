"""The made-up world: a hidden table, and the names, facts and passages of a split.

The table says for each noun and kind of entity which source is kept up to date; no word of a
question or passage tells it. Nine facts in ten also stand in another source, out of date. In a
joint table the source of a person's fact also depends on what this person is: cook, guard or
driver. Pure: a function of seed, split and table; all splits of a seed share its table, and no name
is in two splits.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from random import Random
from typing import NamedTuple

from searchrl.contracts import Passage
from searchrl_dag.multisource import words
from searchrl_dag.multisource.words import Wordings

SOURCES = ("general", "news", "academic")

NUM_EXCEPTIONS = 6
"""Nouns that one kind of place has in another source than all other entities."""

STALE_FRAC = 0.9
"""The share of facts that also stand in a second source, with an old value."""


class Size(NamedTuple):
    """The number of places and people of a split, and its fifths of all names."""

    places: int
    people: int
    fifths: range


SIZES: Mapping[str, Size] = {
    "train": Size(250, 200, range(3)),
    "validation": Size(75, 40, range(3, 4)),
    "test": Size(150, 80, range(4, 5)),
}


class Fact(NamedTuple):
    """A statement of one source; `is_seen`: training shows this wording."""

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
    """One split. `facts` are found by (source, entity, noun), the right ones by (entity, noun).

    Questions name `entities`: places and, but for a joint table, people.
    """

    places: tuple[str, ...]
    people: tuple[str, ...]
    entities: tuple[str, ...]
    facts: Mapping[tuple[str, str, str], Fact]
    right: Mapping[tuple[str, str], Fact]
    corpora: Mapping[str, tuple[Passage, ...]]
    """The passages of each source."""


@lru_cache(maxsize=64)
def make_table(world_seed: int) -> Mapping[tuple[str, str], str]:
    """The source of every noun and kind of entity: 63 entries.

    >>> len(make_table(0)), len({*make_table(0).values()})
    (63, 3)
    """
    rng = Random(f"multisource/{world_seed}/table")
    nouns = rng.sample(words.NOUNS, len(words.NOUNS))
    places = {
        (noun, kind): place
        for place, noun in enumerate(nouns)
        for kind in (*words.PLACES, words.PERSON)
        if noun in nouns_of(kind)
    }
    for noun in rng.sample(nouns, NUM_EXCEPTIONS):
        places[noun, rng.choice(words.PLACES)] += rng.choice((1, 2))
    return {key: SOURCES[place % len(SOURCES)] for key, place in places.items()}


@lru_cache(maxsize=64)
def make_world(world_seed: int, split: str, is_joint: bool = False) -> World:
    """The world of a split.

    In a joint one a third of the people are cooks, guards and drivers each, and a noun of theirs
    is in another source for each of the three: neither the noun alone nor the role alone tells it.
    """
    rng = Random(f"multisource/{world_seed}/{split}")
    table = make_table(world_seed)
    size = SIZES[split]
    named = _draw_names(world_seed, words.PLACE_FIRST, words.PLACE_LAST, size.places, size.fifths)
    places = tuple(
        f"{name} {words.PLACES[number % len(words.PLACES)]}" for number, name in enumerate(named)
    )
    people = _draw_names(
        world_seed, words.PERSON_FIRST, words.PERSON_LAST, size.people, size.fifths
    )
    roles = len(words.LINKS) if is_joint else 1
    by_link = {link: people[n % roles :: roles] for n, link in enumerate(words.LINKS)}
    shifts = {person: n % roles for n, person in enumerate(people)}
    facts: dict[tuple[str, str, str], Fact] = {}
    right: dict[tuple[str, str], Fact] = {}
    for entity in places + people:
        for noun in nouns_of(kind_of(entity)):
            place = SOURCES.index(table[noun, kind_of(entity)]) + shifts.get(entity, 0)
            source = SOURCES[place % len(SOURCES)]
            stating = {source}
            if rng.random() < STALE_FRAC:
                stating.add(rng.choice([one for one in SOURCES if one != source]))
            options = by_link.get(noun) or words.VALUES[noun]
            values = rng.sample(options, len(stating))
            for one, value in zip(sorted(stating), values, strict=True):
                wording, is_seen = draw_wording(rng, words.PASSAGES, split)
                text = wording.format(n=noun, e=entity, v=value)
                facts[one, entity, noun] = Fact(one, noun, entity, value, text, is_seen)
            right[entity, noun] = facts[source, entity, noun]
    corpora = {
        source: tuple(Passage(f.id, f.text) for f in facts.values() if f.source == source)
        for source in SOURCES
    }
    return World(places, people, places if is_joint else places + people, facts, right, corpora)


def kind_of(entity: str) -> str:
    """The kind of an entity: a place has it in its name."""
    last = entity.rpartition(" ")[2]
    return last if last in words.PLACES else words.PERSON


def nouns_of(kind: str) -> tuple[str, ...]:
    """The nouns of a kind of entity."""
    return tuple(words.VALUES) if kind == words.PERSON else words.NOUNS


def draw_wording(rng: Random, wordings: Wordings, split: str) -> tuple[str, bool]:
    """A wording, and True if training shows it; half of those of tests are held out."""
    is_seen = split != "test" or rng.random() < 0.5
    return rng.choice(wordings.seen if is_seen else wordings.held_out), is_seen


def _draw_names(
    world_seed: int, first: tuple[str, ...], last: tuple[str, ...], count: int, fifths: range
) -> tuple[str, ...]:
    """Names of two words out of some fifths of all; the fifths do not overlap."""
    names = [f"{one} {other}" for one in first for other in last]
    Random(f"multisource/{world_seed}/names").shuffle(names)
    return tuple(name for number, name in enumerate(names) if number % 5 in fifths)[:count]
