"""Names and values that a school draws: people, places, rooms, times, sums, dates.

The domains are large on purpose: a constant or memorised answer must be worthless.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache
from random import Random
from typing import NamedTuple

from pydantic.dataclasses import dataclass

from searchrl.envs.word_lists import ASSETS, EXACT, load_word_list

BUILDINGS = ("House", "Hall", "Lodge", "Wing")
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip


@dataclass(frozen=True, slots=True, config=EXACT)
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
    """The kinds of values that articles state; `_DOMAINS` has the values of each."""

    NUMBER = "number"
    EXTENSION = "extension"
    CODE = "code"
    MONEY = "money"
    MORNING = "morning"
    MIDDAY = "midday"
    AFTERNOON = "afternoon"
    DATE = "date"
    ROOM = "room"
    PERSON = "person"
    BUILDING = "building"
    FORM = "form"
    FUND = "fund"


def _time(rng: Random, first: int, end: int) -> str:
    """A time from `first` to before `end`, in minutes of the day, in steps of five."""
    minutes = rng.randrange(first, end, 5)
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


_DOMAINS: Mapping[ValueKind, Callable[[Random], str]] = {
    ValueKind.NUMBER: lambda rng: str(rng.randrange(11, 99)),
    ValueKind.EXTENSION: lambda rng: str(rng.randrange(1000, 10000)),
    ValueKind.CODE: lambda rng: str(rng.randrange(1000, 10000)),
    ValueKind.MONEY: lambda rng: f"£{rng.randrange(11, 99)}",
    ValueKind.MORNING: lambda rng: _time(rng, 6 * 60 + 30, 11 * 60 + 30),
    ValueKind.MIDDAY: lambda rng: _time(rng, 10 * 60, 15 * 60),
    ValueKind.AFTERNOON: lambda rng: _time(rng, 13 * 60, 20 * 60),
    ValueKind.DATE: lambda rng: f"{rng.randrange(1, 29)} {rng.choice(MONTHS)}",
    ValueKind.ROOM: lambda rng: f"{rng.choice('ABCDEFGH')}{rng.randrange(100, 500)}",
    ValueKind.PERSON: lambda rng: (
        f"{rng.choice(load_names().first_names)} {rng.choice(load_names().last_names)}"
    ),
    ValueKind.BUILDING: lambda rng: (
        f"{rng.choice(load_names().place_names)} {rng.choice(BUILDINGS)}"
    ),
    ValueKind.FORM: lambda rng: f"{rng.choice('KLMNPRSTVW')}{rng.randrange(10, 100)}",
    ValueKind.FUND: lambda rng: f"{rng.choice(load_names().last_names)} Fund",
}


def draw_value(kind: ValueKind, rng: Random) -> str:
    """Draw a value of `kind`, uniform over at least 60 values."""
    return _DOMAINS[kind](rng)


class Value(NamedTuple):
    """A value of a rule: `bare` is the short answer, `unit` that of a number."""

    kind: ValueKind
    bare: str
    unit: str = ""

    @property
    def text(self) -> str:
        """As an article writes it: `12 days`, `room B214`, `form K27`, `the Harker Fund`."""
        if self.kind is ValueKind.NUMBER and self.unit:
            return f"{self.bare} {self.unit}"
        return f"{_PREFIX.get(self.kind, '')}{self.bare}"

    @property
    def answers(self) -> tuple[str, ...]:
        """All right answers, the bare one first; in the forms that people write."""
        forms = _FORMS[self.kind](self) if self.kind in _FORMS else ()
        return tuple(dict.fromkeys((self.bare, self.text, *forms)))


_PREFIX = {
    ValueKind.ROOM: "room ",
    ValueKind.FORM: "form ",
    ValueKind.EXTENSION: "extension ",
    ValueKind.CODE: "code ",
    ValueKind.FUND: "the ",
}

_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()


def spell(number: int) -> str:
    """The English words of a number from 0 to 99: `twenty-three`."""
    if number < 20:
        return _ONES[number]
    tens, ones = divmod(number, 10)
    return _TENS[tens - 2] + (f"-{_ONES[ones]}" if ones else "")


def _number_forms(value: Value) -> list[str]:
    words = spell(int(value.bare))
    return [words, f"{words} {value.unit}"] if value.unit else [words]


def _money_forms(value: Value) -> list[str]:
    pounds = value.bare.removeprefix("£")
    words = spell(int(pounds))
    return [pounds, f"{pounds} pounds", f"{words} pounds", words, f"{value.bare}.00"]


def _time_forms(value: Value) -> list[str]:
    hour, minute = map(int, value.bare.split(":"))
    half, short = "am" if hour < 12 else "pm", (hour - 1) % 12 + 1
    clock = [f"{short}.{minute:02d}", f"{short}:{minute:02d}", *([] if minute else [str(short)])]
    forms = [
        value.bare,
        f"{hour}:{minute:02d}",
        *(f"{one} {half}" for one in clock),
        *(f"{one}{half}" for one in clock),
    ]
    return [*forms, *(f"{word} {one}" for word in ("at", "from", "until") for one in forms)]


def _date_forms(value: Value) -> list[str]:
    day, month = value.bare.split()
    ordinal = f"{day}{_ORDINALS.get(int(day), 'th')}"
    forms = [value.bare, f"{ordinal} of {month}", f"{ordinal} {month}", f"{month} {day}"]
    forms += [f"{month} {ordinal}", f"the {ordinal} of {month}"]
    return [*forms, *(f"{word} {one}" for word in ("on", "by", "until") for one in forms)]


def _place_forms(value: Value) -> list[str]:
    return [f"in {value.text}", f"{value.text[0].upper()}{value.text[1:]}"]


_ORDINALS = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd", 31: "st"}
_FORMS: Mapping[ValueKind, Callable[[Value], list[str]]] = {
    ValueKind.NUMBER: _number_forms,
    ValueKind.MONEY: _money_forms,
    ValueKind.MORNING: _time_forms,
    ValueKind.MIDDAY: _time_forms,
    ValueKind.AFTERNOON: _time_forms,
    ValueKind.DATE: _date_forms,
    ValueKind.ROOM: _place_forms,
    ValueKind.BUILDING: _place_forms,
}


def telling_words(name: str) -> list[str]:
    """The words that tell a name from others of its kind: `Fern` of `Fern Wing`."""
    return [word for word in name.split() if word not in _COMMON_WORDS]


def draw_distinct(kind: ValueKind, rng: Random, used: set[str]) -> str:
    """Draw a value of `kind`; a name has no telling word of `used`, which takes in its own."""
    while True:
        value = draw_value(kind, rng)
        words = telling_words(value)
        if kind not in _NAMED or used.isdisjoint(words):
            used.update(words)
            return value


_NAMED = (ValueKind.ROOM, ValueKind.PERSON, ValueKind.BUILDING, ValueKind.FORM, ValueKind.FUND)
_COMMON_WORDS = frozenset((*BUILDINGS, "form", "the", "Fund"))


_SYLLABLES = (
    "ka ri mo zen tul bra vek shi lo nar dub fel gri hox jun kle myr nof pra qua ros sti tav urm "
    "vosk wex yil zam bei cho dra elk fyn gol hjar ist jov kup lund mez nik oss pel rux sov tik "
    "ulf ax ber cir dom eb fir gus hep iv jak"
).split()
_FOREIGN = ("né lü ça ñu ße ø å ć żó ř tě kö sé ğa îl phở да ре мо ги λε ρα").split()


def invent_name(rng: Random) -> str:
    """A capitalised word that no list holds: `Tavros`, now and then foreign or with a number."""
    parts = [rng.choice(_SYLLABLES) for _ in range(rng.choice((2, 2, 3)))]
    if rng.random() < 0.15:
        parts[rng.randrange(len(parts))] = rng.choice(_FOREIGN)
    name = "".join(parts).capitalize()
    return f"{name} {rng.randrange(2, 100)}" if rng.random() < 0.1 else name


@cache
def school_names(world_seed: int) -> tuple[str, ...]:
    """All school names of a world in its own order; no name occurs twice."""
    rng, names = Random(f"school names {world_seed}"), load_names()
    places = [head + tail for head in names.school_heads for tail in names.school_tails]
    places = list(dict.fromkeys(places))
    rng.shuffle(places)
    return tuple(f"{place} {rng.choice(names.school_types)}" for place in places)
