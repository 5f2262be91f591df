"""Names and values that a school draws: people, places, rooms, times, sums, dates.

Owns the domains, which are large on purpose: a constant or memorised answer must be worthless. The
names themselves are data (`searchrl/assets/regulations/names.json`); wordings are in
`wordings.py`. Called by `school.py`, and by the scripted policies for a plausible guess.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from random import Random

from pydantic import with_config

from searchrl.envs.word_lists import ASSETS, EXACT, load_word_list

BUILDINGS = ("House", "Hall", "Lodge", "Wing")
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip


@with_config(EXACT)
@dataclass(frozen=True, slots=True)
class Names:
    """The names to draw from: the content of `names.json`. A school's name is head + tail, type."""

    first_names: tuple[str, ...]
    last_names: tuple[str, ...]
    place_names: tuple[str, ...]
    school_heads: tuple[str, ...]
    school_tails: tuple[str, ...]
    school_types: tuple[str, ...]


@cache
def load_names() -> Names:
    """The names of the package, read once."""
    return load_word_list(Names, ASSETS / "regulations/names.json")


class ValueKind(StrEnum):
    """What an article states; each kind has its own domain."""

    NUMBER = "number"
    """A whole number, 11 to 98."""
    EXTENSION = "extension"
    """Four digits: a telephone extension or a code."""
    MONEY = "money"
    """A sum, £11 to £98."""
    MORNING = "morning"
    """A time between 06:30 and 11:25."""
    MIDDAY = "midday"
    """A time between 10:00 and 14:55."""
    AFTERNOON = "afternoon"
    """A time between 13:00 and 19:55."""
    DATE = "date"
    """A day and a month."""
    ROOM = "room"
    """A letter and three digits."""
    PERSON = "person"
    """A first and a last name."""
    BUILDING = "building"
    """A house of the school."""
    FORM = "form"
    """A form with its number."""
    FUND = "fund"
    """A fund that pays for things."""


def _time(rng: Random, first: int, end: int) -> str:
    """A time from `first` to before `end`, in minutes of the day, in steps of five."""
    minutes = rng.randrange(first, end, 5)
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def _person(rng: Random) -> str:
    return f"{rng.choice(load_names().first_names)} {rng.choice(load_names().last_names)}"


_DOMAINS: Mapping[ValueKind, Callable[[Random], str]] = {
    ValueKind.NUMBER: lambda rng: str(rng.randrange(11, 99)),
    ValueKind.EXTENSION: lambda rng: str(rng.randrange(1000, 10000)),
    ValueKind.MONEY: lambda rng: f"£{rng.randrange(11, 99)}",
    ValueKind.MORNING: lambda rng: _time(rng, 6 * 60 + 30, 11 * 60 + 30),
    ValueKind.MIDDAY: lambda rng: _time(rng, 10 * 60, 15 * 60),
    ValueKind.AFTERNOON: lambda rng: _time(rng, 13 * 60, 20 * 60),
    ValueKind.DATE: lambda rng: f"{rng.randrange(1, 29)} {rng.choice(MONTHS)}",
    ValueKind.ROOM: lambda rng: f"{rng.choice('ABCDEFGH')}{rng.randrange(100, 500)}",
    ValueKind.PERSON: _person,
    ValueKind.BUILDING: lambda rng: (
        f"{rng.choice(load_names().place_names)} {rng.choice(BUILDINGS)}"
    ),
    ValueKind.FORM: lambda rng: f"form {rng.choice('KLMNPRSTVW')}{rng.randrange(10, 100)}",
    ValueKind.FUND: lambda rng: f"{rng.choice(load_names().last_names)} Fund",
}


def draw_value(kind: ValueKind, rng: Random) -> str:
    """Draw a value of `kind`, uniform over at least 60 values."""
    return _DOMAINS[kind](rng)


def telling_words(name: str) -> list[str]:
    """The words that distinguish a name from others of its kind: `Fern` of `Fern Wing`."""
    return [word for word in name.split() if word not in _COMMON_WORDS]


class DistinctValues:
    """Draws values for one school; no two names share a word, so that names are unambiguous."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._used: set[str] = set()

    def draw(self, kind: ValueKind) -> str:
        """Draw a value of `kind`; if it is a name, none of its telling words was drawn before."""
        while True:
            value = draw_value(kind, self._rng)
            words = telling_words(value)
            if kind not in _NAMED or not self._used.intersection(words):
                self._used.update(words)
                return value


_NAMED = (ValueKind.ROOM, ValueKind.PERSON, ValueKind.BUILDING, ValueKind.FORM, ValueKind.FUND)
_COMMON_WORDS = frozenset((*BUILDINGS, "form", "Fund"))


@cache
def school_names(world_seed: int) -> tuple[str, ...]:
    """All school names of a world in its own order; no name occurs twice."""
    rng, names = Random(f"school names {world_seed}"), load_names()
    places = [head + tail for head in names.school_heads for tail in names.school_tails]
    places = list(dict.fromkeys(places))
    rng.shuffle(places)
    return tuple(f"{place} {rng.choice(names.school_types)}" for place in places)
